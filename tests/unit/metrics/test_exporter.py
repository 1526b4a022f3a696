from __future__ import annotations

import http.client
import os
import random
import re
import shutil
import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from balancedstream.core.keys import KeyNaming
from balancedstream.core.observations import BatchSample, KeySample, ShuffleRecord, TaskSample
from balancedstream.core.restoring import RestoreCost
from balancedstream.errors import BalancedStreamError, InvalidInputError, PortInUseError
from balancedstream.metrics.catalogue import BATCH_DURATION_BUCKETS_S, SERIES_PER_PARTITION
from balancedstream.metrics.exporter import MAX_PARTITION_SERIES, Exporter

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

Labels = frozenset[tuple[str, str]]
Samples = dict[tuple[str, Labels], float]


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    exporter = Exporter()
    exporter.start(0)
    yield exporter
    exporter.close()


def fetch(exporter: Exporter, path: str = "/metrics", accept: str = "text/plain") -> str:
    assert exporter.port is not None
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Accept": accept})
        response = connection.getresponse()
        assert response.status == 200
        return response.read().decode()
    finally:
        connection.close()


def read_samples(page: str, parse: Callable[[str], Any] = parse_text) -> Samples:
    samples: Samples = {}
    for family in parse(page):
        for sample in family.samples:
            key = sample.name.removeprefix("balancedstream_"), frozenset(sample.labels.items())
            assert key not in samples, f"{key} is there twice"
            samples[key] = sample.value
    return samples


def scrape(exporter: Exporter) -> Samples:
    return read_samples(fetch(exporter))


def collect(exporter: Exporter) -> Samples:
    """The same without HTTP, for tests that need many."""
    return {
        (
            sample.name.removeprefix("balancedstream_"),
            frozenset(sample.labels.items()),
        ): sample.value
        for family in exporter.collect()
        for sample in family.samples
    }


