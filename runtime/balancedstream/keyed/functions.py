"""A user's function for `applyInPandasWithState`, with keys that can be handed over.

The protocol is that of `processors`. Here a key has one state and one timeout, and Spark does not
say when a task ends: the file is closed, and its keys are reported, when Spark collects the task
report.
"""

from __future__ import annotations

import datetime
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import Accumulator, TaskContext
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import TimestampType

from balancedstream.core.keys.epochs import Arrival
from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.processors import Rows, StripFrames
from balancedstream.keyed.storage import BatchContext, Operator
from balancedstream.keyed.tasks import KeyTask
from balancedstream.workers.garbage import spare_loaded_modules
from balancedstream.workers.reports import KeyReport

Function = Callable[[Any, Iterator[Any], Any], Iterator[Any]]


class SeenState:
    """Spark's `GroupState` for a user's function; it records what the function does to it.

    Args:
        state: Spark's own, for everything that is not defined here.
        timed_out: whether the function is called because the key timed out.

    Attributes:
        hasTimedOut: as Spark's.
        changed: whether the function updated or removed the state.
        timeout_ms: the timeout that the function set; -1 for none.
    """

    def __init__(self, state: GroupState, *, timed_out: bool) -> None:
        self._state = state
        self.hasTimedOut = timed_out
        self.changed = False
        self.timeout_ms: int = GroupState.NO_TIMESTAMP

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def update(self, newValue: Any) -> None:
        """As Spark's."""
        self._state.update(newValue)
        self.changed = True

    def remove(self) -> None:
        """As Spark's."""
        self._state.remove()
        self.changed = True

    def setTimeoutDuration(self, durationMs: int) -> None:
        """As Spark's."""
        self._state.setTimeoutDuration(durationMs)
        self.timeout_ms = durationMs + self._state.getCurrentProcessingTimeMs()

    def setTimeoutTimestamp(self, timestampMs: Any) -> None:
        """As Spark's."""
        self._state.setTimeoutTimestamp(timestampMs)
        is_time = isinstance(timestampMs, datetime.datetime)
        exact_ms = TimestampType().toInternal(timestampMs) / 1000 if is_time else timestampMs
        self.timeout_ms = int(exact_ms)


class _LateTask(KeyTask):
    """A task that pickles as its report: Spark collects it when the task ends."""

    def __reduce__(self) -> tuple[type, tuple[KeyReport]]:
        return dict, (self.finish(),)


@dataclass(eq=False)
class MovableFunction:
    """Runs a function, and hands over and takes over its keys."""

    _function: Function
    _operator: Operator
    _encoding: KeyEncoding
    _timeout: str
    _reports: Accumulator[tuple[Any, ...]]
    _strip: StripFrames
    _task: _LateTask | None = None
    _attempt: int = -1

    def __call__(self, key: Any, frames: Rows, state: GroupState) -> Rows:
        """One key of one batch or, after all of these, one key that timed out."""
        started_s = time.perf_counter()
        task = self._find_task()
        route, values = key[0], tuple(key[1:])
        text = self._encoding.write(values)
        arrival = task.arrivals.get(text)
        if state.hasTimedOut:
            # Spark's only frame is empty, and the user's function may read its columns.
            given = map(self._strip.cut, frames)
            yield from self._function(values, given, SeenState(state, timed_out=True))
        elif arrival is not None and arrival.source == route:
            state.remove()
            return
        else:
            taken_ms = _take_over(task, arrival, state)
            yield from self._run(task, text, values, frames, state, taken_ms)
        task.sketch.update(text.encode(), time.perf_counter() - started_s)

    def _run(
        self, task: KeyTask, text: str, values: Any, frames: Rows, state: GroupState, taken_ms: int
    ) -> Rows:
        every = iter(frames)
        beginning = next(every)
        nothing = None
        if taken_ms != GroupState.NO_TIMESTAMP:
            # A frame with its columns, taken before the function may change them.
            nothing = self._strip.cut(beginning.iloc[:0])
        data = self._strip(itertools.chain((beginning,), every), text, task.awaited)
        first = next(data, None)
        seen = SeenState(state, timed_out=False)
        if first is not None:
            yield from self._function(values, itertools.chain((first,), data), seen)
        untouched = not seen.changed and seen.timeout_ms == GroupState.NO_TIMESTAMP
        if untouched and nothing is not None:
            # The timeout that came with the state stays: Spark clears it only if the state changes.
            if self._is_due(taken_ms, state):
                # Spark accepts no timeout in the past, and would call in a later batch.
                timed_out = SeenState(state, timed_out=True)
                yield from self._function(values, iter((nothing,)), timed_out)
                return
            self._set_timeout(taken_ms, state)
        is_asked = task.is_asked(text, has_rows=first is not None)
        # Spark does not tell Python the timeout of a key, so an earlier one is not known here.
        if is_asked and (self._timeout == GroupStateTimeout.NoTimeout or not untouched):
            left = (state.getOption, seen.timeout_ms)
            is_nothing = left == (None, GroupState.NO_TIMESTAMP)
            task.hand_over(text, lambda: None if is_nothing else left)

    def _is_due(self, timeout_ms: int, state: GroupState) -> bool:
        """Spark calls the function for keys with a timeout before this batch's time."""
        if timeout_ms == GroupState.NO_TIMESTAMP or self._timeout == GroupStateTimeout.NoTimeout:
            return False
        by_event = self._timeout == GroupStateTimeout.EventTimeTimeout
        now_ms: int = (
            state.getCurrentWatermarkMs() if by_event else state.getCurrentProcessingTimeMs()
        )
        return timeout_ms < now_ms

    def _set_timeout(self, timeout_ms: int, state: GroupState) -> None:
        if timeout_ms == GroupState.NO_TIMESTAMP:
            return
        if self._timeout == GroupStateTimeout.EventTimeTimeout:
            state.setTimeoutTimestamp(timeout_ms)
        elif self._timeout == GroupStateTimeout.ProcessingTimeTimeout:
            state.setTimeoutDuration(max(1, timeout_ms - state.getCurrentProcessingTimeMs()))

    def _find_task(self) -> _LateTask:
        attempt: Any = TaskContext.get()
        if self._task is None or self._attempt != attempt.taskAttemptId():
            spare_loaded_modules()
            self._attempt = attempt.taskAttemptId()
            self._task = _LateTask(BatchContext(self._operator))
            self._reports.add((self._task,))
        return self._task


def _take_over(task: KeyTask, arrival: Arrival | None, state: GroupState) -> int:
    """Takes over the state of a key that arrives; returns its timeout, -1 for none."""

    def take_in(content: tuple[Any, int]) -> int:
        held, timeout_ms = content
        if held is not None:
            state.update(held)
        return timeout_ms

    found_ms = task.take_over(arrival.piece, take_in) if arrival is not None else None
    return GroupState.NO_TIMESTAMP if found_ms is None else found_ms
