"""From the events of a log to what happened: executors, and batches with their tasks.

As `BatchListener.java` does from the events of a driver that runs; `engine.measuring` does the rest
for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from balancedstream.core.estimates.application import Application
from balancedstream.core.policy import Policy
from balancedstream.core.samples import is_sound
from balancedstream.engine.events import BatchFinished
from balancedstream.engine.measuring.batches import QueryRun
from balancedstream.engine.measuring.losses import find_loss
from balancedstream.engine.session.labels import QueryLabels
from balancedstream.errors import InvalidInputError
from balancedstream.estimate.events import LOG_START, Reading, read_events
from balancedstream.estimate.files import EventLog
from balancedstream.estimate.plans import BatchId, Plans, TaskState
from balancedstream.estimate.stages import Stage, Stages

LOADING_AHEAD_SINCE = (4, 1)
"""Spark from this version on lets executors load state ahead of a move (`engine.traits`)."""

MAX_TIME_S = 250_000_000_000.0
"""Seconds since the Unix epoch in the year 9892: a calendar knows no more than 9999."""

MAX_CORES = 10_000

_ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What an event raises that is not as Spark writes it."""

_TASK_COLUMNS = (
    "operator",
    "stage",
    "task",
    "partition",
    "executor",
    "busy_ms",
    "records",
    "state_bytes",
    "restore_ms",
    "finished_ms",
)


@dataclass(slots=True)
class Finding:
    """What a log says.

    Attributes:
        log: its files.
        reading: what of them could be read.
        application: the estimate.
        name: of the application.
        id: of the application.
        spark: version of Spark.
        dynamic_allocation: whether Spark was to add and remove executors.
        first_s: time of the first event, in seconds since the Unix epoch; None if none has one.
        last_s: the same of the last one.
        ended: whether the application ended in the log.
        unnamed: executors that ran tasks and whose start is not in the log.
        real_time: queries in Real-Time Mode, which are left out.
    """

    log: EventLog
    reading: Reading
    application: Application
    name: str = ""
    id: str = ""
    spark: str = ""
    dynamic_allocation: bool = False
    first_s: float | None = None
    last_s: float | None = None
    ended: bool = False
    unnamed: set[str] = field(default_factory=set)
    real_time: set[str] = field(default_factory=set)


def read_log(
    log: EventLog, policy: Policy, tell: Callable[[int], None] = lambda at: None
) -> Finding:
    """Reads a whole log.

    Args:
        log: its files.
        policy: by which balancing and scaling would have decided.
        tell: is called now and then with the bytes read so far.

    Raises:
        InvalidInputError: it is no event log, or has no streaming query.
    """
    reader = _Reader(Finding(log, Reading(), Application(policy)))
    finding = reader.finding
    for name, event in read_events(log, frozenset(reader.handlers), finding.reading, tell):
        try:
            reader.handlers[name](event)
        except _ODD:
            finding.reading.unreadable += 1
    if finding.last_s is not None:
        finding.application.end(finding.last_s)
    if not finding.application.queries:
        raise InvalidInputError(_describe_nothing(finding, reader.started))
    return finding


def _describe_nothing(finding: Finding, started: int) -> str:
    reading, path = finding.reading, finding.log.path
    if not reading.events:
        what = "it is empty" if not reading.cut else f"nothing of it can be read ({reading.cut})"
        return f"event log: {path} has no event, {what}"
    cut = f" The log is cut off: {reading.cut}." if reading.cut else ""
    if finding.real_time:
        return (
            f"event log: all queries in {path} run in Real-Time Mode, where the time of tasks says "
            f"nothing of their load: there is nothing to estimate.{cut}"
        )
    if started:
        return f"event log: {path} has a streaming query, but none of its batches has ended.{cut}"
    return (
        f"event log: {path} has no streaming query; estimates need the log of an application that "
        f"runs Structured Streaming, from Spark 3.5 on.{cut}"
    )


