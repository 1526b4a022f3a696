"""Plans are read strictly, and the newest one wins whatever the network does."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.plan import (
    MAX_BYTES,
    Answer,
    Plan,
    PlanState,
    Route,
    advance,
    parse_answer,
    parse_plan,
)
from balancedstream.core.policy import STRATEGIES
from balancedstream.errors import (
    BalancedStreamError,
    InvalidInputError,
    PlanConflictError,
    PlanTooLargeError,
    StalePlanError,
)

names = st.text(min_size=1, max_size=8)
GOOD: dict[str, Any] = {
    "epoch": 7,
    "effective_batch": 120,
    "executors": ["1", "4"],
    "placement": {"clicks": {"0": [0, 1, 1, -1]}},
    "routes": [{"query": "clicks", "key": '"de"', "partition": 3}],
    "strategy": "budgeted",
}


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    executors = tuple(draw(st.lists(names, unique=True, max_size=4)))
    indexes = st.integers(-1, len(executors) - 1)
    routes = draw(
        st.lists(
            st.builds(Route, names, names, st.integers(0, 2**31 - 2)),
            unique_by=lambda route: (route.query, route.key),
            max_size=4,
        )
    )
    return Plan(
        epoch=draw(st.integers(1, 2**53 - 1)),
        executors=executors,
        placement=draw(
            st.dictionaries(
                st.tuples(names, st.integers(0, 20)),
                st.lists(indexes, max_size=6).map(tuple),
                max_size=4,
            )
        ),
        strategy=draw(st.sampled_from(STRATEGIES)),
        routes=tuple(routes),
        effective_batch=draw(st.none() | st.integers(0, 2**53 - 1)),
    )


def small_plan(epoch: int, owner: str = "a", effective_batch: int | None = None) -> Plan:
    return Plan(epoch, (owner,), {("q", 0): (0,)}, "fluid", effective_batch=effective_batch)


def changed(**fields: object) -> str:
    return json.dumps({**GOOD, **fields})


def feed(state: PlanState, *events: Plan | int) -> PlanState:
    """Advance over all events, dropping refused plans as a driver does."""
    for event in events:
        try:
            state = advance(state, event)
        except StalePlanError:
            continue
    return state


# --- the text ---


@given(plans())
@settings(max_examples=80)
def test_a_plan_survives_being_written_and_read(plan: Plan) -> None:
    text = plan.to_json()
    assert parse_plan(text) == plan
    assert parse_plan(text.encode()) == plan
    assert parse_plan(text).to_json() == text


@given(
    st.builds(
        Answer,
        st.integers(0, 2**53 - 1),
        st.lists(names, unique=True, max_size=4).map(tuple),
        st.dictionaries(names, st.integers(0, 2**53 - 1), max_size=4),
        st.integers(0, 100),
        st.none() | st.integers(1, 2**53 - 1),
        st.text(max_size=20),
    )
)
@settings(max_examples=60)
def test_an_answer_survives_being_written_and_read(answer: Answer) -> None:
    text = answer.to_json()
    assert parse_answer(text) == answer
    assert parse_answer(text).to_json() == text


@given(plans(), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_equal_plans_have_equal_text(plan: Plan, random: Any) -> None:
    routes, placement = list(plan.routes), list(plan.placement.items())
    random.shuffle(routes)
    random.shuffle(placement)
    same = replace(plan, routes=tuple(routes), placement=dict(placement))
    assert same == plan
    assert same.to_json() == plan.to_json()


def test_a_plan_says_who_owns_which_partition() -> None:
    plan = parse_plan(json.dumps(GOOD))
    assert plan.owners("clicks", 0) == {0: "1", 1: "4", 2: "4"}
    assert plan.owners("clicks", 1) == {}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"extra": 1}, r"^plan\.extra: unknown field, allowed are epoch, executors, "),
        ({"epoch": 0}, r"^plan\.epoch: must be an integer from 1 "),
        ({"epoch": 2**53}, r"^plan\.epoch: must be an integer from 1 to 9007199254740991"),
        ({"epoch": 7.0}, r"^plan\.epoch: must be an integer"),
        ({"epoch": True}, r"^plan\.epoch: must be an integer"),
        ({"epoch": "7"}, r"^plan\.epoch: must be an integer"),
        ({"effective_batch": -1}, r"^plan\.effective_batch: must be an integer from 0"),
        ({"executors": "1"}, r"^plan\.executors: must be an array"),
        ({"executors": ["1", 4]}, r"^plan\.executors\[1\]: must be a text that is not empty"),
        ({"executors": ["1", ""]}, r"^plan\.executors\[1\]: must be a text that is not empty"),
        ({"executors": ["1", "1"]}, r"^plan\.executors: must be ids, each once"),
        ({"placement": []}, r"^plan\.placement: must be an object"),
        ({"placement": {"q": []}}, r"^plan\.placement\.q: must be an object"),
        ({"placement": {"q": {"0": 1}}}, r"^plan\.placement\.q\.0: must be an array"),
        ({"placement": {"": {"0": [0]}}}, r"^plan\.placement: must be a text"),
        ({"placement": {"q": {"x": [0]}}}, r"^plan\.placement\.q\.x: must be named by an operator"),
        ({"placement": {"q": {"01": [0]}}}, r"^plan\.placement\.q\.01: must be named by an oper"),
        ({"placement": {"q": {"9" * 5000: []}}}, r"must be named by an operator id"),
        (
            {"placement": {"q": {"0": [0, 2]}}},
            r"^plan\.placement\.q\.0\[1\]: must be an integer from -1 to 1, not 2",
        ),
        ({"placement": {"q": {"0": [-2]}}}, r"^plan\.placement\.q\.0\[0\]: must be an integer"),
        ({"placement": {"q": {"0": [False]}}}, r"^plan\.placement\.q\.0\[0\]: must be an integer"),
        ({"routes": {}}, r"^plan\.routes: must be an array"),
        ({"routes": [3]}, r"^plan\.routes\[0\]: must be an object"),
        ({"routes": [{"query": "q", "key": "k"}]}, r"^plan\.routes\[0\]\.partition: is missing"),
        (
            {"routes": [{"query": "q", "key": "k", "partition": 1, "to": 2}]},
            r"^plan\.routes\[0\]\.to: unknown field",
        ),
        (
            {"routes": [{"query": "q", "key": "k", "partition": 2**31}]},
            r"^plan\.routes\[0\]\.partition: must be an integer from 0 to 2147483646",
        ),
        (
            {"routes": [{"query": "q", "key": 5, "partition": 1}]},
            r"^plan\.routes\[0\]\.key: must be a text",
        ),
        (
            {"routes": [{"query": "q", "key": "k", "partition": p} for p in (1, 2)]},
            r"^plan\.routes: must be at most one for each",
        ),
        ({"strategy": "sudden"}, r"^plan\.strategy: must be one of all-at-once, fluid"),
        ({"strategy": []}, r"^plan\.strategy: must be one of"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_plan(changed(**fields))


@pytest.mark.parametrize("name", ["epoch", "executors", "placement", "routes", "strategy"])
def test_a_missing_field_is_named(name: str) -> None:
    text = json.dumps({key: value for key, value in GOOD.items() if key != name})
    with pytest.raises(InvalidInputError, match=rf"^plan\.{name}: is missing"):
        parse_plan(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        b"\xff\xfe\xff",
        "[" * 100_000,
        '{"epoch": ' + "9" * 5000 + "}",
        '{"epoch": NaN}',
        '{"epoch": 1, "epoch": 2}',
        "__import__('os')",
        b"\x80\x04N.",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidInputError, match=r"^plan: is no readable JSON"):
        parse_plan(text)


@pytest.mark.parametrize("text", ["null", "3", "[]", '"plan"'])
def test_json_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^plan: must be an object"):
        parse_plan(text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epoch": -1}, r"^answer\.epoch: must be an integer from 0"),
        ({"last_batches": {"q": -1}}, r"^answer\.last_batches\.q: must be an integer from 0"),
        ({"last_batches": []}, r"^answer\.last_batches: must be an object"),
        ({"refused": None}, r"^answer\.refused: must be text"),
        ({"prepared_epoch": 0}, r"^answer\.prepared_epoch: must be an integer from 1"),
        ({"late_batches": 0.5}, r"^answer\.late_batches: must be an integer"),
        ({"extra": 1}, r"^answer\.extra: unknown field"),
    ],
    ids=str,
)
def test_a_wrong_field_of_an_answer_is_refused_by_name(
    fields: dict[str, object], message: str
) -> None:
    good = json.loads(Answer(7, ("a",), {"q": 41}).to_json())
    with pytest.raises(InvalidInputError, match=message):
        parse_answer(json.dumps({**good, **fields}))


@given(
    st.text()
    | st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*GOOD, "x", "0"]), inner, max_size=6)
        ),
    ).map(json.dumps)
)
@settings(max_examples=150)
def test_whatever_is_sent_only_named_errors_come_back(text: str | bytes) -> None:
    try:
        parse_plan(text)
    except InvalidInputError:
        return


# --- its size ---


def large_plan(routes: int = 0) -> Plan:
    executors = tuple(str(number) for number in range(1000))
    return Plan(
        epoch=1,
        executors=executors,
        placement={
            ("clicks", operator): tuple(partition % 1000 for partition in range(10_000))
            for operator in range(3)
        },
        strategy="budgeted",
        routes=tuple(Route("clicks", f"key-{number}", number) for number in range(routes)),
    )


@pytest.mark.parametrize("routes", [0, 4096])
def test_ten_thousand_partitions_of_three_operators_fit(routes: int) -> None:
    plan = large_plan(routes)
    text = plan.to_json()
    assert len(text.encode()) <= MAX_BYTES
    assert parse_plan(text) == plan


def test_a_route_too_many_is_refused() -> None:
    with pytest.raises(PlanTooLargeError, match=r"plan\.routes: has 4097 entries, at most 4096"):
        large_plan(routes=4097)


def test_a_plan_too_large_is_neither_written_nor_read() -> None:
    plan = replace(large_plan(), executors=tuple("x" * 600 + str(n) for n in range(1000)))
    with pytest.raises(PlanTooLargeError, match=f"at most {MAX_BYTES} fit"):
        plan.to_json()
    with pytest.raises(PlanTooLargeError, match=f"at most {MAX_BYTES} fit"):
        parse_plan(json.dumps(GOOD) + " " * MAX_BYTES)


# --- which plan is in force ---


def test_a_plan_without_a_batch_is_in_force_at_the_next_one() -> None:
    state = feed(PlanState(next_batch=5), small_plan(1))
    assert state.in_force == small_plan(1)
    assert state.late_batches == 0


def test_a_prepared_plan_is_in_force_exactly_from_its_batch() -> None:
    before, prepared = small_plan(1, "a"), small_plan(2, "b", effective_batch=8)
    state = feed(PlanState(next_batch=5), before, prepared)
    for batch in range(5, 12):
        state = advance(state, batch)
        assert state.in_force == (before if batch < 8 else prepared)
    assert state.late_batches == 0


def test_a_prepared_plan_is_withdrawn_by_a_newer_one_with_the_content_in_force() -> None:
    before, prepared = small_plan(1, "a"), small_plan(2, "b", effective_batch=8)
    state = feed(PlanState(), before, prepared, 6, small_plan(3, "a"), 7, 8, 9)
    assert state.in_force == small_plan(3, "a")
    assert state.prepared is None


def test_a_newer_prepared_plan_replaces_an_older_one() -> None:
    state = feed(PlanState(), small_plan(1), small_plan(2, "b", 8), small_plan(3, "c", 9))
    assert advance(state, 8).in_force == small_plan(1)
    assert advance(state, 9).in_force == small_plan(3, "c", 9)


@pytest.mark.parametrize(("events", "late"), [((9,), 2), ((7,), 0), ((8,), 1)])
def test_a_plan_that_missed_its_batch_is_in_force_and_says_by_how_much(
    events: tuple[int, ...], late: int
) -> None:
    plan = small_plan(1, effective_batch=8)
    assert feed(PlanState(), *events, plan).late_batches == late
    skipped = feed(PlanState(), plan, 8 + late)
    assert (skipped.in_force, skipped.late_batches) == (plan, late)


def test_an_older_plan_is_refused_and_changes_nothing() -> None:
    state = feed(PlanState(), small_plan(5))
    with pytest.raises(StalePlanError, match="4 is older than 5"):
        advance(state, small_plan(4))


def test_the_same_plan_again_changes_nothing() -> None:
    for plan in (small_plan(5), small_plan(5, effective_batch=9)):
        state = feed(PlanState(), plan)
        assert advance(state, plan) == state


def test_another_plan_of_the_same_epoch_is_refused() -> None:
    with pytest.raises(PlanConflictError, match="5 was accepted before with another content"):
        feed(PlanState(), small_plan(5, "a"), small_plan(5, "b"))


def test_a_batch_that_was_planned_before_changes_nothing() -> None:
    state = feed(PlanState(), small_plan(1), 7)
    assert advance(state, 3) == state


@given(
    st.lists(st.none() | st.integers(0, 30), min_size=1, max_size=6),
    st.data(),
)
@settings(max_examples=150)
def test_delayed_repeated_and_reordered_plans_end_in_the_same_map(
    effective: list[int | None], data: st.DataObject
) -> None:
    sent = [small_plan(n + 1, f"x{n}", batch) for n, batch in enumerate(effective)]
    repeated = data.draw(st.lists(st.sampled_from(sent), max_size=4))
    arrived = data.draw(st.permutations(sent + repeated))
    state, epoch = PlanState(), 0
    for plan in arrived:
        batches = data.draw(st.integers(0, 3))
        for batch in range(state.next_batch, state.next_batch + batches):
            state = advance(state, batch)
        state = feed(state, plan)
        now_in_force = state.in_force.epoch if state.in_force else 0
        assert now_in_force >= epoch, "an epoch went backwards"
        epoch = now_in_force
    assert advance(state, max(30, state.next_batch)).in_force == sent[-1]


def test_every_refusal_is_an_error_of_ours() -> None:
    for error in (InvalidInputError, PlanTooLargeError, StalePlanError, PlanConflictError):
        assert issubclass(error, BalancedStreamError)


def test_how_moves_are_spread_travels_with_the_plan_where_it_is_not_the_default() -> None:
    plan = Plan(1, ("a",), {}, "budgeted", batch_size=3, budget_s=0.25)
    assert parse_plan(plan.to_json()) == plan
    assert "budget_s" not in Plan(1, ("a",), {}, "budgeted").to_json()
    with pytest.raises(InvalidInputError, match=r"plan\.budget_s"):
        Plan(1, ("a",), {}, "budgeted", budget_s=0.0)
