"""What a partition costs, as measured over the last batches."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.balance.loads import OperatorLoad, measure, prune
from balancedstream.core.policy import Policy, ScalingPolicy, WindowPolicy
from balancedstream.core.samples import HiddenSample, TaskSample

BATCH_S = 10.0


def task(
    partition: int,
    batch: int,
    executor: str = "a",
    *,
    busy_s: float = 1.0,
    restore_s: float = 0.0,
    query: str = "q",
    records: int = 10,
    state_bytes: int = 100,
    moved: bool = False,
) -> TaskSample:
    """A task of a query whose batches end every 10 s."""
    return TaskSample(
        query,
        0,
        partition,
        batch,
        executor,
        busy_s,
        records,
        state_bytes,
        batch * BATCH_S,
        restore_s,
        moved,
    )


def make_policy(batches: int, window_s: float) -> Policy:
    return Policy(scaling=ScalingPolicy(window_s=window_s), window=WindowPolicy(batches))


def measure_one(
    samples: list[TaskSample], *, batches: int = 3, window_s: float = 180.0, now_s: float
) -> OperatorLoad:
    policy = make_policy(batches, window_s)
    return measure(samples, {"a": 1, "b": 1}, policy, now_s)["q", 0]


@st.composite
def histories(draw: st.DrawFn) -> list[TaskSample]:
    """Some batches of two queries, with lost and repeated samples, in any order."""
    executors = st.sampled_from(["a", "b", "gone"])
    seconds = st.floats(0, 100)
    samples = [
        replace(
            task(partition, batch, draw(executors), query=query, busy_s=draw(seconds)),
            restore_s=draw(st.sampled_from([0.0, 0.5, 200.0])),
            state_bytes=draw(st.integers(0, 1000)),
        )
        for query in ("p", "q")
        for batch in range(draw(st.integers(0, 6)))
        for partition in range(3)
        if draw(st.integers(0, 9))
    ]
    repeated = draw(st.lists(st.sampled_from(samples), max_size=3)) if samples else []
    return draw(st.permutations(samples + repeated))


policies = st.builds(make_policy, batches=st.integers(1, 4), window_s=st.floats(1, 100))


def test_a_load_is_the_mean_of_the_last_batches() -> None:
    samples = [task(0, batch, busy_s=float(batch)) for batch in range(1, 7)]
    load = measure_one(samples, now_s=61.0)
    assert load.batches == (4, 5, 6)
    assert load.busy_s == {0: 5.0}


def test_a_batch_that_finished_too_long_ago_does_not_count() -> None:
    samples = [task(0, 1, busy_s=9.0), task(0, 6, busy_s=1.0)]
    assert measure_one(samples, window_s=30.0, now_s=61.0).busy_s == {0: 1.0}


def test_a_query_that_ran_nothing_lately_has_no_load() -> None:
    assert measure([task(0, 1)], {"a": 1}, make_policy(3, 30.0), now_s=61.0) == {}


@pytest.mark.parametrize("took_s", [300.0, 600.0])
def test_a_batch_longer_than_the_window_is_measured_whole(took_s: float) -> None:
    # 32 tasks on 2 executors of 2 cores each; the last ones end just now.
    samples = [
        replace(task(p, 1, "ab"[p % 2], busy_s=took_s / 8), finished_s=took_s * (p // 4 + 1) / 8)
        for p in range(32)
    ]
    load = measure_one(samples, now_s=took_s + 1.0)
    assert set(load.busy_s) == {*range(32)}
    assert load.executor_busy_s == {"a": 2 * took_s, "b": 2 * took_s}
    assert prune(samples, Policy(), took_s + 1.0) == samples


def test_an_old_sample_that_arrives_late_changes_neither_placement_nor_state_size() -> None:
    newer, late = task(0, 2, "b", state_bytes=7), task(0, 1, "a", state_bytes=9)
    load = measure_one([newer, late], now_s=21.0)
    assert load.placement == {0: "b"}
    assert load.state_bytes == {0: 7}
    assert load.batches == (1, 2)


def test_of_a_batch_that_ran_twice_the_last_run_counts() -> None:
    first = task(0, 1, "a", busy_s=5.0)
    again = replace(first, executor="b", busy_s=3.0, finished_s=15.0)
    for samples in ([first, again], [again, first]):
        load = measure_one(samples, now_s=21.0)
        assert load.busy_s == {0: 3.0}
        assert load.placement == {0: "b"}


def test_a_query_begun_anew_is_measured_by_its_new_batches() -> None:
    old = [task(0, batch, busy_s=9.0) for batch in (7, 8, 9)]
    anew = [replace(task(0, batch, busy_s=1.0), finished_s=100.0 + batch) for batch in (0, 1, 2)]
    load = measure_one([*anew, *old], now_s=103.0)
    assert load.batches == (0, 1, 2)
    assert load.busy_s == {0: 1.0}


def test_loading_state_is_no_load_even_where_it_took_longer_than_the_task_says() -> None:
    samples = [task(0, 1, busy_s=5.0, restore_s=4.0), task(1, 1, busy_s=1.0, restore_s=1.5)]
    assert measure_one(samples, now_s=11.0).busy_s == {0: 1.0, 1: 0.0}


def test_the_first_task_on_another_executor_is_no_load_because_its_jvm_may_be_cold() -> None:
    samples = [task(0, 1, "a"), task(0, 2, "b", busy_s=9.0, moved=True), task(0, 3, "b")]
    for batches in (2, 3):
        load = measure_one(samples, batches=batches, now_s=31.0)
        assert load.busy_s == {0: 1.0}
        assert load.placement == {0: "b"}
    assert measure_one(samples[:2], batches=1, now_s=21.0).busy_s == {0: 9.0}, "all there is"


def test_a_partition_that_was_not_reported_in_a_batch_is_not_taken_for_idle() -> None:
    samples = [task(0, 1), task(0, 2), task(1, 2, busy_s=4.0)]
    assert measure_one(samples, now_s=21.0).busy_s == {0: 1.0, 1: 4.0}


def test_partitions_of_a_vanished_executor_keep_their_load_and_are_in_no_sum() -> None:
    load = measure_one([task(0, 1, "gone", busy_s=4.0), task(1, 1, "a")], now_s=11.0)
    assert load.busy_s == {0: 4.0, 1: 1.0}
    assert load.placement == {0: "gone", 1: "a"}
    assert load.executor_busy_s == {"a": 1.0, "b": 0.0}


def test_queries_are_measured_over_their_own_batches() -> None:
    fast = [task(0, batch, query="fast", busy_s=2.0) for batch in range(10)]
    slow = [task(0, batch, query="slow") for batch in (0, 9)]
    loads = measure([*fast, *slow], {"a": 1}, make_policy(2, 180.0), now_s=91.0)
    assert loads["fast", 0].batches == (8, 9)
    assert loads["slow", 0].batches == (0, 9)


@given(histories(), policies)
@settings(max_examples=60)
def test_no_load_is_lost_between_partitions_and_executors(
    samples: list[TaskSample], policy: Policy
) -> None:
    for load in measure(samples, {"a": 1, "b": 1}, policy, now_s=60.0).values():
        orphaned = sum(load.busy_s[p] for p, owner in load.placement.items() if owner == "gone")
        total = sum(load.executor_busy_s.values()) + orphaned
        assert math.isclose(total, sum(load.busy_s.values()), abs_tol=1e-9)
        assert all(busy_s >= 0 for busy_s in load.busy_s.values())
        partitions = {frozenset(values) for values in (load.busy_s, load.records, load.placement)}
        assert partitions == {frozenset(load.state_bytes)}
        assert 1 <= len(load.batches) <= policy.window.batches


@given(histories(), policies, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_neither_order_nor_repetition_changes_a_load(
    samples: list[TaskSample], policy: Policy, chance: random.Random
) -> None:
    shuffled = samples + samples[: len(samples) // 2]
    chance.shuffle(shuffled)
    executors = {"a": 1, "b": 1}
    assert measure(shuffled, executors, policy, 60.0) == measure(samples, executors, policy, 60.0)


@given(histories(), policies, st.integers(0, 6), st.floats(0, 60))
@settings(max_examples=60)
def test_what_is_pruned_is_missed_by_no_later_window(
    samples: list[TaskSample], policy: Policy, split: int, later_s: float
) -> None:
    executors = {"a": 1, "b": 1}
    early = [sample for sample in samples if sample.batch < split]
    rest = [sample for sample in samples if sample.batch >= split]
    kept = prune(early, policy, now_s=split * BATCH_S)
    now_s = split * BATCH_S + later_s
    assert measure(kept + rest, executors, policy, now_s) == measure(
        samples, executors, policy, now_s
    )


def test_pruning_keeps_no_more_than_the_window() -> None:
    samples = [task(0, batch) for batch in range(100)]
    assert [kept.batch for kept in prune(samples, Policy(), 1000.0)] == [97, 98, 99]


@pytest.mark.parametrize("now_s", [0.0, 1e9])
def test_without_samples_there_are_no_loads(now_s: float) -> None:
    assert measure([], {"a": 1}, Policy(), now_s) == {}


def hide(tasks: list[TaskSample], executors: tuple[str, ...] = ("a", "b")) -> list[HiddenSample]:
    """The sums of these tasks, with zeros for executors that ran none of them in a batch."""
    done_s: dict[tuple[int, str], list[TaskSample]] = {
        (n, e): [] for n in {t.batch for t in tasks} for e in executors
    }
    for hidden in tasks:
        done_s[hidden.batch, hidden.executor].append(hidden)
    return [
        HiddenSample(
            "q",
            0,
            batch,
            executor,
            sum(t.work_s for t in those),
            sum(t.state_bytes for t in those),
            batch * BATCH_S,
        )
        for (batch, executor), those in done_s.items()
    ]


def test_hidden_work_is_the_load_of_its_executor() -> None:
    shown = [task(0, batch, "a") for batch in (1, 2)]
    rest = [task(p, batch, "ab"[p % 2], busy_s=0.5) for p in range(1, 6) for batch in (1, 2)]
    load = measure(shown, {"a": 1, "b": 1}, Policy(), 21.0, hide(rest))["q", 0]
    assert load.busy_s == {0: 1.0}
    assert load.hidden_busy_s == {"a": 1.0, "b": 1.5}
    assert load.executor_busy_s == {"a": 2.0, "b": 1.5}
    assert load.hidden_state_bytes == {"a": 200, "b": 300}


def test_an_operator_all_of_whose_partitions_are_hidden_has_a_load() -> None:
    rest = hide([task(0, 1, "a", busy_s=2.0)])
    load = measure([], {"a": 1, "b": 1}, Policy(), 11.0, rest)["q", 0]
    assert (load.batches, load.busy_s, load.placement) == ((1,), {}, {})
    assert load.executor_busy_s == load.hidden_busy_s == {"a": 2.0, "b": 0.0}


def test_what_hidden_partitions_did_on_an_executor_that_is_gone_is_shared_out() -> None:
    rest = hide([task(0, 1, "a"), task(1, 1, "b"), task(2, 1, "gone")], ("a", "b", "gone"))
    load = measure([], {"a": 1, "b": 1}, Policy(), 11.0, rest)["q", 0]
    assert load.hidden_busy_s == {"a": 1.5, "b": 1.5}
    assert load.hidden_state_bytes == {"a": 100, "b": 100}


@given(
    st.lists(st.sampled_from([0.25, 1.0, 2.0]), min_size=1, max_size=8),
    st.lists(st.sets(st.integers(0, 7)), min_size=3, max_size=3),
)
@settings(max_examples=100)
def test_steady_work_counts_once_whichever_partitions_are_shown_when(
    costs: list[float], shown: list[set[int]]
) -> None:
    tasks = [
        task(p, batch, "ab"[p % 2], busy_s=cost)
        for batch in (1, 2, 3)
        for p, cost in enumerate(costs)
    ]
    seen = [t for t in tasks if t.partition in shown[t.batch - 1]]
    rest = hide([t for t in tasks if t not in seen])
    load = measure(seen, {"a": 1, "b": 1}, Policy(), 31.0, rest)["q", 0]
    for number, executor in enumerate("ab"):
        assert load.executor_busy_s[executor] == pytest.approx(sum(costs[number::2]))
    assert set(load.busy_s) == shown[2] & set(range(len(costs))) or not rest


@given(st.lists(st.sets(st.integers(0, 5)), min_size=3, max_size=3), st.integers(0, 1000))
@settings(max_examples=100)
def test_no_work_is_lost_where_it_varies_and_partitions_move_and_become_hidden(
    shown: list[set[int]], seed: int
) -> None:
    chance = random.Random(seed)
    tasks = [
        task(p, batch, chance.choice(["a", "b", "gone"]), busy_s=chance.uniform(0, 3))
        for batch in (1, 2, 3)
        for p in range(40)
    ]
    seen = [t for t in tasks if t.partition in shown[t.batch - 1]]
    rest = hide([t for t in tasks if t not in seen], ("a", "b", "gone"))
    load = measure(seen, {"a": 1, "b": 1}, Policy(), 31.0, rest)["q", 0]
    total = sum(load.busy_s.values()) + sum(load.hidden_busy_s.values())
    assert total == pytest.approx(sum(t.work_s for t in tasks) / 3)


def spread(batch: int, records: dict[int, int]) -> list[TaskSample]:
    """A batch of a query that takes a tenth of a second for each row."""
    return [task(p, batch, records=rows, busy_s=rows / 10) for p, rows in records.items()]


def test_batches_before_the_rows_went_to_other_partitions_do_not_count() -> None:
    even, skewed = {0: 100, 1: 100, 2: 100}, {0: 10, 1: 40, 2: 250}
    samples = spread(5, even) + spread(6, even) + spread(7, skewed)
    load = measure_one(samples, now_s=70.0)
    assert load.batches == (7,)
    assert load.busy_s == {0: 1.0, 1: 4.0, 2: 25.0}
    samples = spread(5, even) + spread(6, skewed) + spread(7, skewed)
    assert measure_one(samples, now_s=70.0).batches == (6, 7)


def test_a_partition_without_a_sample_since_the_rows_shifted_keeps_its_last_load() -> None:
    even, skewed = {0: 100, 1: 100, 2: 100}, {1: 10, 2: 250}
    load = measure_one(spread(5, even) + spread(6, even) + spread(7, skewed), now_s=70.0)
    assert load.busy_s == {0: 10.0, 1: 1.0, 2: 25.0}


def test_all_batches_count_if_chance_explains_where_the_rows_went() -> None:
    seen = random.Random(7)
    samples = []
    for batch in (5, 6, 7):
        drawn = [seen.randrange(32) for _ in range(100)]
        samples += spread(batch, {partition: drawn.count(partition) for partition in range(32)})
    assert measure_one(samples, now_s=70.0).batches == (5, 6, 7)


def test_all_batches_count_if_rows_go_elsewhere_in_each() -> None:
    samples = spread(5, {0: 800, 1: 100, 2: 100}) + spread(6, {0: 100, 1: 800, 2: 100})
    samples += spread(7, {0: 100, 1: 100, 2: 800})
    load = measure_one(samples, now_s=70.0)
    assert load.batches == (5, 6, 7)
    assert load.busy_s[0] == pytest.approx(100 / 3)


def test_a_batch_of_more_rows_is_no_shift() -> None:
    samples = spread(5, {0: 100, 1: 50}) + spread(6, {0: 100, 1: 50}) + spread(7, {0: 800, 1: 400})
    assert measure_one(samples, now_s=70.0).batches == (5, 6, 7)


def test_a_batch_without_rows_is_no_shift() -> None:
    samples = spread(5, {0: 100, 1: 50}) + spread(6, {0: 0, 1: 0}) + spread(7, {0: 100, 1: 50})
    assert measure_one(samples, now_s=70.0).batches == (5, 6, 7)


def test_two_batches_cannot_show_a_shift() -> None:
    samples = spread(6, {0: 100, 1: 100}) + spread(7, {0: 10, 1: 190})
    assert measure_one(samples, now_s=70.0).batches == (6, 7)


def test_all_batches_count_where_partitions_are_hidden() -> None:
    even, skewed = {0: 100, 1: 100}, {0: 10, 1: 190}
    samples = spread(5, even) + spread(6, even) + spread(7, skewed)
    rest = [HiddenSample("q", 0, batch, "a", 6.0, 5, batch * BATCH_S) for batch in (5, 6, 7)]
    load = measure(samples, {"a": 1}, Policy(), 70.0, rest)["q", 0]
    assert load.batches == (5, 6, 7)
