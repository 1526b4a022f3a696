"""What the plans in an event log say: stateful operators, their metrics, and batches.

As `StatefulOperators.java` reads plans that Spark holds, and by the same names of metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_STORES = "number of state store instances"
_MEMORY_BYTES = "memory used by state"
_SST_BYTES = "RocksDB: size of all SST files"
_LOAD_MS = "RocksDB: load - time taken to load the store"
_RECORDS = "records read"

_STATE_INFO = re.compile(
    r"state info \[ checkpoint = (.*?), runId = ([0-9a-f-]{36}), opId = (\d{1,9}), "
    r"ver = [^,]*, numPartitions = (\d{1,9})\]"
)
_BATCH = re.compile(r"runId = ([0-9a-f-]{36})(?:<br/>|\s)+batch = (\d{1,18})\s*$")
_MAX_DIGITS = 18

_REAL_TIME = "RealTimeStreamScan"
"""Only queries in Real-Time Mode have it in their plan."""


class BatchId(NamedTuple):
    """A batch of a run of a query."""

    run_id: str
    number: int


@dataclass(slots=True, eq=False)
class Operator:
    """A stateful operator in the plan of a run."""

    run_id: str
    id: int
    partitions: int
    state_root: str
    name: str
    is_merged: bool = False


class TaskState(NamedTuple):
    """What a task reported of the state of one operator."""

    operator: Operator
    state_bytes: int
    restore_ms: int
    records: int


class _Metric(NamedTuple):
    operator: Operator | None
    name: str
    is_records: bool
    batch: BatchId | None


@dataclass(slots=True)
class Plans:
    """The metrics of the plans that run, and the operators of the queries that run.

    Attributes:
        operators: run id to operator id to the operator.
        real_time: ids of runs in Real-Time Mode.
    """

    operators: dict[str, dict[int, Operator]] = field(default_factory=dict)
    real_time: set[str] = field(default_factory=set)
    _metrics: dict[int, _Metric] = field(default_factory=dict)
    _of_execution: dict[int, list[int]] = field(default_factory=dict)

    def add_execution(self, event: Mapping[str, Any]) -> BatchId | None:
        """Takes in the plan of a SQL execution; returns the batch that it is of, None for none."""
        batch = _read_batch(event.get("description"))
        ids: list[int] = []
        for node in _list_nodes(event["sparkPlanInfo"]):
            self._add_node(node, batch, ids)
            if batch is not None and node["nodeName"] == _REAL_TIME:
                self.real_time.add(batch.run_id)
        if ids:
            self._of_execution[event["executionId"]] = ids
        return batch

    def end_execution(self, event: Mapping[str, Any]) -> None:
        """Forgets the metrics of a SQL execution that ended."""
        for accumulator in self._of_execution.pop(event["executionId"], ()):
            self._metrics.pop(accumulator, None)

    def end_run(self, run_id: str) -> None:
        """Forgets a run of a query that ended."""
        self.operators.pop(run_id, None)

    def find_batch(self, task_info: Mapping[str, Any]) -> BatchId | None:
        """The batch of a task that counts for its plan, whoever began the job."""
        for accumulator, _ in _list_updates(task_info):
            metric = self._metrics.get(accumulator)
            if metric is not None and metric.batch is not None:
                return metric.batch
        return None

    def read_task(self, task_info: Mapping[str, Any]) -> list[TaskState]:
        """What a task reported of each operator that has a state store in it."""
        records = 0
        found: dict[Operator, dict[str, int]] = {}
        for accumulator, update in _list_updates(task_info):
            metric = self._metrics.get(accumulator)
            if metric is None or (value := _read_count(update)) is None:
                continue
            if metric.operator is None:
                records += value if metric.is_records else 0
            else:
                found.setdefault(metric.operator, {})[metric.name] = value
        return [
            TaskState(
                operator,
                max(values.get(_MEMORY_BYTES, 0), values.get(_SST_BYTES, 0)),
                values.get(_LOAD_MS, 0),
                records,
            )
            for operator, values in found.items()
            # In a union, the stage has the operator but this task does not.
            if values.get(_STORES)
        ]

    def _add_node(self, node: Mapping[str, Any], batch: BatchId | None, ids: list[int]) -> None:
        operator = _read_operator(node)
        is_exchange = node["nodeName"] == "Exchange"
        for told in node["metrics"]:
            accumulator, name = told["accumulatorId"], told["name"]
            is_records = operator is None and is_exchange and name == _RECORDS
            if operator is None and batch is None and not is_records:
                continue
            before = self._metrics.get(accumulator)
            if before is None:
                ids.append(accumulator)
            # A plan inside of another one has its metrics, too, and may not say of which batch.
            of = before.batch if before is not None and batch is None else batch
            self._metrics[accumulator] = _Metric(operator, name, is_records, of)
            if operator is not None and name == _STORES:
                self.operators.setdefault(operator.run_id, {})[operator.id] = operator


def _list_nodes(plan: Any) -> Iterator[Mapping[str, Any]]:
    left = [plan]
    while left:
        node = left.pop()
        yield node
        left.extend(reversed(node["children"]))


def _list_updates(task_info: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    for told in task_info["Accumulables"]:
        if "Update" in told:
            yield told["ID"], told["Update"]


def _read_count(update: Any) -> int | None:
    """A metric as Spark writes it: a number, as text since those of SQL are not internal."""
    if isinstance(update, str) and len(update) <= _MAX_DIGITS and update.lstrip("-").isdecimal():
        update = int(update)
    return max(0, update) if isinstance(update, int) else None


def _read_batch(description: Any) -> BatchId | None:
    text = _BATCH.search(description) if isinstance(description, str) else None
    return BatchId(text[1], int(text[2])) if text else None


def _read_operator(node: Mapping[str, Any]) -> Operator | None:
    if node["nodeName"] == "StateStoreRestore":
        return None
    told = _STATE_INFO.search(node["simpleString"])
    if told is None:
        return None
    return Operator(told[2], int(told[3]), int(told[4]), told[1], node["nodeName"])
