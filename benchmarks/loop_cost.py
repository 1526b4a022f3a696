"""What one batch costs the driver's Python, by part of the loop, at several sizes: no Spark runs.

The events are those that the listener reports: stateful operators of one query whose partitions
cost a skewed time, on executors that run several of them each. Measured is the median CPU time of
each part over the batches after the first two. A scrape is no part of the loop, but takes the same
interpreter; Prometheus asks every 15 to 60 s.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar
from unittest import mock

from harness.benchmark import prepare, run
from harness.results import Case
from harness.silent import SilentView
from prometheus_client import CollectorRegistry, generate_latest

from balancedstream.core.policy import Policy
from balancedstream.engine import engine as engines
from balancedstream.engine.capabilities import Capabilities
from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished
from balancedstream.engine.measuring.tasks import TaskColumns
from balancedstream.loop.controller import summarize
from balancedstream.loop.deciding import Decider
from balancedstream.loop.ports import FinishedBatch
from balancedstream.loop.realizing import Realizer
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo

WARM_UP = 2
"""Batches without a measurement: the first one is not decided on."""

SIZES = ((32, 1, 4), (1_000, 2, 100), (10_000, 3, 1_000))
"""Partitions of each operator, operators, and executors."""

SKEW = 0.5
"""Standard deviation of the logarithm of a partition's busy time."""

BATCHES = 7

RUN_ID = "00000000-0000-0000-0000-000000000001"

_T = TypeVar("_T")


class Listener:
    """The JVM's listener: what happened, as JSON; its partitions go where they are placed.

    Args:
        partitions: of each operator.
        operators: number of them.
        executors: number of them, with one core each.
        skew: standard deviation of the logarithm of a partition's busy time.
    """

    def __init__(self, partitions: int, operators: int, executors: int, skew: float) -> None:
        self._executors = [str(n) for n in range(executors)]
        chance = random.Random(7)
        self._busy_ms = [
            [chance.lognormvariate(5.0, skew) for _ in range(partitions)] for _ in range(operators)
        ]
        self._ran_on = [
            [self._executors[p % executors] for p in range(partitions)] for _ in range(operators)
        ]
        self._chance = chance
        self._events = [
            json.dumps({"event": "executor_added", "executor": e, "cores": 1})
            for e in self._executors
        ]
        self.now_s = 1_700_000_000.0

    def next(self, timeout_ms: int) -> str | None:
        """The next event."""
        return self._events.pop(0) if self._events else None

    def place(self, run: str, operator: int, root: str, stores: str, wanted: str, *_: int) -> None:
        """Partitions run there from the next batch on."""
        for partition, executor in enumerate(wanted.split(",")):
            if executor:
                self._ran_on[operator][partition] = executor

    def finish(self, batch: int) -> None:
        """A batch of 10 s ends."""
        self.now_s += 10.0
        ended_ms = int(self.now_s * 1000)
        tasks, busy_ms = [], dict.fromkeys(self._executors, 0)
        for operator, costs_ms in enumerate(self._busy_ms):
            for partition, cost_ms in enumerate(costs_ms):
                executor = self._ran_on[operator][partition]
                took_ms = round(cost_ms * self._chance.uniform(0.9, 1.1))
                busy_ms[executor] += took_ms
                place = (operator, operator + 1, partition, partition, executor)
                tasks.append((*place, took_ms, 100, 1 << 20, 5, ended_ms))
        count = len(self._busy_ms) * len(self._busy_ms[0])
        started = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.now_s - 9.0)) + ".000Z"
        progress = {
            "id": "q", "name": "q", "batchId": batch, "timestamp": started, "numInputRows": 10**6,
            "durationMs": {"triggerExecution": 9000, "addBatch": 8000}, "sources": [],
            "stateOperators": [],
        }  # fmt: skip
        known = [
            {"id": o, "partitions": len(costs_ms), "state_root": "/state", "name": "StateStoreSave",
             "merged": False}
            for o, costs_ms in enumerate(self._busy_ms)
        ]  # fmt: skip
        columns = dict(zip(TaskColumns._fields, zip(*tasks, strict=True), strict=True))
        event = {
            "event": "batch_finished", "run": RUN_ID, "progress": progress, "trigger_ms": None,
            "files": [], "operators": known, "tasks": columns, "knows_all_executors": True,
            "preparations": [],
            "stages": [["stateful", count, 900, ended_ms - 8000, ended_ms, busy_ms]],
        }  # fmt: skip
        self._events.append(json.dumps(event, separators=(",", ":")))


def make_engine(listener: Listener) -> SparkEngine:
    """An engine whose JVM is only the listener."""
    capabilities = Capabilities(placement=True, problems=(), listener=listener)
    session = mock.MagicMock()
    # No folder of a checkpoint is listed, so each operator has the unnamed store.
    paths = session._jvm.org.apache.hadoop.fs.Path.return_value
    paths.getFileSystem.return_value.listStatus.return_value = []
    with mock.patch.object(engines, "check_capabilities", return_value=capabilities):
        return SparkEngine(session)


class Meter:
    """Milliseconds of CPU by part."""

    def __init__(self) -> None:
        self.spent_ms: dict[str, list[float]] = defaultdict(list)

    def run(self, part: str, call: Callable[..., _T], *args: Any) -> _T:
        """Calls, and notes what it took."""
        before_ns = time.process_time_ns()
        found = call(*args)
        self.spent_ms[part].append((time.process_time_ns() - before_ns) / 1e6)
        return found


def measure(
    partitions: int, operators: int, executors: int, skew: float, batches: int
) -> dict[str, float]:
    """The median milliseconds of CPU of each part of the loop per batch."""
    listener = Listener(partitions, operators, executors, skew)
    engine = make_engine(listener)
    while engine.wait(0.0) is not None:
        continue
    exporter = Exporter()
    registry = CollectorRegistry()
    registry.register(exporter)
    history = History(RunInfo("loop_cost", listener.now_s, 2, "", ""))
    journal = Journal(history, SilentView(), exporter, lambda: listener.now_s)
    realizer = Realizer(engine, journal)
    decider = Decider(realizer, Policy(), journal)
    meter = Meter()
    for batch in range(WARM_UP + batches):
        listener.finish(batch)
        if batch == WARM_UP:
            meter = Meter()
        event = meter.run("parse", engine.wait, 0.0)
        if not isinstance(event, BatchFinished):
            message = f"the engine made {event} of a batch"
            raise TypeError(message)
        meter.run("realize", realizer.finish_batch, event)
        live = engine.executors()
        record = meter.run("summarize", summarize, event, live)
        meter.run("journal", journal.add_batch, event, record, live)
        finished = FinishedBatch(event, record, live, listener.now_s)
        meter.run("decide", decider.finish_batch, finished)
        meter.run("scrape", generate_latest, registry)
    return {part: statistics.median(spent) for part, spent in meter.spent_ms.items()}


def main() -> None:
    with prepare("loop_cost", __doc__ or "") as benchmark:
        cases: list[Case] = [
            {"partitions": p, "operators": o, "executors": e, "repetition": repetition}
            for repetition in benchmark.repetitions
            for p, o, e in (SIZES[:1] if benchmark.smoke else SIZES)
        ]
        for case in benchmark.find_missing(cases):
            partitions, operators, executors, _ = (int(value) for value in case.values())
            spent_ms = measure(partitions, operators, executors, SKEW, BATCHES)
            rounded_ms = {part: round(ms, 3) for part, ms in spent_ms.items()}
            benchmark.record(None, case, {"skew": SKEW, "batches": BATCHES}, rounded_ms)


if __name__ == "__main__":
    run(main)