class _Reader:
    """Takes the events of one log in, in order."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        self.application = finding.application
        self.started = 0
        self._plans = Plans()
        self._stages = Stages()
        self._labels = QueryLabels()
        self._runs: dict[str, QueryRun] = {}
        self._run_of_query: dict[str, str] = {}
        self._tasks: dict[BatchId, list[_TaskRow]] = {}
        self.handlers: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            LOG_START: self._start_log,
            "SparkListenerApplicationStart": self._start_application,
            "SparkListenerApplicationEnd": self._end_application,
            "SparkListenerEnvironmentUpdate": self._update_environment,
            "SparkListenerExecutorAdded": self._add_executor,
            "SparkListenerExecutorRemoved": self._remove_executor,
            "SparkListenerJobStart": self._start_job,
            "SparkListenerJobEnd": lambda event: self._stages.end_job(event["Job ID"]),
            "SparkListenerStageSubmitted": lambda event: self._stages.submit(event["Stage Info"]),
            "SparkListenerTaskEnd": self._end_task,
            "SparkListenerSQLExecutionStart": self._start_execution,
            "SparkListenerSQLExecutionEnd": self._plans.end_execution,
            "QueryStartedEvent": self._start_query,
            "QueryProgressEvent": lambda event: self._finish_batch(event["progress"]),
            "QueryIdleEvent": self._wait,
            "QueryTerminatedEvent": self._end_query,
        }

    def _start_log(self, event: Mapping[str, Any]) -> None:
        self.finding.spark = str(event["Spark Version"])
        numbers = self.finding.spark.split(".")[:2]
        version = tuple(int(n) for n in numbers if n.isdecimal() and len(n) < 4)
        self.application.prepared = version >= LOADING_AHEAD_SINCE

    def _start_application(self, event: Mapping[str, Any]) -> None:
        self.finding.name = str(event["App Name"])
        self.finding.id = str(event.get("App ID") or "")
        self._note_time(event["Timestamp"] / 1000)

    def _end_application(self, event: Mapping[str, Any]) -> None:
        self._note_time(event["Timestamp"] / 1000)
        self.finding.ended = True

    def _update_environment(self, event: Mapping[str, Any]) -> None:
        allocation = event["Spark Properties"].get("spark.dynamicAllocation.enabled", "false")
        self.finding.dynamic_allocation = str(allocation).strip().lower() == "true"

    def _add_executor(self, event: Mapping[str, Any]) -> None:
        at_s, cores = event["Timestamp"] / 1000, event["Executor Info"]["Total Cores"]
        executor = _read_name(event["Executor ID"])
        if not isinstance(cores, int) or not 1 <= cores <= MAX_CORES:
            message = "a number of cores is out of range"
            raise ValueError(message)
        self._note_time(at_s)
        self.application.add_executor(executor, cores, at_s)

    def _remove_executor(self, event: Mapping[str, Any]) -> None:
        at_s = event["Timestamp"] / 1000
        lost = find_loss(event["Removed Reason"]) is not None
        # The driver stops its executors when it ends.
        if not self.finding.ended:
            self._note_time(at_s)
            self.application.remove_executor(_read_name(event["Executor ID"]), at_s, lost=lost)

    def _start_job(self, event: Mapping[str, Any]) -> None:
        told = event.get("Properties") or {}
        number = told.get("streaming.sql.batchId")
        run_id = self._run_of_query.get(told.get("sql.streaming.queryId", ""))
        # Of a query that started before the log, its first batch here, or the metrics of its tasks.
        batch = BatchId(run_id, int(number)) if number is not None and run_id is not None else None
        self._stages.start_job(event, batch)

    def _start_execution(self, event: Mapping[str, Any]) -> None:
        batch = self._plans.add_execution(event)
        if batch is not None:
            self._stages.begin(batch)

    def _end_task(self, event: Mapping[str, Any]) -> None:
        stage, info = self._stages.find(event["Stage ID"]), event["Task Info"]
        if stage is None:
            return
        if stage.batch is None and (batch := self._plans.find_batch(info)) is not None:
            self._stages.claim(stage, batch)
        if event["Task End Reason"]["Reason"] != "Success" or not event.get("Task Metrics"):
            return
        executor, finished_ms = _read_name(info["Executor ID"]), info["Finish Time"]
        _check_sound(finished_ms, info["Launch Time"])
        busy_ms = stage.add_task(event)
        _check_sound(busy_ms)
        if stage.batch is not None:
            self._note_states(stage, stage.batch, event, busy_ms)
        if executor not in self.application.executors:
            self.finding.unnamed.add(executor)

    def _note_states(
        self, stage: Stage, batch: BatchId, event: Mapping[str, Any], busy_ms: int
    ) -> None:
        info = event["Task Info"]
        for state in self._plans.read_task(info):
            stage.stateful = True
            # Behind `coalesce`, no partition has a task, a time or a place of its own.
            if stage.merged_into < state.operator.partitions:
                state.operator.is_merged = True
                continue
            index = info.get("Partition ID", info["Index"])
            executor, finished_ms = info["Executor ID"], info["Finish Time"]
            row = _TaskRow(stage, event["Stage ID"], state, index, executor, busy_ms, finished_ms)
            self._tasks.setdefault(batch, []).append(row)

    def _start_query(self, event: Mapping[str, Any]) -> None:
        self.started += 1
        query_id, run_id = _read_name(event["id"]), _read_name(event["runId"])
        self._run_of_query[query_id] = run_id
        self._find_run(query_id, run_id, event.get("name"))

    def _find_run(self, query_id: str, run_id: str, name: Any) -> QueryRun:
        if run_id not in self._runs:
            label = self._labels.find(query_id, name if isinstance(name, str) else None)
            self._runs[run_id] = QueryRun.begin(label, run_id)
        return self._runs[run_id]

    def _finish_batch(self, progress: Mapping[str, Any]) -> None:
        run_id, number = _read_name(progress["runId"]), progress["batchId"]
        query_id = _read_name(progress["id"])
        self._run_of_query[query_id] = run_id
        run = self._find_run(query_id, run_id, progress.get("name"))
        batch = BatchId(run_id, number)
        if run_id in self._plans.real_time:
            # The time of its tasks is that of the batch, and says nothing of their load.
            self.finding.real_time.add(run.label)
            self._forget(run_id, number)
            return
        is_new = run.last_batch < 0
        rows = self._tasks.pop(batch, [])
        stages = self._stages.list_rows(batch)
        self._forget(run_id, number)
        operators = self._plans.operators.get(run_id, {}).values()
        finished = run.finish_batch(
            {
                "progress": _read_progress(progress),
                "operators": [
                    {
                        "id": o.id,
                        "partitions": o.partitions,
                        "state_root": o.state_root,
                        "name": o.name,
                        "merged": o.is_merged,
                    }
                    for o in operators
                ],
                "tasks": _to_columns(rows),
                "stages": stages,
                "preparations": (),
                "trigger_ms": None,
                "bound_rows": None,
            }
        )
        self._take(finished, new_run=is_new)

    def _take(self, finished: BatchFinished, *, new_run: bool) -> None:
        if not finished.is_sound():
            message = "a measured value is out of range"
            raise ValueError(message)
        self._note_time(finished.sample.finished_s)
        # A batch without a task asked the sources in vain, or only told that nothing came.
        if finished.stages or finished.sample.input_rows:
            self.application.take(finished.sample, finished.tasks, finished.stages, new_run=new_run)

    def _wait(self, event: Mapping[str, Any]) -> None:
        run = self._runs.get(event["runId"])
        if run is not None:
            at_s = datetime.fromisoformat(event["timestamp"]).timestamp()
            self._note_time(at_s)
            self.application.wait(run.label, at_s)

    def _end_query(self, event: Mapping[str, Any]) -> None:
        run_id = _read_name(event["runId"])
        run = self._runs.pop(run_id, None)
        self._plans.end_run(run_id)
        self._forget(run_id, math.inf)
        if run is not None:
            self.application.end_query(run.label)

    def _forget(self, run_id: str, last_batch: float) -> None:
        """Forgets the tasks and stages of a run up to a batch."""
        for old in [b for b in self._tasks if b.run_id == run_id and b.number <= last_batch]:
            del self._tasks[old]
        self._stages.forget(run_id, last_batch)

    def _note_time(self, at_s: float) -> None:
        _check_sound(at_s)
        if at_s > MAX_TIME_S:
            message = "a time is out of range"
            raise ValueError(message)
        found = self.finding
        found.first_s = at_s if found.first_s is None else min(found.first_s, at_s)
        found.last_s = at_s if found.last_s is None else max(found.last_s, at_s)


@dataclass(frozen=True, slots=True)
class _TaskRow:
    """A task that ran a state partition."""

    stage: Stage
    stage_id: int
    state: TaskState
    index: int
    executor: str
    busy_ms: int
    finished_ms: int


def _to_columns(rows: list[_TaskRow]) -> dict[str, list[Any]]:
    """The tasks of a batch as the engine sums them up."""
    first: dict[tuple[int, int], int] = {}  # where a union shifts the tasks of an operator
    for row in rows:
        operator = row.state.operator
        if row.stage.partitions != operator.partitions:
            key = row.stage_id, operator.id
            first[key] = min(row.index, first.get(key, row.index))
    values = [
        (
            row.state.operator.id,
            row.stage_id,
            row.index,
            row.index - first.get((row.stage_id, row.state.operator.id), 0),
            row.executor,
            row.busy_ms,
            row.state.records,
            row.state.state_bytes,
            row.state.restore_ms,
            row.finished_ms,
        )
        for row in rows
    ]
    columns = [list(column) for column in zip(*values, strict=True)] or [[] for _ in _TASK_COLUMNS]
    return dict(zip(_TASK_COLUMNS, columns, strict=True))


def _read_progress(progress: Mapping[str, Any]) -> dict[str, Any]:
    """A batch's progress as `BatchProgress.java` writes it; an event log has no sum of the rows."""
    sources = progress["sources"]
    return {
        "batchId": progress["batchId"],
        "timestamp": progress["timestamp"],
        "numInputRows": sum(source["numInputRows"] for source in sources),
        "durationMs": progress["durationMs"],
        "stateMetrics": [list(o.get("customMetrics") or ()) for o in progress["stateOperators"]],
        "sources": [
            {
                "description": source["description"],
                "start": source.get("startOffset"),
                "end": source.get("endOffset"),
                "latest": source.get("latestOffset"),
                "rows": source["numInputRows"],
                "files": None,
            }
            for source in sources
        ],
    }


def _read_name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        message = "a name is missing"
        raise ValueError(message)
    return value


def _check_sound(*values: float) -> None:
    if not is_sound(*values):
        message = "a measured value is out of range"
        raise ValueError(message)
