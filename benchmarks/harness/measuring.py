"""Waits for the batches of a query, with Spark alone or balanced, and measures their balance."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from balancedstream.core.balance.imbalance import ImbalanceMeasurement, measure_imbalance
from balancedstream.core.policy import Policy
from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished, Event
from balancedstream.loop.controller import Controller
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo
from balancedstream.record.spectators import Metrics
from harness.benchmark import MeasurementError
from harness.silent import SilentView
from harness.waiting import wait_until

DEFAULT_POLICY = Policy()

VANILLA_LOCALITY_WAIT_S = 3.0
"""Spark's default of `spark.locality.wait`."""

PATIENCE_S = 300.0
"""A query that does not finish the batches asked for in this time has failed."""


class MeasuringEngine(SparkEngine):
    """An engine that remembers the events taken from it, in one arm after the other."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self._taken: list[Event] = []

    def wait(self, timeout_s: float) -> Event | None:
        event = super().wait(timeout_s)
        if event is not None:
            self._taken.append(event)
        return event

    def events(self) -> list[Event]:
        return list(self._taken)

    def batches(self, query: str) -> list[BatchFinished]:
        """The finished batches of a query, oldest first."""
        return [e for e in self.events() if isinstance(e, BatchFinished) and e.query == query]

    def close(self) -> None:
        """Ends balancing only: the arms that follow are measured, too."""
        self.give_locality_wait_back()

    def forget_events(self) -> None:
        self._taken.clear()

    def await_batches(self, query: StreamingQuery, count: int) -> list[BatchFinished]:
        """Waits until a query has finished `count` batches; another thread takes the events.

        Raises:
            MeasurementError: the query failed, or takes too long.
        """
        name = query.name
        await_that(lambda: len(self.batches(name)) >= count, query)
        return self.batches(name)


def await_that(holds: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    """Waits until something holds, as long as a query runs.

    Raises:
        MeasurementError: the query failed, or it takes too long.
    """
    wait_until(
        holds,
        check=lambda: check_alive(query) if query else None,
        patience_s=PATIENCE_S,
        complain=lambda: f"what was waited for did not happen within {PATIENCE_S:.0f} s",
    )


def check_alive(query: StreamingQuery) -> None:
    """Raises MeasurementError if the query failed."""
    error = query.exception()
    if error is not None:
        message = f"the query failed: {error}"
        raise MeasurementError(message)


def await_progress(query: StreamingQuery, skip: int, count: int) -> list[dict[str, Any]]:
    """Leaves out the next `skip` batches and gives Spark's own report of the `count` after them.

    Raises:
        MeasurementError: the query failed, or it takes too long.
    """

    def last_batch() -> int:
        progress = query.lastProgress
        return -1 if progress is None else int(progress["batchId"])

    first = last_batch() + 1 + skip
    await_that(lambda: last_batch() >= first + count - 1, query)
    return [p for p in query.recentProgress if first <= p["batchId"] < first + count]


@contextmanager
def watching(engine: MeasuringEngine) -> Iterator[None]:
    """Vanilla Spark: events are taken and nothing is done; Spark's own locality wait."""
    engine.set_locality_wait_s(VANILLA_LOCALITY_WAIT_S)
    engine.set_warm_up(wanted=False)
    stopping = threading.Event()

    def take_events() -> None:
        while engine.wait(0.5) is not None or not stopping.is_set():
            pass

    reader = threading.Thread(target=take_events, daemon=True)
    reader.start()
    try:
        yield
    finally:
        stopping.set()
        reader.join()


@contextmanager
def balancing(engine: MeasuringEngine, policy: Policy = DEFAULT_POLICY) -> Iterator[History]:
    """The job is balanced; gives the history of what was done."""
    history = open_history()
    controller = Controller(engine, policy, open_journal(history))
    controller.start()
    try:
        yield history
    finally:
        controller.stop()


def open_history() -> History:
    """An empty one."""
    return History(RunInfo("benchmark", time.time(), 0, "", ""))


def open_journal(history: History) -> Journal:
    """Writes to a history, and shows nothing."""
    return Journal(history, SilentView(), Metrics(), time.time)


def measure_balance(event: BatchFinished, executors: Mapping[str, int]) -> ImbalanceMeasurement:
    """Imbalance of a batch and its bound, without restoring state, as the controller sees it."""
    busy_s = {task.partition: task.work_s for task in event.tasks}
    placement = {task.partition: task.executor for task in event.tasks}
    return measure_imbalance(busy_s, placement, executors)
