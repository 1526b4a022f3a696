"""Keys change hands between two batches and lose nothing, whatever is lost on the way.

The properties run the real processor on a query in memory (`simulated`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import NO_REPORT, PARTITIONS, Luck, Query, find_partition

from balancedstream.core.keys.epochs import (
    HANDOFF_STRATEGIES,
    Epoch,
    HandoffStrategy,
    Wish,
    parse_wish,
)

KEYS = ("a", "b", "c", "d", "e")
MOVED = Wish({'"a"': 3, '"b"': 1})


def quote(key: str) -> str:
    return f'"{key}"'


texts = st.sampled_from([quote(key) for key in KEYS])
routes = st.dictionaries(texts, st.integers(0, 4))
batches_of_keys = st.lists(st.sampled_from(KEYS), max_size=6)
parts = st.frozensets(st.integers(0, PARTITIONS - 1))
nobody: st.SearchStrategy[frozenset[int]] = st.just(frozenset())
seldom = st.integers(0, 7).map(lambda number: number == 7)
lucks = st.builds(Luck, st.integers(0, 2), nobody | parts, nobody | parts, st.booleans(), seldom)
strategies: st.SearchStrategy[HandoffStrategy] = st.sampled_from(["eager", "lazy", "hybrid"])
soon = st.builds(Wish, routes, strategies, st.integers(1, 3))


@dataclass(frozen=True)
class Step:
    """A batch.

    Attributes:
        change: the wish that is written before it, as what it is and how far away it takes effect;
            None for the one that is there.
        keys: one record each.
        luck: of the batch.
        restarts: whether the driver is started anew before it, and so forgets wish and reports.
    """

    change: tuple[Wish | None, int | None] | None
    keys: list[str]
    luck: Luck
    restarts: bool


changes = st.none() | st.tuples(st.none() | soon, st.none() | st.integers(-2, 4))
steps = st.lists(st.builds(Step, changes, batches_of_keys, lucks, seldom), max_size=12)


def run(query: Query, steps: list[Step]) -> Wish | None:
    """Runs a query for some batches, which check themselves; returns the wish at their end."""
    wish: Wish | None = None
    for step in steps:
        if step.restarts:
            query.lose_reports()
            wish = None
        if step.change is not None:
            wish, away = step.change
            if wish is not None and away is not None:
                wish = replace(wish, effective_batch=query.batch + away)
        query.advance(wish, step.keys, step.luck)
    return wish


def find_place(epoch: Epoch, wish: Wish) -> dict[str, tuple[int, int]]:
    """Each key with the route that it has and the one that it shall have."""
    keys = {*epoch.routes, *wish.routes}
    return {key: (epoch.route_of(key), wish.routes.get(key, 0)) for key in keys}


def find_pending(epoch: Epoch, wish: Wish) -> set[str]:
    """The keys that are elsewhere than they shall be."""
    return {key for key, (here, there) in find_place(epoch, wish).items() if here != there}


@settings(max_examples=100)
@given(steps)
def test_every_key_has_all_its_state_at_its_one_owner_after_every_batch(steps: list[Step]) -> None:
    query = Query()
    run(query, steps)
    assert sum(query.records.values()) == sum(len(step.keys) for step in steps)


@pytest.mark.parametrize("strategy", HANDOFF_STRATEGIES)
def test_a_key_whose_rows_come_in_several_calls_is_taken_in_once(
    strategy: HandoffStrategy,
) -> None:
    query = Query(one_by_one=True)
    for _ in range(4):
        query.advance(replace(MOVED, strategy=strategy), ["a", "a", "b"])


def test_a_key_whose_rows_come_in_several_calls_is_counted_where_it_is() -> None:
    query = Query(one_by_one=True)
    for _ in range(4):
        query.advance(MOVED, ["a", "a", "b"], NO_REPORT)
    assert query.epoch.asked == ('"a"', '"b"')


@settings(max_examples=30)
@given(steps, soon)
def test_a_batch_that_is_planned_twice_is_planned_alike(steps: list[Step], wish: Wish) -> None:
    query = Query()
    run(query, steps)
    assert query.plan(wish) == query.plan(wish)
    assert query.plan(wish) == query.plan(parse_wish(wish.to_json()))


@settings(max_examples=30)
@given(steps, routes, st.lists(batches_of_keys, min_size=2, max_size=2))
def test_eager_handoff_takes_one_batch_after_the_one_that_asks(
    steps: list[Step], routes: dict[str, int], keys: list[list[str]]
) -> None:
    query = Query()
    run(query, steps)
    wish = Wish(routes)
    for batch in keys:
        query.advance(wish, batch)
    assert not find_pending(query.epoch, wish)


@settings(max_examples=30)
@given(steps, routes, st.integers(1, 3), st.data())
def test_hybrid_handoff_brings_a_share_of_the_keys_in_each_batch(
    steps: list[Step], routes: dict[str, int], share: int, data: st.DataObject
) -> None:
    query = Query()
    run(query, steps)
    wish = Wish(routes, "hybrid", share)
    for _ in range(1 + math.ceil(len(find_pending(query.epoch, wish)) / share)):
        query.advance(wish, data.draw(batches_of_keys))
    assert not find_pending(query.epoch, wish)


@settings(max_examples=30)
@given(steps, routes, st.lists(batches_of_keys, min_size=1, max_size=5))
def test_lazy_handoff_brings_the_keys_that_had_a_record_and_no_others(
    steps: list[Step], routes: dict[str, int], keys: list[list[str]]
) -> None:
    query = Query()
    run(query, steps)
    query.lose_reports()
    wish = Wish(routes, "lazy")
    places = find_place(query.epoch, wish)
    touched: set[str] = set()
    for batch in keys:
        ran = query.advance(wish, batch)
        for key, (old, new) in places.items():
            assert query.epoch.route_of(key) == (new if key in touched and ran else old)
            if key in touched and ran:
                places[key] = (new, new)
        touched = {quote(key) for key in batch} | (touched if not ran else set())


@settings(max_examples=30)
@given(steps, soon, st.integers(0, 5), st.data())
def test_no_key_is_at_its_new_place_before_the_effective_batch(
    steps: list[Step], wish: Wish, away: int, data: st.DataObject
) -> None:
    query = Query()
    run(query, steps)
    wish = replace(wish, effective_batch=query.batch + away)
    before = query.epoch.routes
    for _ in range(away):
        query.advance(wish, [*data.draw(batches_of_keys), "a"], data.draw(lucks))
        assert query.epoch.routes == before


@settings(max_examples=30)
@given(steps, routes, st.integers(1, 5), st.data())
def test_with_eager_handoff_all_keys_are_at_their_new_place_in_the_effective_batch(
    steps: list[Step], routes: dict[str, int], away: int, data: st.DataObject
) -> None:
    query = Query()
    run(query, steps)
    wish = Wish(routes, effective_batch=query.batch + away)
    for _ in range(away + 1):
        query.advance(wish, [*data.draw(batches_of_keys), "a"])
    assert query.batch == wish.effective_batch + 1  # type: ignore[operator]
    assert not find_pending(query.epoch, wish)


@settings(max_examples=30)
@given(steps, st.none() | soon)
def test_a_stream_without_data_comes_to_rest(steps: list[Step], wish: Wish | None) -> None:
    query = Query()
    run(query, steps)
    pending = find_pending(query.epoch, wish) if wish else set()
    idle_after = 2 + len(pending)
    ran = [query.advance(wish) for _ in range(idle_after + 1)]
    assert not ran[-1]
    assert query.plan(wish) is query.epoch
    if wish and wish.strategy != "lazy":
        assert not find_pending(query.epoch, wish)


@settings(max_examples=30)
@given(steps)
def test_keys_stay_where_they_are_once_the_driver_has_forgotten_the_wish(
    steps: list[Step],
) -> None:
    query = Query()
    run(query, steps)
    query.lose_reports()
    before = query.epoch.routes
    query.advance(None, KEYS)
    query.advance(None, KEYS)
    assert query.epoch.routes == before
    assert query.plan(None) is query.epoch


@settings(max_examples=30)
@given(steps, strategies)
def test_an_empty_wish_sends_every_key_home(steps: list[Step], strategy: HandoffStrategy) -> None:
    query = Query()
    run(query, steps)
    wish = Wish({}, strategy)
    for _ in range(2 + len(query.epoch.routes)):
        query.advance(wish, KEYS)
    assert query.epoch.routes == {}


def test_a_key_whose_report_is_lost_stays_and_is_asked_again() -> None:
    query = Query()
    query.advance(MOVED, KEYS)
    query.lose_reports()
    query.advance(MOVED, KEYS)
    assert query.epoch.routes == {}
    assert query.epoch.asked == ('"a"', '"b"')
    query.advance(MOVED, KEYS)
    assert query.epoch.routes == MOVED.routes


@pytest.mark.parametrize("first", [False, True])
def test_a_partition_that_reported_two_files_is_asked_again(first: bool) -> None:
    query = Query()
    query.advance(MOVED, KEYS, Luck(doubled=frozenset(range(PARTITIONS)), first=first))
    query.advance(MOVED, KEYS)
    assert query.epoch.routes == {}
    query.advance(MOVED, KEYS)
    assert query.epoch.routes == MOVED.routes


def test_a_zombie_that_writes_its_state_down_last_is_not_believed() -> None:
    query = Query()
    for wish in (MOVED, Wish()):
        query.advance(wish, KEYS, Luck(zombie=True))
        query.advance(wish, KEYS, Luck(zombie=True))
        assert query.epoch.routes == wish.routes
    assert query.records == dict.fromkeys(KEYS, 4)


def test_state_that_was_written_down_for_one_place_may_go_to_another() -> None:
    query = Query()
    query.advance(Wish({'"a"': 3}), KEYS)
    query.advance(Wish({'"a"': 1}), KEYS)
    assert query.epoch.routes == {'"a"': 1}


def test_a_key_that_is_no_longer_to_go_stays_though_its_state_was_written_down() -> None:
    query = Query()
    query.advance(MOVED, KEYS)
    query.advance(Wish(), KEYS)
    assert (query.epoch.routes, query.epoch.asked) == ({}, ())


def test_a_key_without_state_moves_too() -> None:
    query = Query()
    query.advance(MOVED)
    query.advance(MOVED)
    assert query.epoch.routes == MOVED.routes
    assert {arrival.piece.state_bytes for arrival in query.epoch.arrivals.values()} == {0}


def test_lazy_handoff_plans_no_batch_while_no_data_comes() -> None:
    query = Query()
    wish = replace(MOVED, strategy="lazy")
    assert query.advance(wish)
    assert not query.advance(wish)
    assert query.epoch.touched == ('"a"', '"b"')


def test_what_lies_ahead_of_the_effective_batch_plans_no_batch() -> None:
    assert not Query().advance(replace(MOVED, effective_batch=9))


def test_of_keys_that_rows_touch_each_task_hands_over_a_share() -> None:
    query = Query()
    wish = Wish({quote(key): 4 for key in KEYS}, "hybrid", share=1)
    query.advance(wish, KEYS)
    query.advance(wish, KEYS)
    left = [find_partition((0, key)) for key in KEYS if quote(key) in query.epoch.arrivals]
    assert sorted(left) == sorted({find_partition((0, key)) for key in KEYS})
    assert len(left) > 1


def test_a_run_of_losses_only_delays_the_handoff() -> None:
    query = Query()
    for _ in range(5):
        query.advance(MOVED, KEYS, NO_REPORT)
    assert query.epoch.routes == {}
    query.advance(MOVED, KEYS)
    query.advance(MOVED, KEYS)
    assert query.epoch.routes == MOVED.routes
