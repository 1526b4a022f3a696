"""From what the listener reports of a batch to what the loop is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from balancedstream.core.samples import BatchSample
from balancedstream.engine.events import (
    BatchFinished,
    BatchPlanned,
    RowsWaiting,
    StatefulOperator,
)
from balancedstream.engine.measuring.memory import read_processes, sum_stores
from balancedstream.engine.measuring.stages import StageRow, sum_driver_times, sum_stages
from balancedstream.engine.measuring.tasks import (
    TaskColumns,
    count_moved,
    find_executors,
    group_operators,
    is_in_rocksdb,
    read_preparation,
    sum_tasks,
)
from balancedstream.engine.sources.backlog import Backlog


@dataclass
class QueryRun:
    """One run of a query, and what its last batch left behind.

    Attributes:
        label: what the query is called.
        run_id: Spark's id of the run.
        backlog: counts what waits at its sources.
        last_batch: its number; -1 before the first one.
        last_start_s: seconds since the Unix epoch; None before the first batch.
        state_roots: the checkpoint's folder of state, by operator.
        operators: all stateful ones that were seen.
        stores: names of the state stores of an operator, as they are asked for.
        ran_on: executor by operator and partition, in the last batch.
        is_odd: whether something of it could not be read, which is said once.
        causes: why its sources could not be asked, each said once.
    """

    label: str
    run_id: str
    backlog: Backlog
    last_batch: int = -1
    last_start_s: float | None = None
    state_roots: dict[int, str] = field(default_factory=dict)
    operators: tuple[StatefulOperator, ...] = ()
    stores: dict[int, str] = field(default_factory=dict)
    ran_on: dict[int, dict[int, str]] = field(default_factory=dict)
    is_odd: bool = False
    causes: set[str] = field(default_factory=set)

    @classmethod
    def begin(cls, label: str, run_id: str) -> QueryRun:
        """A run of which no batch is known."""
        return cls(label, run_id, Backlog(label))

    def finish_batch(self, event: Mapping[str, Any]) -> BatchFinished:
        """Takes in a batch, as `BatchListener` reports it.

        Raises:
            ArithmeticError, LookupError, TypeError, ValueError: it cannot be read; nothing of it
                is taken in but its number.
        """
        progress = event["progress"]
        # Placements name the next batch, also where nothing else of this one can be read.
        batch = self.last_batch = progress["batchId"]
        roots = {known["id"]: known["state_root"] for known in event["operators"]}
        ran = TaskColumns(**event["tasks"])
        operators = group_operators(event["operators"], ran, self.operators)
        tasks = sum_tasks(self.label, batch, ran, operators, self.ran_on)
        ran_on = find_executors(tasks)
        stages = [StageRow(*row) for row in event["stages"]]
        started_s = datetime.fromisoformat(progress["timestamp"]).timestamp()
        finished = BatchFinished(
            self.label,
            self._sample(event, started_s, stages),
            tasks,
            operators,
            count_moved(self.ran_on, ran_on),
            is_in_rocksdb(progress["stateMetrics"]),
            sum_stages(self.label, batch, stages, tasks),
            tuple(known["name"] for known in event["operators"] if known["merged"]),
            tuple(read_preparation(row) for row in event["preparations"]),
            bool(progress["stateMetrics"]),
            self.run_id,
            # An event log does not say it.
            event.get("trigger", "micro-batch"),
            sum_stores(self.label, batch, event.get("stores", ()), operators),
            read_processes(event.get("memory", ())),
        )
        self.state_roots.update(roots)
        self.operators, self.ran_on, self.last_start_s = operators, ran_on, started_s
        return finished

    def plan_batch(self, event: Mapping[str, Any]) -> BatchPlanned:
        """Takes in what a planned batch reads, as `BatchListener` reports it."""
        planned = self.backlog.plan(event["sources"])
        return BatchPlanned(
            query=self.label,
            batch=event["batch"],
            at_s=event["at_ms"] / 1000,
            rows=planned.rows,
            waiting_rows=planned.waiting_rows,
            trigger_s=_read_s(event["trigger_ms"]),
        )

    def ask_sources(self, event: Mapping[str, Any]) -> RowsWaiting | None:
        """Takes in what waits between two batches; None if no source tells."""
        rows = self.backlog.ask(event["sources"])
        return None if rows is None else RowsWaiting(self.label, event["at_ms"] / 1000, rows)

    def _sample(
        self, event: Mapping[str, Any], started_s: float, stages: list[StageRow]
    ) -> BatchSample:
        progress = event["progress"]
        duration_s = progress["durationMs"].get("triggerExecution", 0) / 1000
        interval_s = None
        # A clock may be set back.
        if self.last_start_s is not None and started_s >= self.last_start_s:
            interval_s = started_s - self.last_start_s
        return BatchSample(
            query=self.label,
            batch=progress["batchId"],
            finished_s=started_s + duration_s,
            duration_s=duration_s,
            input_rows=progress["numInputRows"],
            interval_s=interval_s,
            backlog_rows=self.backlog.count(progress["sources"]),
            trigger_s=_read_s(event["trigger_ms"]),
            bound_rows=event["bound_rows"],
            **sum_driver_times(progress["durationMs"], stages),
        )


def _read_s(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000
