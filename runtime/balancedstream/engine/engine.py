"""The only place that asks Spark where state partitions run, and that moves them."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from balancedstream.core.observations import BatchSample, TaskSample
from balancedstream.engine.capabilities import Capabilities, check_capabilities
from balancedstream.engine.events import (
    ApplicationEnded,
    BatchFinished,
    Event,
    ExecutorAdded,
    ExecutorRemoved,
    QueryEnded,
    QueryStarted,
    StatefulOperator,
    TaskFailed,
)

log = logging.getLogger(__name__)

AS_SOON_AS_POSSIBLE = 2**62
"""Stands for "the next batch, whichever that is" where a batch number is asked for."""

UNNAMED_STORE = "default"


@dataclass
class _Query:
    """What is remembered of a running query."""

    label: str
    run_id: str
    last_batch: int = -1
    last_start_s: float | None = None
    state_roots: dict[int, str] = field(default_factory=dict)
    operators: tuple[StatefulOperator, ...] = ()
    stores: dict[int, str] = field(default_factory=dict)
    ran_on: dict[tuple[int, int], str] = field(default_factory=dict)


class SparkEngine:
    """One Spark application: measures its stateful operators, places partitions, sizes it.

    Every method may be called from any thread, but `wait` from one at a time.

    Args:
        spark: a running session; all sessions of the same application are seen.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        self._context: Any = spark.sparkContext._jsc.sc()
        self._queries: dict[str, _Query] = {}
        self._cores: dict[str, int] = {}
        self._draining: set[str] = set()
        self._asked = False
        self.capabilities: Capabilities = check_capabilities(spark)
        self._listener: Any = self.capabilities.listener

    def executors(self) -> dict[str, int]:
        """Live executors that take work, id to cores; those that drain are left out."""
        return {e: c for e, c in self._cores.items() if e not in self._draining}

    def wait(self, timeout_s: float) -> Event | None:
        """The next event, or None when none came in time."""
        text = self._listener.next(int(timeout_s * 1000))
        return self._parse(json.loads(text)) if text else None

    def place(
        self,
        query: str,
        operator: int,
        targets: Mapping[int, str],
        *,
        from_batch: int | None = None,
    ) -> None:
        """Wants partitions of an operator to run on the named executors, until told otherwise.

        The wish is asserted at every batch's end until the tasks are there (Spark's
        `StateStoreCoordinator` is told that the store is active on the target). It is a hint:
        wherever a task runs, the result is right. A new call replaces the operator's wishes.

        Args:
            query: name or id of the query.
            operator: the operator's `StatefulOperator.id`.
            targets: partition to executor id; partitions left out are left alone.
            from_batch: the first batch that shall see the placement; None means the next one.
        """
        run = self._find(query)
        if run is None:
            return
        group = next((o for o in run.operators if o.id == operator), None)
        if group is None:
            return
        wanted = ",".join(targets.get(p, "") for p in range(group.partitions))
        next_batch = AS_SOON_AS_POSSIBLE if from_batch is None else run.last_batch + 1
        for operator_id in group.ids:
            self._listener.place(
                run.run_id,
                operator_id,
                run.state_roots[operator_id],
                self._store_names(run, operator_id),
                wanted,
                from_batch or 0,
                next_batch,
            )

    def set_executor_count(self, count: int) -> bool:
        """Asks the cluster manager for `count` executors in all; never stops a running one.

        Returns:
            False when the cluster manager refused the request.
        """
        nothing = self._jvm.scala.Predef.Map().empty()
        self._asked = True
        return bool(self._context.requestTotalExecutors(count, 0, nothing))

    def is_connection_lost(self, error: Exception) -> bool:
        """Whether an error means that the application is gone."""
        return is_connection_lost(error)

    def drain(self, executor: str) -> None:
        """Takes an executor out of `executors()`, so that nothing more is placed on it."""
        self._draining.add(executor)

    def remove_executor(self, executor: str) -> None:
        """Retires an executor through Spark's decommissioning, between two batches.

        It takes no new task, hands its shuffle blocks to its peers and leaves; so nothing is
        computed again. Place its partitions elsewhere first. With several queries whose batches
        never leave a gap, it leaves after a few batches all the same.
        """
        # Spark lowers the number asked for by one, and takes one that was never asked for as zero:
        # nothing that dies later would be replaced.
        if not self._asked:
            self.set_executor_count(len(self._cores))
        self.drain(executor)
        self._listener.retire(executor)

    def set_locality_wait_s(self, wait_s: float) -> None:
        """How long a task waits for the executor that holds its state, from the next stage on.

        Spark reads `spark.locality.wait.process` anew for each stage (`TaskSetManager`).
        """
        self._context.conf().set("spark.locality.wait.process", f"{int(wait_s * 1000)}ms")

    def _find(self, query: str) -> _Query | None:
        return next((q for q in self._queries.values() if q.label == query), None)

    def _store_names(self, run: _Query, operator: int) -> str:
        """Comma-separated names of the stores that each partition of an operator has.

        A join keeps several stores a partition, each in a folder of its own (Spark's
        `StateStoreId.storeCheckpointLocation`); every other operator has the unnamed one.
        """
        if operator not in run.stores:
            path = self._jvm.org.apache.hadoop.fs.Path(f"{run.state_roots[operator]}/{operator}/0")
            files = path.getFileSystem(self._context.hadoopConfiguration()).listStatus(path)
            names = sorted(f.getPath().getName() for f in files if f.isDirectory())
            named = [n for n in names if not n.startswith("_") and n != "SSTs"]
            run.stores[operator] = ",".join(named) or UNNAMED_STORE
        return run.stores[operator]

    def _parse(self, event: dict[str, Any]) -> Event | None:
        match event["event"]:
            case "batch_finished":
                return self._finish_batch(event)
            case "query_started":
                label = event["name"] or event["id"]
                self._queries[event["run"]] = _Query(label, event["run"])
                return QueryStarted(label, event["run"], named=bool(event["name"]))
            case "query_terminated":
                run = self._queries.pop(event["run"], None)
                return QueryEnded(run.label if run else event["run"], event["error"])
            case "executor_added":
                self._cores[event["executor"]] = event["cores"]
                return ExecutorAdded(event["executor"], event["cores"])
            case "executor_removed":
                self._cores.pop(event["executor"], None)
                self._draining.discard(event["executor"])
                return ExecutorRemoved(event["executor"], event["reason"])
            case "task_failed":
                run = self._queries.get(event["run"])
                label = run.label if run else event["run"]
                return TaskFailed(label, event["batch"], event["executor"])
            case _:
                return ApplicationEnded()

    def _finish_batch(self, event: dict[str, Any]) -> BatchFinished:
        progress = event["progress"]
        label = progress["name"] or progress["id"]
        run = self._queries.setdefault(event["run"], _Query(label, event["run"]))
        run.last_batch = progress["batchId"]
        for known in event["operators"]:
            run.state_roots[known["id"]] = known["state_root"]
        run.operators = _group_operators(event["operators"], event["tasks"], run.operators)
        started_s = datetime.fromisoformat(progress["timestamp"]).timestamp()
        duration_s = progress["durationMs"].get("triggerExecution", 0) / 1000
        sample = BatchSample(
            query=label,
            batch=run.last_batch,
            finished_s=started_s + duration_s,
            duration_s=duration_s,
            input_rows=progress["numInputRows"],
            interval_s=None if run.last_start_s is None else started_s - run.last_start_s,
            backlog_rows=count_backlog(progress["sources"]),
        )
        run.last_start_s = started_s
        tasks = _sum_tasks(label, run.last_batch, event["tasks"], run.operators, run.ran_on)
        moved_partitions = sum(
            run.ran_on.get((t.operator, t.partition)) != t.executor for t in tasks
        )
        run.ran_on = {(t.operator, t.partition): t.executor for t in tasks}
        in_rocksdb = _is_in_rocksdb(progress["stateOperators"])
        return BatchFinished(label, sample, tasks, run.operators, moved_partitions, in_rocksdb)


