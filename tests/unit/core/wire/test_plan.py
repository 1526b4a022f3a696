"""Plans are read strictly, and the newest one wins whatever the network does."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.wire.plan import (
    Answer,
    KeyPlacement,
    Plan,
    Standing,
    StandingStep,
    Stood,
    check_order,
    parse_answer,
    parse_plan,
)
from balancedstream.core.wire.strict_json import MAX_BYTES
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


figures = st.floats(0, 1e17)
standings = st.builds(
    Standing,
    st.integers(0, 1000),
    figures,
    st.lists(
        st.builds(StandingStep, names, st.integers(1, 1000), figures, figures, st.none() | figures),
        max_size=4,
    ).map(tuple),
    st.none() | figures,
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    executors = tuple(draw(st.lists(names, unique=True, max_size=4)))
    indexes = st.integers(-1, len(executors) - 1)
    routes = draw(
        st.lists(
            st.builds(KeyPlacement, names, names, st.integers(0, 2**31 - 2)),
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
        key_placements=tuple(routes),
        effective_batch=draw(st.none() | st.integers(0, 2**53 - 1)),
        sizes=draw(st.booleans()),
        standing=draw(st.none() | standings),
    )


def small_plan(epoch: int, owner: str = "a", effective_batch: int | None = None) -> Plan:
    return Plan(epoch, (owner,), {("q", 0): (0,)}, effective_batch=effective_batch)


def allow(**fields: object) -> dict[str, object]:
    """The fields of a plan with a standing plan."""
    return {"standing": {"asked": 1, "patience_s": 60.0, "steps": [], **fields}}


def step(**fields: object) -> dict[str, object]:
    """The fields of a plan with one step of a standing plan."""
    good = {"query": "q", "executors": 2, "rows_per_s": 9.0, "waiting_rows": 99.0}
    return allow(steps=[{**good, **fields}])


STOOD = {"executors": 3, "at_s": 1.0, "reason": "rows wait"}


def changed(**fields: object) -> str:
    return json.dumps({**GOOD, **fields})


# --- another release ---

PLAN_OF_0_1_0 = (
    '{"epoch":127,"executors":["1","2"],"placement":{"counts":{"0":[0,1,-1]}},'
    '"routes":[{"key":"\\"de\\"","partition":2,"query":"counts"}],"strategy":"budgeted"}'
)
ANSWER_OF_0_1_0 = (
    '{"epoch":2,"executors":["1","2"],"last_batches":{"counts":80},"late_batches":0,'
    '"prepared_epoch":3,"refused":""}'
)


def test_an_operator_and_a_driver_of_release_0_1_0_write_and_read_the_same_plan() -> None:
    plan = parse_plan(PLAN_OF_0_1_0)
    assert plan.owners("counts", 0) == {0: "1", 1: "2"}
    assert plan.key_placements == (KeyPlacement("counts", '"de"', 2),)
    assert plan.to_json() == PLAN_OF_0_1_0


@pytest.mark.parametrize("strategy", ["fluid", "batched", "sudden", []])
def test_how_an_older_plan_counts_its_moves_is_passed_over_and_not_written_again(
    strategy: object,
) -> None:
    older = json.dumps({**json.loads(PLAN_OF_0_1_0), "strategy": strategy, "batch_size": 3})
    assert parse_plan(older) == parse_plan(PLAN_OF_0_1_0)
    assert parse_plan(older).to_json() == PLAN_OF_0_1_0


def test_every_plan_has_what_a_driver_of_release_0_1_0_requires() -> None:
    required = {"epoch", "executors", "placement", "routes", "strategy"}
    assert set(json.loads(Plan(1, ("a",), {}).to_json())) == required


def test_an_answer_of_release_0_1_0_is_read_and_what_it_says_beside_is_passed_over() -> None:
    assert parse_answer(ANSWER_OF_0_1_0) == Answer(2)


def test_what_a_driver_asked_for_by_itself_is_read_as_it_is_written() -> None:
    answer = Answer(2, stood=Stood(3, 1.0, "rows wait"))
    assert parse_answer(answer.to_json()) == answer


def test_an_operator_of_release_0_1_0_reads_an_answer_that_refuses_a_plan() -> None:
    needed = {"epoch", "executors", "last_batches", "late_batches", "refused"}
    assert json.loads(Answer(2, "too long").to_json()).keys() == needed


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
        st.text(max_size=20),
        st.booleans(),
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
    routes, placement = list(plan.key_placements), list(plan.placement.items())
    random.shuffle(routes)
    random.shuffle(placement)
    same = replace(plan, key_placements=tuple(routes), placement=dict(placement))
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
        ({"sizes": 0}, r"^plan\.sizes: must be true or false, not 0"),
        ({"standing": 0}, r"^plan\.standing: must be an object"),
        ({"standing": {"asked": 1}}, r"^plan\.standing\.patience_s: is missing"),
        (
            {"standing": {"asked": -1, "patience_s": 60.0, "steps": []}},
            r"^plan\.standing\.asked: must be an integer",
        ),
        (
            {"standing": {"asked": 1, "patience_s": 60.0, "steps": [1]}},
            r"^plan\.standing\.steps\[0\]: must be an obj",
        ),
        (
            {"standing": {"asked": 1, "patience_s": 60.0, "steps": [], "until_s": -1}},
            r"^plan\.standing\.until_s: must be a number from 0",
        ),
        (step(executors=0), r"^plan\.standing\.steps\[0\]\.executors: must be an integer from 1"),
        (step(rows_per_s=-1), r"^plan\.standing\.steps\[0\]\.rows_per_s: must be a number from 0"),
        (step(waiting_rows="9"), r"^plan\.standing\.steps\[0\]\.waiting_rows: must be a number"),
        (step(batch_rows=-1), r"^plan\.standing\.steps\[0\]\.batch_rows: must be a number from 0"),
        (step(query=""), r"^plan\.standing\.steps\[0\]\.query: must be text"),
        ({"executors": "1"}, r"^plan\.executors: must be an array"),
        ({"executors": ["1", 4]}, r"^plan\.executors\[1\]: must be text that is not empty"),
        ({"executors": ["1", ""]}, r"^plan\.executors\[1\]: must be text that is not empty"),
        ({"executors": ["1", "1"]}, r"^plan\.executors: must be ids, each once"),
        ({"placement": []}, r"^plan\.placement: must be an object"),
        ({"placement": {"q": []}}, r"^plan\.placement\.q: must be an object"),
        ({"placement": {"q": {"0": 1}}}, r"^plan\.placement\.q\.0: must be an array"),
        ({"placement": {"": {"0": [0]}}}, r"^plan\.placement: must be text"),
        ({"placement": {"q": {"x": [0]}}}, r"^plan\.placement\.q\.x: must be an operator"),
        ({"placement": {"q": {"01": [0]}}}, r"^plan\.placement\.q\.01: must be an operator id"),
        ({"placement": {"q": {"9" * 5000: []}}}, r"must be an operator id"),
        (
            {"placement": {"q": {"0": [0, 2]}}},
            r"^plan\.placement\.q\.0\[1\]: must be an integer from -1 to 1, not 2",
        ),
        ({"placement": {"q": {"0": [-2]}}}, r"^plan\.placement\.q\.0\[0\]: must be an integer"),
        ({"placement": {"q": {"0": [False]}}}, r"^plan\.placement\.q\.0\[0\]: must be an integer"),
        ({"routes": {}}, r"^plan\.routes: must be an array"),
        ({"routes": [3]}, r"^plan\.routes\[0\]: must be an object"),
        (
            {"routes": [{"query": "q", "key": "k"}]},
            r"^plan\.routes\[0\]\.partition: is missing",
        ),
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
            r"^plan\.routes\[0\]\.key: must be text",
        ),
        (
            {"routes": [{"query": "q", "key": "k", "partition": p} for p in (1, 2)]},
            r"^plan\.routes: must be at most one for each",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_plan(changed(**fields))


@pytest.mark.parametrize("name", ["epoch", "executors", "placement", "routes"])
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
    with pytest.raises(InvalidInputError, match=r"^plan: is no valid JSON"):
        parse_plan(text)


@pytest.mark.parametrize("text", ["null", "3", "[]", '"plan"'])
def test_json_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^plan: must be an object"):
        parse_plan(text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epoch": -1}, r"^answer\.epoch: must be an integer from 0"),
        ({"epoch": 0.5}, r"^answer\.epoch: must be an integer"),
        ({"refused": None}, r"^answer\.refused: must be text"),
        ({"scales": "no"}, r"^answer\.scales: must be true or false"),
        ({"stood": 3}, r"^answer\.stood: must be an object"),
        ({"stood": {"executors": 3, "at_s": 1.0}}, r"^answer\.stood\.reason: is missing"),
        ({"stood": {**STOOD, "executors": 0}}, r"^answer\.stood\.executors: must be an integer"),
        ({"stood": {**STOOD, "at_s": -1}}, r"^answer\.stood\.at_s: must be a number from 0"),
        ({"stood": {**STOOD, "reason": 1}}, r"^answer\.stood\.reason: must be text"),
    ],
    ids=str,
)
def test_a_wrong_field_of_an_answer_is_refused_by_name(
    fields: dict[str, object], message: str
) -> None:
    good = json.loads(Answer(7).to_json())
    with pytest.raises(InvalidInputError, match=message):
        parse_answer(json.dumps({**good, **fields}))


@given(
    st.text()
    | st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*GOOD, "standing", "asked", "steps", "x", "0"]), inner, max_size=6
            )
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
        key_placements=tuple(
            KeyPlacement("clicks", f"key-{number}", number) for number in range(routes)
        ),
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


# --- which plan is accepted ---


def test_a_newer_plan_is_accepted() -> None:
    check_order(small_plan(1), None)
    check_order(small_plan(6, "b"), small_plan(5, "a"))


def test_an_older_plan_is_refused_and_changes_nothing() -> None:
    with pytest.raises(StalePlanError, match="4 is older than 5"):
        check_order(small_plan(4), small_plan(5))


def test_the_same_plan_again_is_accepted() -> None:
    for plan in (small_plan(5), small_plan(5, effective_batch=9)):
        check_order(plan, plan)


def test_another_plan_of_the_same_epoch_is_refused() -> None:
    with pytest.raises(PlanConflictError, match="5 was accepted before with another content"):
        check_order(small_plan(5, "b"), small_plan(5, "a"))


@given(st.integers(1, 6), st.data())
@settings(max_examples=150)
def test_delayed_repeated_and_reordered_plans_end_with_the_newest(
    count: int, data: st.DataObject
) -> None:
    sent = [small_plan(n + 1, f"x{n}") for n in range(count)]
    repeated = data.draw(st.lists(st.sampled_from(sent), max_size=4))
    newest: Plan | None = None
    for plan in data.draw(st.permutations(sent + repeated)):
        with suppress(StalePlanError):
            check_order(plan, newest)
            assert newest is None or plan.epoch >= newest.epoch, "an epoch went backwards"
            newest = plan
    assert newest == sent[-1]


def test_every_refusal_is_an_error_of_ours() -> None:
    for error in (InvalidInputError, PlanTooLargeError, StalePlanError, PlanConflictError):
        assert issubclass(error, BalancedStreamError)


def test_how_moves_are_spread_travels_with_the_plan_where_it_is_not_the_default() -> None:
    plan = Plan(1, ("a",), {}, budget_s=0.25)
    assert parse_plan(plan.to_json()) == plan
    assert "budget_s" not in Plan(1, ("a",), {}).to_json()
    with pytest.raises(InvalidInputError, match=r"plan\.budget_s"):
        Plan(1, ("a",), {}, budget_s=0.0)