def select(samples: Samples, name: str) -> dict[tuple[str, ...], float]:
    """Values of one metric by its label values, in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(labels)): value
        for (found, labels), value in samples.items()
        if found == name
    }


def series(name: str, **labels: object) -> tuple[str, Labels]:
    return name, frozenset((label, str(value)) for label, value in labels.items())


def batch_of(
    number: int = 0,
    query: str = "q",
    *,
    duration_s: float = 2.0,
    input_rows: int = 100,
    interval_s: float | None = None,
    backlog_rows: float | None = None,
) -> BatchSample:
    finished_s = 1_000.0 + number
    return BatchSample(query, number, finished_s, duration_s, input_rows, interval_s, backlog_rows)


def task_of(
    partition: int,
    executor: str = "0",
    *,
    query: str = "q",
    operator: int = 0,
    busy_s: float = 1.0,
    records: int = 10,
    state_bytes: int = 1_000,
    restore_s: float = 0.0,
) -> TaskSample:
    return TaskSample(
        query, operator, partition, 0, executor, busy_s, records, state_bytes, 1_000.0, restore_s
    )


@dataclass
class Story:
    """A run told to an exporter, and kept to be added up again."""

    exporter: Exporter
    batches: list[tuple[BatchSample, list[TaskSample]]] = field(default_factory=list)
    balances: list[tuple[str, int, float, float, int, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    scales: list[tuple[int, int, int]] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    moves_of_ended: int = 0
    executors: dict[str, int] = field(default_factory=dict)
    executors_seen_after: list[dict[str, int]] = field(default_factory=list)

    def finish_batch(
        self, batch: BatchSample, tasks: list[TaskSample], executors: dict[str, int]
    ) -> None:
        self.batches.append((batch, tasks))
        self.executors = dict(executors)
        self.exporter.on_batch(batch, tasks, executors)

    def balance(
        self, query: str, operator: int, imbalance: float, bound: float, moves: int, kind: str
    ) -> None:
        self.balances.append((query, operator, imbalance, bound, moves, kind))
        self.exporter.on_imbalance(query, operator, imbalance, bound)
        self.exporter.on_decision(query, operator, kind)
        if kind == "move":
            for _ in range(moves):
                self.exporter.on_move()

    def fail_task(self, query: str) -> None:
        self.failures.append(query)
        self.exporter.on_task_failure(query)

    def settle(self, count: int) -> None:
        self.settled.append(count)
        for _ in range(count):
            self.exporter.on_move_settled()

    def scale(self, before: int, after: int, wanted: int) -> None:
        self.scales.append((before, after, wanted))
        self.exporter.on_scale(before, after, wanted)

    def begin_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.exporter.on_epoch(epoch)

    def end_query(self, query: str) -> None:
        self.moves_of_ended += sum(b[4] for b in self.balances if b[0] == query and b[5] == "move")
        self.batches = [entry for entry in self.batches if entry[0].query != query]
        self.balances = [entry for entry in self.balances if entry[0] != query]
        self.failures = [name for name in self.failures if name != query]
        self.exporter.on_query_ended(query)

    def samples(self) -> Samples:
        """What a scrape must show, added up from the beginning."""
        expected: Samples = {}
        moves = self.moves_of_ended + sum(b[4] for b in self.balances if b[5] == "move")
        expected[series("moves_total")] = moves
        expected[series("moves_settled_total")] = sum(self.settled)
        expected[series("key_moves_total")] = expected[series("key_moves_settled_total")] = 0
        expected[series("move_fixed_seconds")] = RestoreCost().fixed_s
        expected[series("move_bytes_per_second")] = RestoreCost().bytes_per_s
        expected[series("move_key_seconds")] = RestoreCost().key_s
        expected[series("plan_epoch")] = self.epochs[-1] if self.epochs else 0
        expected[series("executors")] = len(self.executors)
        for direction, sign in (("out", 1), ("in", -1)):
            expected[series("scale_actions_total", direction=direction)] = sum(
                (wanted - before) * sign > 0 for before, _, wanted in self.scales
            )
        if self.scales:
            expected[series("executors_wanted")] = self.scales[-1][2]
        for executor, cores in self.executors.items():
            expected[series("executor_cores", executor=executor)] = cores
        for query in {batch.query for batch, _ in self.batches}:
            expected |= self._query_samples(query)
        return expected

    def _query_samples(self, query: str) -> Samples:
        batches = [batch for batch, _ in self.batches if batch.query == query]
        durations = [batch.duration_s for batch in batches]
        last = batches[-1]
        values = {
            "batches_total": len(batches),
            "batch_duration_seconds_count": len(batches),
            "batch_duration_seconds_sum": sum(durations),
            "last_batch_id": last.batch,
            "last_batch_timestamp_seconds": last.finished_s,
            "last_batch_duration_seconds": last.duration_s,
            "input_rows_total": sum(batch.input_rows for batch in batches),
            "processed_rows_per_second": last.input_rows / last.duration_s,
            "task_failures_total": self.failures.count(query),
        }
        if last.interval_s is not None:
            values["input_rows_per_second"] = last.input_rows / last.interval_s
        if last.backlog_rows is not None:
            values["backlog_rows"] = last.backlog_rows
        expected = {series(name, query=query): float(value) for name, value in values.items()}
        for bound in (*BATCH_DURATION_BUCKETS_S, float("inf")):
            le = "+Inf" if bound == float("inf") else str(bound)
            below = sum(duration <= bound for duration in durations)
            expected[series("batch_duration_seconds_bucket", query=query, le=le)] = below
        tasks = [task for batch, tasks in self.batches if batch.query == query for task in tasks]
        for operator in {task.operator for task in tasks}:
            mine = [task for task in tasks if task.operator == operator]
            expected |= self._operator_samples(query, operator, mine)
        return expected

    def _operator_samples(self, query: str, operator: int, tasks: list[TaskSample]) -> Samples:
        labels = {"query": query, "operator": operator}
        expected: Samples = {}
        balances = [entry for entry in self.balances if entry[:2] == (query, operator)]
        for kind in ("move", "scale", "unsplittable", "hold", "none"):
            count = sum(entry[5] == kind for entry in balances)
            expected[series("decisions_total", **labels, kind=kind)] = count
        expected[series("moves_under_way", **labels)] = 0
        if balances:
            expected[series("imbalance_ratio", **labels)] = balances[-1][2]
            expected[series("imbalance_bound_ratio", **labels)] = balances[-1][3]
        last = {task.partition: task for task in tasks}
        expected[series("partitions", **labels)] = len(last)
        expected[series("partitions_hidden", **labels)] = 0
        for partition, newest in last.items():
            one = labels | {"partition": partition}
            mine = [task for task in tasks if task.partition == partition]
            expected |= work_samples("partition", mine, one)
            expected[series("partition_state_bytes", **one)] = newest.state_bytes
            info = series("partition_executor_info", **one, executor=newest.executor)
            expected[info] = 1
        for executor in self.executors:
            one = labels | {"executor": executor}
            mine = [task for task in tasks if task.executor == executor]
            here = [task for task in last.values() if task.executor == executor]
            expected |= work_samples("executor", mine, one)
            expected[series("executor_state_bytes", **one)] = sum(t.state_bytes for t in here)
            expected[series("executor_partitions", **one)] = len(here)
        return expected


def work_samples(of: str, tasks: list[TaskSample], labels: Mapping[str, object]) -> Samples:
    return {
        series(f"{of}_busy_seconds_total", **labels): sum(task.busy_s for task in tasks),
        series(f"{of}_state_restore_seconds_total", **labels): sum(
            task.restore_s for task in tasks
        ),
        series(f"{of}_records_total", **labels): sum(task.records for task in tasks),
    }


def without_build_info(samples: Samples) -> Samples:
    return {key: value for key, value in samples.items() if key[0] != "build_info"}


OPERATORS = {"flights": {0: 12, 2: 6}, "clicks": {0: 8}, "stateless": {}}


def tell_batches(story: Story, chance: random.Random, count: int) -> Iterator[int]:
    """Tells of batches while partitions move, executors come and go, and a query begins anew."""
    executors = {"0": 1, "1": 2, "2": 1}
    placement: dict[tuple[str, int, int], str] = {}
    numbers: Counter[str] = Counter()
    epoch = 0
    for step in range(count):
        if chance.random() < 0.2:
            before = len(executors)
            if before > 2 and chance.random() < 0.5:
                del executors[chance.choice(sorted(executors))]
            else:
                executors[str(step + 10)] = chance.choice([1, 2])
            story.scale(before, before, len(executors))
        query = chance.choice(sorted(OPERATORS))
        tasks = []
        for operator, partitions in OPERATORS[query].items():
            for partition in range(partitions):
                key = query, operator, partition
                moves = chance.random() < 0.2
                if moves or placement.get(key) not in executors:
                    placement[key] = chance.choice(sorted(executors))
                tasks.append(
                    task_of(
                        partition,
                        placement[key],
                        query=query,
                        operator=operator,
                        busy_s=chance.expovariate(1.0),
                        records=chance.randrange(1_000),
                        state_bytes=chance.randrange(1_000_000),
                        restore_s=chance.random() * 0.1 if moves else 0.0,
                    )
                )
        batch = batch_of(
            numbers[query],
            query,
            duration_s=chance.choice([0.05, 0.5, 3.217, 12.0, 400.0]),
            input_rows=chance.randrange(10_000),
            interval_s=chance.uniform(0.1, 20.0) if numbers[query] else None,
            backlog_rows=chance.choice([None, 0.0, 1_234.0]),
        )
        numbers[query] += 1
        story.finish_batch(batch, tasks, executors)
        for operator in OPERATORS[query]:
            kind = chance.choice(["move", "hold", "none", "unsplittable"])
            moves_decided = chance.randrange(1, 5) if kind in {"move", "hold"} else 0
            story.balance(query, operator, chance.uniform(1, 3), 1.0, moves_decided, kind)
            if kind == "move":
                epoch += 1
                story.begin_epoch(epoch)
                story.settle(chance.randrange(moves_decided + 1))
        if chance.random() < 0.1:
            story.fail_task(query)
        if chance.random() < 0.05:
            story.end_query(query)
            numbers[query] = 0
        yield step


def test_after_each_of_fifty_batches_with_moves_a_scrape_equals_a_recomputation(
    exporter: Exporter,
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    story = Story(exporter)
    for _ in tell_batches(story, random.Random(seed), 50):
        found = without_build_info(scrape(exporter))
        assert found == pytest.approx(story.samples(), rel=1e-9)


def test_openmetrics_which_prometheus_asks_for_has_the_same_values(exporter: Exporter) -> None:
    story = Story(exporter)
    for _ in tell_batches(story, random.Random(7), 20):
        pass
    found = read_samples(fetch(exporter, accept=OPENMETRICS), parse_openmetrics)
    assert without_build_info(found) == pytest.approx(story.samples(), rel=1e-9)


def test_a_scrape_in_the_middle_of_batches_sees_whole_batches_only(exporter: Exporter) -> None:
    batches, partitions = 400, 24

    def feed() -> None:
        for number in range(batches):
            executors = {str(number % 3): 1, "7": 1}
            tasks = [
                task_of(partition, str(number % 3) if (partition + number) % 2 else "7")
                for partition in range(partitions)
            ]
            exporter.on_batch(batch_of(number, input_rows=10 * partitions), tasks, executors)

    feeder = threading.Thread(target=feed)
    feeder.start()
    done = False
    while not done:
        done = not feeder.is_alive()
        samples = scrape(exporter)
        if not select(samples, "batches_total"):
            continue
        finished = samples[series("batches_total", query="q")]
        placed = [key[2] for key in select(samples, "partition_executor_info")]
        assert sorted(placed) == sorted(map(str, range(partitions)))
        assert samples[series("last_batch_id", query="q")] == finished - 1
        assert samples[series("input_rows_total", query="q")] == 10 * partitions * finished
        records = select(samples, "partition_records_total").values()
        assert set(records) == {10 * finished}
        assert sum(select(samples, "executor_partitions").values()) == partitions
    feeder.join()
    assert finished == batches


def test_what_runs_here_is_told() -> None:
    ((python_version, spark_version, version),) = select(collect(Exporter()), "build_info")
    assert python_version.startswith("3.")
    assert spark_version.startswith("4.")
    assert version == "0.1.0"


def test_before_the_first_batch_only_the_application_has_series() -> None:
    samples = collect(Exporter())
    assert not any("query" in dict(labels) for _, labels in samples)
    assert samples[series("executors")] == 0
    assert samples[series("plan_epoch")] == 0
    assert series("executors_wanted") not in samples


def test_a_partition_that_moves_keeps_its_counters_and_is_on_one_executor() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(0), [task_of(0, "0", busy_s=1.5)], {"0": 1, "1": 1})
    exporter.on_batch(batch_of(1), [task_of(0, "1", busy_s=2.0, restore_s=0.5)], {"0": 1, "1": 1})
    samples = collect(exporter)
    assert select(samples, "partition_executor_info") == {("1", "0", "0", "q"): 1}
    assert select(samples, "partition_busy_seconds_total") == {("0", "0", "q"): 3.5}
    assert select(samples, "partition_state_restore_seconds_total") == {("0", "0", "q"): 0.5}
    assert select(samples, "executor_busy_seconds_total") == {
        ("0", "0", "q"): 1.5,
        ("1", "0", "q"): 2.0,
    }
    assert select(samples, "executor_partitions") == {("0", "0", "q"): 0, ("1", "0", "q"): 1}


def test_a_new_executor_without_work_is_there_with_zeros() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(), [task_of(0)], {"0": 1, "new": 4})
    samples = collect(exporter)
    labels = {"query": "q", "operator": 0, "executor": "new"}
    assert samples[series("executor_cores", executor="new")] == 4
    assert samples[series("executor_busy_seconds_total", **labels)] == 0
    assert samples[series("executor_partitions", **labels)] == 0


def test_a_lost_executor_takes_its_series_along_in_every_query() -> None:
    exporter = Exporter()
    executors = {"0": 1, "1": 1}
    for query in ("a", "b"):
        tasks = [task_of(p, str(p), query=query) for p in (0, 1)]
        exporter.on_batch(batch_of(0, query), tasks, executors)
    exporter.on_batch(batch_of(1, "a"), [task_of(p, query="a") for p in (0, 1)], {"0": 1})
    samples = collect(exporter)
    names = {name for name, labels in samples if ("executor", "1") in labels}
    assert names == {"partition_executor_info"}, "query b ran there last, and that stays true"
    assert samples[series("partition_busy_seconds_total", query="a", operator=0, partition=1)] == 2


def test_an_executor_that_takes_work_again_begins_from_zero() -> None:
    exporter = Exporter()
    for number, executors in enumerate(({"0": 1, "1": 1}, {"0": 1}, {"0": 1, "1": 1})):
        exporter.on_batch(batch_of(number), [task_of(0, "1" if number == 0 else "0")], executors)
    busy_s = select(collect(exporter), "executor_busy_seconds_total")
    assert busy_s == {("0", "0", "q"): 2.0, ("1", "0", "q"): 0.0}


def test_a_query_that_ended_leaves_nothing_and_begins_again_from_zero() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(0), [task_of(0)], {"0": 1})
    exporter.on_decision("q", 0, "move")
    exporter.on_move()
    exporter.on_move()
    exporter.on_task_failure("q")
    exporter.on_query_ended("q")
    samples = collect(exporter)
    assert not any("query" in dict(labels) for _, labels in samples)
    assert samples[series("moves_total")] == 2
    exporter.on_batch(batch_of(1), [task_of(0)], {"0": 1})
    samples = collect(exporter)
    assert samples[series("batches_total", query="q")] == 1
    assert samples[series("task_failures_total", query="q")] == 0


def test_the_end_of_an_unknown_query_is_no_event() -> None:
    exporter = Exporter()
    before = collect(exporter)
    exporter.on_query_ended("never heard of")
    assert collect(exporter) == before


def test_a_query_whose_first_batch_never_succeeds_shows_its_failures() -> None:
    exporter = Exporter()
    for _ in range(3):
        exporter.on_task_failure("q")
    samples = collect(exporter)
    assert samples[series("task_failures_total", query="q")] == 3
    assert samples[series("batches_total", query="q")] == 0
    assert series("last_batch_id", query="q") not in samples


def test_failures_reported_after_the_end_of_thousands_of_queries_leave_a_hundred() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(0, "steady"), [], {"0": 1})
    for number in range(2_000):
        query = f"run {number}"
        exporter.on_batch(batch_of(0, query), [task_of(0, query=query)], {"0": 1})
        exporter.on_query_ended(query)
        exporter.on_task_failure(query)
    queries = {key[0] for key in select(collect(exporter), "batches_total")}
    assert queries == {"steady", *(f"run {number}" for number in range(1_900, 2_000))}


def test_rates_that_are_not_known_are_absent() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(0, interval_s=None, backlog_rows=5.0), [], {"0": 1})
    samples = collect(exporter)
    assert series("input_rows_per_second", query="q") not in samples
    assert samples[series("processed_rows_per_second", query="q")] == 50
    assert samples[series("backlog_rows", query="q")] == 5
    exporter.on_batch(batch_of(1, interval_s=4.0, backlog_rows=None, duration_s=0.0), [], {"0": 1})
    samples = collect(exporter)
    assert samples[series("input_rows_per_second", query="q")] == 25
    assert series("processed_rows_per_second", query="q") not in samples
    assert series("backlog_rows", query="q") not in samples


def test_a_batch_as_long_as_a_buckets_bound_is_in_that_bucket() -> None:
    exporter = Exporter()
    for duration_s in BATCH_DURATION_BUCKETS_S:
        exporter.on_batch(batch_of(duration_s=duration_s), [], {"0": 1})
    buckets = select(collect(exporter), "batch_duration_seconds_bucket")
    for number, bound in enumerate(BATCH_DURATION_BUCKETS_S, start=1):
        assert buckets[str(bound), "q"] == number


def test_decisions_count_by_what_they_came_to_and_the_last_imbalance_is_shown() -> None:
    exporter = Exporter()
    for imbalance, bound, kind in ((1.6, 1.0, "move"), (1.5, 1.1, "hold")):
        exporter.on_imbalance("q", 0, imbalance, bound)
        exporter.on_decision("q", 0, kind)
    samples = collect(exporter)
    assert samples[series("imbalance_ratio", query="q", operator=0)] == 1.5
    assert samples[series("imbalance_bound_ratio", query="q", operator=0)] == 1.1
    assert samples[series("decisions_total", query="q", operator=0, kind="hold")] == 1


def test_moves_are_under_way_until_they_are_told_no_more() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(), [task_of(0), task_of(0, operator=1)], {"0": 1})
    exporter.on_moves_under_way({("q", 0): 3})
    assert select(collect(exporter), "moves_under_way") == {("0", "q"): 3, ("1", "q"): 0}
    exporter.on_moves_under_way({("q", 1): 1})
    assert select(collect(exporter), "moves_under_way") == {("0", "q"): 0, ("1", "q"): 1}


def test_every_series_bears_the_name_of_its_stream() -> None:
    exporter = Exporter(stream="default/clicks")
    exporter.on_batch(batch_of(), [task_of(0)], {"0": 1})
    assert all(("stream", "default/clicks") in labels for _, labels in collect(exporter))


def test_scale_actions_are_told_by_direction_with_what_is_there_and_what_is_wanted() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(), [], {"0": 1, "1": 1})
    exporter.on_scale(2, 2, 4)
    samples = collect(exporter)
    assert samples[series("executors")] == 2
    assert samples[series("executors_wanted")] == 4
    exporter.on_scale(4, 4, 3)
    samples = collect(exporter)
    assert samples[series("executors")] == 4
    assert samples[series("executors_wanted")] == 3
    assert samples[series("scale_actions_total", direction="out")] == 1
    assert samples[series("scale_actions_total", direction="in")] == 1


@pytest.mark.parametrize("query", ['say "hi"', "two\nlines", "back\\slash", "übung {x=1}", ""])
def test_any_query_name_survives_the_text_format(exporter: Exporter, query: str) -> None:
    exporter.on_batch(batch_of(0, query), [task_of(0, query=query)], {"0": 1})
    assert select(scrape(exporter), "batches_total") == {(query,): 1}


def test_one_metric_alone_can_be_asked_for(exporter: Exporter) -> None:
    exporter.on_epoch(5)
    page = fetch(exporter, "/metrics?name[]=balancedstream_plan_epoch")
    assert read_samples(page) == {series("plan_epoch"): 5}


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
        fixed = 10 + len(executors) + 23 * queries + 9 * operators
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


def test_a_taken_port_is_an_error_that_says_what_it_means_and_what_to_do(
    exporter: Exporter,
) -> None:
    second = Exporter()
    assert exporter.port is not None
    with pytest.raises(PortInUseError) as caught:
        second.start(exporter.port)
    assert isinstance(caught.value, BalancedStreamError)
    assert str(exporter.port) in str(caught.value)
    assert "the job was not started: no data was read, changed or lost" in str(caught.value)
    assert "--metrics-port" in str(caught.value)
    assert second.port is None
    fetch(exporter)


@pytest.mark.parametrize(
    ("port", "addr", "problem"),
    [
        (65_536, "127.0.0.1", "--metrics-port: 65536 is not a port"),
        (-1, "127.0.0.1", "--metrics-port: -1 is not a port"),
        (0, "not an address", "metrics address: 'not an address'"),
        (0, "203.0.113.7", "metrics address: '203.0.113.7'"),  # for documentation: nobody's
        (0, "a" * 64 + ".invalid", "metrics address"),
    ],
)
def test_a_port_or_address_that_cannot_be_served_is_named(
    port: int, addr: str, problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(problem)):
        Exporter().start(port, addr)


def test_a_closed_exporter_frees_its_port_and_still_takes_what_happens() -> None:
    exporter = Exporter()
    exporter.start(0)
    port = exporter.port
    assert port
    exporter.close()
    exporter.close()
    assert exporter.port is None
    exporter.on_epoch(3)
    exporter.start(port)
    assert scrape(exporter)[series("plan_epoch")] == 3
    exporter.close()


def test_started_again_it_serves_the_new_port_only(exporter: Exporter) -> None:
    first = exporter.port
    exporter.start(0)
    assert first is not None
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection("127.0.0.1", first, timeout=30).connect()
    fetch(exporter)


def shuffled(
    *,
    batch: int = 0,
    by_estimates: bool = False,
    name: str = "classify by kind",
    partitions: int = 2,
    errors: tuple[float, float] | None = (0.1, 0.5),
    trusted: bool = True,
) -> ShuffleRecord:
    return ShuffleRecord(
        at_s=1.0,
        shuffle=name,
        batch=batch,
        records=10,
        by_estimates=by_estimates,
        estimated_s=tuple(1.0 for _ in range(partitions)),
        real_s=tuple(float(partition) for partition in range(partitions)),
        error=errors[0] if errors else None,
        equal_error=errors[1] if errors else None,
        trusted=trusted,
        reason="off by 10 %",
    )


def test_loads_of_a_shuffles_partitions_add_up_and_the_rest_is_that_of_the_last_batch(
    exporter: Exporter,
) -> None:
    exporter.on_shuffle(shuffled())
    exporter.on_shuffle(shuffled(batch=1, by_estimates=True))
    samples = collect(exporter)
    of = "shuffle", "classify by kind"
    second = frozenset([of, ("shuffle_partition", "1")])
    assert samples["shuffle_real_seconds_total", second] == 2.0
    assert samples["shuffle_estimated_seconds_total", second] == 2.0
    for routed in ("estimates", "round robin"):
        assert samples["shuffle_batches_total", frozenset([of, ("routed", routed)])] == 1
    assert samples["shuffle_imbalance_ratio", frozenset([of])] == 2.0
    assert samples["shuffle_estimate_error_ratio", frozenset([of])] == 0.1


def test_batches_that_leave_estimates_untrusted_are_counted_if_they_judged_them(
    exporter: Exporter,
) -> None:
    of = frozenset([("shuffle", "classify by kind")])

    def tell(*, errors: tuple[float, float] | None, trusted: bool = False) -> float:
        exporter.on_shuffle(shuffled(errors=errors, trusted=trusted))
        return collect(exporter)["shuffle_untrusted_batches", of]

    assert tell(errors=None) == 0, "nothing was learnt before the first batch"
    assert ("shuffle_equal_error_ratio", of) not in collect(exporter)
    assert [tell(errors=(0.6, 0.5)) for _ in range(3)] == [1, 2, 3]
    assert tell(errors=None) == 3, "too few rows decide nothing"
    assert collect(exporter)["shuffle_equal_error_ratio", of] == 0.5, "as it was last found"
    assert tell(errors=(0.1, 0.5), trusted=True) == 0
    assert tell(errors=(0.6, 0.5)) == 1


def test_of_many_shuffles_with_many_partitions_some_are_shown(exporter: Exporter) -> None:
    for number in range(50):
        exporter.on_shuffle(shuffled(name=f"shuffle {number}", partitions=500))
    samples = [name for name, _ in collect(exporter) if name.startswith("shuffle_")]
    assert len(samples) == 20 * (7 + 2 * 100)


def find_promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        advice = (
            "promtool is not installed; it comes with Prometheus: `apt-get install "
            "--no-install-recommends prometheus` on Debian and Ubuntu, `brew install prometheus` "
            "on macOS, elsewhere from https://prometheus.io/download/."
        )
        if os.environ.get("CI") == "true":
            pytest.fail(advice)
        pytest.skip(advice)
    return found


@pytest.mark.parametrize("told", [False, True], ids=["idle", "busy"])
def test_promtool_has_nothing_to_say_against_the_names(exporter: Exporter, told: bool) -> None:
    if told:
        for _ in tell_batches(Story(exporter), random.Random(3), 10):
            pass
    command = [find_promtool(), "check", "metrics"]
    page = fetch(exporter)
    check = subprocess.run(command, input=page, capture_output=True, text=True, check=False)
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")


def test_promtool_understands_every_documented_query(tmp_path: Path) -> None:
    promtool = find_promtool()
    queries = re.findall(r"```promql\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert len(queries) >= 5
    lines = ["groups:", "  - name: documented", "    rules:"]
    for number, query in enumerate(queries):
        lines += [f"      - record: documented:{number}", "        expr: |"]
        lines += ["          " + line for line in query.splitlines()]
    rules = tmp_path / "rules.yml"
    rules.write_text("\n".join(lines) + "\n", "utf-8")
    command = [promtool, "check", "rules", str(rules)]
    check = subprocess.run(command, capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_where_promtool_is_missing_a_laptop_skips_and_ci_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="promtool is not installed; it comes with Prometheus"):
        find_promtool()


@pytest.mark.parametrize(
    ("naming", "shown"),
    [("plain", {'"de"'}), ("hashed", {"#fa20977256dfdd5a"}), ("off", set())],
)
def test_hot_keys_are_shown_as_they_are_or_hashed_or_not_at_all(
    naming: KeyNaming, shown: set[str]
) -> None:
    exporter = Exporter(hot_keys=naming)
    exporter.on_batch(batch_of(), [task_of(0)], {"0": 1})
    exporter.on_hot_keys("q", 0, (KeySample("q", 0, '"de"', 0, 1, 0.5),))
    samples = [sample for family in exporter.collect() for sample in family.samples]
    hot = [s for s in samples if s.name == "balancedstream_hot_key_busy_seconds"]
    assert {sample.labels["key"] for sample in hot} == shown
    assert naming == "plain" or not any('"de"' in str(sample.labels) for sample in samples)


def test_the_document_lists_every_metric_and_nothing_else() -> None:
    row = re.compile(r"^\| `(balancedstream_\w+)` \| (\w+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
    documented = {
        name: (kind, "" if labels == "none" else labels.replace("`", ""), meaning)
        for name, kind, labels, meaning in row.findall(DOCUMENT.read_text("utf-8"))
    }
    exporter = Exporter()
    exporter.on_batch(batch_of(interval_s=1.0, backlog_rows=1.0), [task_of(0)], {"0": 1})
    exporter.on_imbalance("q", 0, 1.0, 1.0)
    exporter.on_scale(1, 1, 2)
    exporter.on_keys_under_way("q", 1, 3)
    exporter.on_hot_keys("q", 0, (KeySample("q", 0, '"de"', 0, 1, 0.5),))
    exporter.on_shuffle(shuffled())
    exported = {}
    for family in exporter.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = [label for label in family.samples[0].labels if label != "le"]
        exported[name] = family.type, ", ".join(labels), family.documentation
    assert documented == exported


def test_the_document_mentions_no_metric_that_does_not_exist() -> None:
    exported = {
        sample.name
        for told in (Exporter(), told_exporter())
        for family in told.collect()
        for sample in family.samples
    } | {family.name for family in Exporter().collect()}
    mentioned = set(re.findall(r"balancedstream_\w+", DOCUMENT.read_text("utf-8")))
    assert mentioned <= exported


def told_exporter() -> Exporter:
    exporter = Exporter()
    for _ in tell_batches(Story(exporter), random.Random(1), 30):
        pass
    exporter.on_shuffle(shuffled())
    return exporter


def test_the_document_tells_the_limit_and_the_number_of_series() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert f"max_partition_series={MAX_PARTITION_SERIES:_}" in text
    assert f"{MAX_PARTITION_SERIES // SERIES_PER_PARTITION:,} partitions over all queries" in text
    bounds = [f"{bound:g}" for bound in BATCH_DURATION_BUCKETS_S]
    assert f"{', '.join(bounds[:-1])} and {bounds[-1]} seconds" in text
    documented = {
        what: int(count)
        for what, count in re.findall(r"^\| ([a-z ]+) \| (\d+)\b.* \|$", text, re.MULTILINE)
    }
    exporter = Exporter()
    executors = {"0": 1, "1": 1, "2": 1}
    tasks = [task_of(p, operator=o) for p in range(7) for o in range(2)]
    exporter.on_batch(batch_of(interval_s=1.0, backlog_rows=1.0), tasks, executors)
    exporter.on_scale(3, 3, 4)
    for operator in range(2):
        exporter.on_imbalance("q", operator, 1.0, 1.0)
    exporter.on_shuffle(shuffled(partitions=3))
    counts = {
        "application": 1,
        "live executor": 3,
        "query": 1,
        "stateful operator": 2,
        "stateful operator and live executor": 6,
        "shuffle": 1,
        "partition of a shuffle": 3,
        "state partition": 14,
    }
    assert documented.keys() == counts.keys()
    assert len(collect(exporter)) == sum(count * documented[what] for what, count in counts.items())
