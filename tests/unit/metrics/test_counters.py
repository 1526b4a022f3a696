"""Which partitions have series of their own, and how many series there are."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_samples import (
    Samples,
    batch_of,
    collect,
    select,
    series,
    task_of,
)

from balancedstream.core.samples import BatchSample, StageSample, TaskSample
from balancedstream.errors import InvalidInputError
from balancedstream.metrics.catalogue import SERIES_PER_PARTITION
from balancedstream.metrics.exporter import Exporter


def shown_partitions(exporter: Exporter) -> set[int]:
    return {int(key[1]) for key in select(collect(exporter), "partition_busy_seconds_total")}


def test_beyond_the_limit_the_hottest_partitions_are_shown_and_the_others_counted() -> None:
    exporter = Exporter(max_partition_series=3 * SERIES_PER_PARTITION + 1)
    tasks = [task_of(p, str(p % 2), busy_s=float(p)) for p in range(10)]
    exporter.on_batch(batch_of(), tasks, {"0": 1, "1": 1})
    samples = collect(exporter)
    assert shown_partitions(exporter) == {7, 8, 9}
    assert samples[series("partitions", query="q", operator=0)] == 10
    assert samples[series("partitions_hidden", query="q", operator=0)] == 7
    busy_s = select(samples, "executor_busy_seconds_total")
    assert sum(busy_s.values()) == sum(range(10)), "the sums per executor cover all"
    assert select(samples, "operator_busy_seconds_total") == {("0", "q"): sum(range(10))}


def test_the_work_of_an_operator_is_counted_on_where_an_executor_drains_or_is_lost() -> None:
    exporter = Exporter(max_partition_series=0)
    for executors in ({"0": 1, "1": 1}, {"1": 1}, {"1": 1}):
        exporter.on_batch(batch_of(), [task_of(0, "0"), task_of(1, "1")], executors)
    samples = collect(exporter)
    assert select(samples, "executor_busy_seconds_total") == {("1", "0", "q"): 3.0}
    assert select(samples, "operator_busy_seconds_total") == {("0", "q"): 6.0}
    assert select(samples, "operator_records_total") == {("0", "q"): 60}


def test_up_to_the_limit_all_partitions_are_shown() -> None:
    exporter = Exporter(max_partition_series=10 * SERIES_PER_PARTITION)
    exporter.on_batch(batch_of(), [task_of(p) for p in range(10)], {"0": 1})
    assert shown_partitions(exporter) == set(range(10))


def test_noise_does_not_change_which_partitions_are_shown_but_a_new_hotspot_does() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    exporter = Exporter(max_partition_series=5 * SERIES_PER_PARTITION)
    exporter.on_batch(batch_of(), [task_of(p) for p in range(20)], {"0": 1})
    shown = shown_partitions(exporter)
    for _ in range(50):
        tasks = [task_of(p, busy_s=chance.uniform(0.98, 1.02)) for p in range(20)]
        exporter.on_batch(batch_of(), tasks, {"0": 1})
        assert shown_partitions(exporter) == shown
    new = min(set(range(20)) - shown)
    slow_once = [task_of(p, busy_s=2.0 if p == new else 1.0) for p in range(20)]
    exporter.on_batch(batch_of(), slow_once, {"0": 1})
    assert shown_partitions(exporter) == shown
    for _ in range(10):
        tasks = [task_of(p, busy_s=3.0 if p == new else 1.0) for p in range(20)]
        exporter.on_batch(batch_of(), tasks, {"0": 1})
    assert new in shown_partitions(exporter)


def test_a_partition_is_counted_on_while_it_is_hidden() -> None:
    exporter = Exporter(max_partition_series=SERIES_PER_PARTITION)
    for heats in ((2.0, 1.0), (2.0, 1.0), (1.0, 50.0)):
        tasks = [task_of(partition, busy_s=busy_s) for partition, busy_s in enumerate(heats)]
        exporter.on_batch(batch_of(), tasks, {"0": 1})
    busy_s = select(collect(exporter), "partition_busy_seconds_total")
    assert busy_s == {("0", "1", "q"): 52.0}


def test_hot_is_what_is_busy_per_second_not_per_batch() -> None:
    exporter = Exporter(max_partition_series=SERIES_PER_PARTITION)
    hourly = batch_of(1, "hourly", duration_s=60.0, interval_s=3_600.0)
    exporter.on_batch(hourly, [task_of(0, query="hourly", busy_s=30.0)], {"0": 1})
    steady = batch_of(1, "steady", duration_s=1.0, interval_s=1.0)
    exporter.on_batch(steady, [task_of(0, query="steady", busy_s=0.9)], {"0": 1})
    (labels,) = select(collect(exporter), "partition_busy_seconds_total")
    assert labels[-1] == "steady"


def test_a_query_that_ends_makes_room_for_hidden_partitions() -> None:
    exporter = Exporter(max_partition_series=SERIES_PER_PARTITION)
    exporter.on_batch(batch_of(0, "a"), [task_of(0, query="a", busy_s=9.0)], {"0": 1})
    exporter.on_batch(batch_of(0, "b"), [task_of(0, query="b")], {"0": 1})
    exporter.on_query_ended("a")
    assert select(collect(exporter), "partitions_hidden") == {("0", "b"): 0}


def test_no_partition_has_series_where_the_limit_is_zero() -> None:
    exporter = Exporter(max_partition_series=0)
    exporter.on_batch(batch_of(), [task_of(p) for p in range(3)], {"0": 1})
    assert not any("partition" in dict(labels) for _, labels in collect(exporter))
    assert select(collect(exporter), "partitions_hidden") == {("0", "q"): 3}


def test_a_negative_limit_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="max_partition_series: must be at least 0, not -1"):
        Exporter(max_partition_series=-1)


@st.composite
def reports(draw: st.DrawFn) -> list[tuple[BatchSample, list[TaskSample], dict[str, int]]]:
    batches = []
    for number in range(draw(st.integers(1, 6))):
        query = draw(st.sampled_from(["a", "b"]))
        executors = dict.fromkeys(draw(st.sets(st.sampled_from("0123"), min_size=1)), 1)
        seconds = st.floats(0, 100, allow_subnormal=False)
        tasks = [
            task_of(p, draw(st.sampled_from("0123")), query=query, operator=o, busy_s=draw(seconds))
            for o in range(draw(st.integers(0, 2)))
            for p in range(draw(st.integers(1, 8)))
        ]
        batches.append((batch_of(number, query, duration_s=draw(seconds)), tasks, executors))
    return batches


@settings(max_examples=60)
@given(reports(), st.integers(0, 60))
def test_the_number_of_series_keeps_to_its_documented_bound(
    batches: list[tuple[BatchSample, list[TaskSample], dict[str, int]]], limit: int
) -> None:
    exporter = Exporter(max_partition_series=limit)
    partitions: dict[tuple[str, int], set[int]] = defaultdict(set)
    counters: Samples = {}
    for batch, tasks, executors in batches:
        exporter.on_batch(batch, tasks, executors)
        for task in tasks:
            partitions[task.query, task.operator].add(task.partition)
        samples = collect(exporter)
        queries = len(select(samples, "batches_total"))
        operators = len(partitions)
        others = [labels for _, labels in samples if "partition" not in dict(labels)]
        fixed = 23 + len(executors) + 27 * queries + 14 * operators
        assert len(others) <= fixed + 5 * operators * len(executors)
        assert len(samples) - len(others) <= limit
        shown = Counter(key[::-1] for key in select(samples, "partition_state_bytes"))
        assert all(count == 1 for count in shown.values())
        assert len(select(samples, "partition_executor_info")) == len(shown)
        hidden = sum(select(samples, "partitions_hidden").values())
        assert len(shown) + hidden == sum(map(len, partitions.values()))
        if hidden:
            assert len(shown) == limit // SERIES_PER_PARTITION
        for key, value in samples.items():
            if key[0].endswith("_total"):
                assert value >= counters.get(key, 0.0), f"{key} went down"
                counters[key] = value
        for key in counters.keys() - samples.keys():
            if key[0].startswith("executor_"):
                del counters[key]  # gone for good, or begun anew


def test_the_work_of_a_drained_executor_is_counted_until_a_batch_ends_without_it() -> None:
    exporter = Exporter()

    def finish(number: int, busy_s: dict[str, float]) -> dict[str, float]:
        batch = BatchSample("q", number, 10.0 * number, 5.0, 100, 10.0)
        stage = StageSample("q", number, "source", 10.0 * number, 8, 1.0, busy_s)
        exporter.on_batch(batch, [], {"1": 1}, [stage])
        found = [sample for family in exporter.collect() for sample in family.samples]
        busy = [sample for sample in found if "stage_busy_seconds" in sample.name]
        return {sample.labels["executor"]: sample.value for sample in busy}

    assert finish(1, {"1": 4.0, "2": 3.0}) == {"1": 4.0, "2": 3.0}, "2 takes no more work"
    assert finish(2, {"1": 4.0, "2": 2.0}) == {"1": 8.0, "2": 5.0}
    assert finish(3, {"1": 5.0}) == {"1": 13.0}