def _is_in_rocksdb(operators: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every state store reports the metrics of Spark's `RocksDBStateStoreProvider`."""
    return all(
        any(name.startswith("rocksdb") for name in operator["customMetrics"])
        for operator in operators
    )


def _group_operators(
    known: Sequence[dict[str, Any]],
    rows: Sequence[Sequence[Any]],
    before: tuple[StatefulOperator, ...],
) -> tuple[StatefulOperator, ...]:
    """Operators that ran in the same tasks, as one each; those unseen stay as they were."""
    by_task: dict[tuple[int, int], set[int]] = defaultdict(set)
    for operator, stage, index, *_ in rows:
        by_task[stage, index].add(operator)
    groups: dict[int, tuple[int, ...]] = {o.id: o.ids for o in before}
    for together in by_task.values():
        ids = tuple(sorted(together))
        groups[ids[0]] = ids
    shared = {i for ids in groups.values() for i in ids[1:]}
    by_id = {o["id"]: o for o in known}
    return tuple(
        StatefulOperator(groups.get(i, (i,)), by_id[i]["name"], by_id[i]["partitions"])
        for i in sorted(by_id)
        if i not in shared
    )


def _sum_tasks(
    query: str,
    batch: int,
    rows: Sequence[Sequence[Any]],
    operators: Sequence[StatefulOperator],
    ran_on: Mapping[tuple[int, int], str],
) -> tuple[TaskSample, ...]:
    """One sample per operator and partition: a batch may run a stage more than once.

    Spark times the opening of a store in every batch; only where the partition ran elsewhere
    before was that a load from the checkpoint.
    """
    leads = {i: o.id for o in operators for i in o.ids}
    last: dict[tuple[int, int], TaskSample] = {}
    for operator, _, _, partition, executor, busy, records, size, load, finished in rows:
        lead = leads[operator]
        key = lead, partition
        own = operator == lead
        before = last.get(key)
        moved = ran_on.get(key) not in (None, executor)
        last[key] = TaskSample(
            query=query,
            operator=lead,
            partition=partition,
            batch=batch,
            executor=executor,
            # An operator that shares the task adds state, but no time of its own.
            busy_s=(busy / 1000 if own else 0.0) + (before.busy_s if before else 0.0),
            records=(records if own else 0) + (before.records if before else 0),
            state_bytes=size + (before.state_bytes if before and not own else 0),
            finished_s=finished / 1000,
            restore_s=(load / 1000 if moved else 0.0) + (before.restore_s if before else 0.0),
        )
    return tuple(last[key] for key in sorted(last))


def count_backlog(sources: Sequence[Mapping[str, Any]]) -> float | None:
    """Rows that wait at the sources, where they say so: Kafka's latest minus processed offsets.

    >>> count_backlog([{"latestOffset": {"t": {"0": 9, "1": 5}}, "endOffset": {"t": {"0": 4}}}])
    10.0
    >>> count_backlog([{"latestOffset": None, "endOffset": {"logOffset": 3}}]) is None
    True
    """
    total: float | None = None
    for source in sources:
        latest, done = source.get("latestOffset"), source.get("endOffset")
        if not isinstance(latest, dict) or not isinstance(done, dict):
            continue
        for topic, ends in latest.items():
            if not isinstance(ends, dict):
                continue
            reached = done.get(topic, {})
            total = (total or 0.0) + sum(end - reached.get(p, 0) for p, end in ends.items())
    return total


def is_connection_lost(error: BaseException) -> bool:
    """Whether a call failed because the JVM is gone, as after `spark.stop()`."""
    return isinstance(error, Py4JError | ConnectionError | OSError)
