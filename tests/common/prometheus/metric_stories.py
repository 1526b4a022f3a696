"""A run told to an exporter, with what a scrape must show added up from the beginning."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

from metric_samples import Samples, batch_of, series, stage_of, task_of

from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.samples import BatchSample, LossCause, StageKind, StageSample, TaskSample
from balancedstream.metrics.catalogue import BATCH_DURATION_BUCKETS_S
from balancedstream.metrics.exporter import Exporter


@dataclass
class Story:
    """A run told to an exporter, and kept to be added up again."""

    exporter: Exporter
    batches: list[tuple[BatchSample, list[TaskSample]]] = field(default_factory=list)
    stages: list[StageSample] = field(default_factory=list)
    ran_on: dict[str, set[str]] = field(default_factory=dict)
    idle_s: dict[str, float] = field(default_factory=dict)
    balances: list[tuple[str, int, float, float, int, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    losses: list[LossCause] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    scales: list[tuple[int, int, int]] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    moves_of_ended: int = 0
    executors: dict[str, int] = field(default_factory=dict)
    executors_seen_after: list[dict[str, int]] = field(default_factory=list)

    def finish_batch(
        self,
        batch: BatchSample,
        tasks: list[TaskSample],
        executors: dict[str, int],
        stages: list[StageSample],
    ) -> None:
        self.batches.append((batch, tasks))
        self.executors = dict(executors)
        self.stages += stages
        self.ran_on[batch.query] = {e for stage in stages for e in stage.executor_busy_s}
        # The counters of an executor end with it, once a batch has ended without it.
        self.stages = [
            replace(
                s,
                executor_busy_s={
                    e: busy_s
                    for e, busy_s in s.executor_busy_s.items()
                    if e in executors or e in self.ran_on[s.query]
                },
            )
            for s in self.stages
        ]
        self.exporter.on_batch(batch, tasks, executors, stages)

    def wait_for_data(self, query: str, at_s: float) -> None:
        self.idle_s[query] = at_s
        self.exporter.on_idle(query, at_s)

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

    def lose(self, cause: LossCause) -> None:
        self.losses.append(cause)
        self.exporter.on_loss(cause)

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
        self.stages = [stage for stage in self.stages if stage.query != query]
        self.idle_s.pop(query, None)
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
        for outcome in ("used", "wasted", "failed"):
            for name in ("preparations_total", "prepared_bytes_total", "prepared_seconds_total"):
                expected[series(name, outcome=outcome)] = 0
        expected[series("move_fixed_seconds")] = RestoreCost().fixed_s
        expected[series("move_bytes_per_second")] = RestoreCost().bytes_per_s
        expected[series("move_key_seconds")] = RestoreCost().key_s
        expected[series("plan_epoch")] = self.epochs[-1] if self.epochs else 0
        expected[series("executors")] = len(self.executors)
        for direction, sign in (("out", 1), ("in", -1)):
            expected[series("scale_actions_total", direction=direction)] = sum(
                (wanted - before) * sign > 0 for before, _, wanted in self.scales
            )
        for cause in get_args(LossCause):
            expected[series("executor_losses_total", cause=cause)] = self.losses.count(cause)
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
        if last.trigger_s is not None:
            values["trigger_interval_seconds"] = last.trigger_s
        if query in self.idle_s:
            values["query_idle_timestamp_seconds"] = self.idle_s[query]
        expected = {series(name, query=query): float(value) for name, value in values.items()}
        for bound in (*BATCH_DURATION_BUCKETS_S, float("inf")):
            le = "+Inf" if bound == float("inf") else str(bound)
            below = sum(duration <= bound for duration in durations)
            expected[series("batch_duration_seconds_bucket", query=query, le=le)] = below
        for part in ("offsets", "planning", "commits", "gaps"):
            driver_s = sum(getattr(batch, f"{part}_s") for batch in batches)
            expected[series("driver_seconds_total", query=query, part=part)] = driver_s
        expected |= self._stage_samples(query)
        tasks = [task for batch, tasks in self.batches if batch.query == query for task in tasks]
        for operator in {task.operator for task in tasks}:
            mine = [task for task in tasks if task.operator == operator]
            expected |= self._operator_samples(query, operator, mine)
        return expected

    def _stage_samples(self, query: str) -> Samples:
        expected: Samples = {}
        for kind in {stage.kind for stage in self.stages if stage.query == query}:
            mine = [s for s in self.stages if (s.query, s.kind) == (query, kind)]
            labels = {"query": query, "kind": kind}
            expected[series("stage_tasks_total", **labels)] = sum(s.tasks for s in mine)
            longest_s = sum(s.longest_s for s in mine)
            expected[series("stage_longest_task_seconds_total", **labels)] = longest_s
            for executor in {e for stage in mine for e in stage.executor_busy_s}:
                busy_s = sum(s.executor_busy_s.get(executor, 0.0) for s in mine)
                name = "stage_busy_seconds_total"
                expected[series(name, **labels, executor=executor)] = busy_s
        return expected

    def _operator_samples(self, query: str, operator: int, tasks: list[TaskSample]) -> Samples:
        labels = {"query": query, "operator": operator}
        expected: Samples = {}
        balances = [entry for entry in self.balances if entry[:2] == (query, operator)]
        for kind in ("move", "scale", "advise", "limited", "hold", "none"):
            count = sum(entry[5] == kind for entry in balances)
            expected[series("decisions_total", **labels, kind=kind)] = count
        expected[series("moves_under_way", **labels)] = 0
        expected[series("moves_preparing", **labels)] = 0
        expected[series("moves_prepared", **labels)] = 0
        if balances:
            expected[series("imbalance_ratio", **labels)] = balances[-1][2]
            expected[series("imbalance_bound_ratio", **labels)] = balances[-1][3]
        last = {task.partition: task for task in tasks}
        expected[series("partitions", **labels)] = len(last)
        expected[series("partitions_hidden", **labels)] = 0
        expected |= work_samples("operator", tasks, labels)
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
        series(f"{of}_state_load_seconds_total", **labels): sum(task.restore_s for task in tasks),
        series(f"{of}_records_total", **labels): sum(task.records for task in tasks),
    }


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
            trigger_s=chance.choice([None, 5.0]),
            planning_s=chance.random(),
            gaps_s=chance.random(),
        )
        kinds: list[StageKind] = ["source", "stateful", "sink"]
        stages = [
            stage_of(
                kind,
                {executor: chance.expovariate(1.0) for executor in executors},
                query=query,
                tasks=chance.randrange(1, 9),
            )
            for kind in (kinds if OPERATORS[query] else kinds[:1])
        ]
        numbers[query] += 1
        story.finish_batch(batch, tasks, executors, stages)
        if chance.random() < 0.1:
            story.wait_for_data(query, batch.finished_s + 10.0)
        for operator in OPERATORS[query]:
            kind = chance.choice(["move", "advise", "hold", "none", "limited"])
            moves_decided = chance.randrange(1, 5) if kind in {"move", "advise", "hold"} else 0
            story.balance(query, operator, chance.uniform(1, 3), 1.0, moves_decided, kind)
            if kind == "move":
                epoch += 1
                story.begin_epoch(epoch)
                story.settle(chance.randrange(moves_decided + 1))
        if chance.random() < 0.1:
            story.fail_task(query)
            story.lose(chance.choice(get_args(LossCause)))
        if chance.random() < 0.05:
            story.end_query(query)
            numbers[query] = 0
        yield step
