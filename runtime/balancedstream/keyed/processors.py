"""A user's stateful processor, with keys that can be handed over between two micro-batches.

The owner of a key is the group (route, key). The epoch of a batch says what each owner must do:
`core.epochs` explains the protocol. State goes through the processor's own variables and timers,
with the API that the processor itself uses.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark import Accumulator, TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues
from pyspark.sql.types import BooleanType, DataType, IntegralType, StructType

from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.storage import BatchContext, Operator
from balancedstream.keyed.tasks import KeyTask
from balancedstream.keyed.variables import Clock, RecordingHandle
from balancedstream.workers.decoding import decode_next_stream
from balancedstream.workers.garbage import spare_loaded_modules
from balancedstream.workers.reports import KeyReport
from balancedstream.workers.rows import cut_row, name_columns

ROUTE_COLUMN = "balancedstream_route"

Rows = Iterator[Any]

Strip = Callable[[Rows, str, set[str]], Rows]
"""Turns Spark's rows into the user's.

Args:
    rows: of one key.
    key: as text.
    awaited: keys whose control row has not come yet; the function removes the key when it comes.

Returns:
    Rows without control rows and hidden columns.
"""


@dataclass(eq=False)
class MovableProcessor(StatefulProcessor):
    """Runs a processor, and hands over and takes over its keys.

    Rows of initial state may have other columns, so they are stripped in another way.
    """

    _processor: StatefulProcessor
    _operator: Operator
    _encoding: KeyEncoding
    _time_mode: str
    _reports: Accumulator[tuple[KeyReport, ...]]
    _strip: Strip
    _strip_initial: Strip

    def __post_init__(self) -> None:
        self._time_mode = self._time_mode.lower()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A worker calls this before it reads its first row."""
        self.__dict__.update(state)
        if isinstance(self._strip, StripRows):
            decode_next_stream(ROUTE_COLUMN)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark calls this once a task, and in the driver to find the state variables.

        Raises:
            InvalidInputError: a state variable cannot be handed over; no row was processed.
        """
        self._clock = Clock()
        self._handle: Any = RecordingHandle(handle, self._clock)
        self._task: KeyTask | None = None
        self._due_ms: dict[str, set[int]] = {}
        self._taken: set[str] = set()
        if TaskContext.get() is not None:
            spare_loaded_modules()
            self._task = KeyTask(BatchContext(self._operator))
        self._processor.init(self._handle)
        if self._task is not None:
            self._handle.check_variables()

    def handleInputRows(self, key: Any, rows: Rows, timerValues: TimerValues) -> Rows:
        """The user's rows of one key; its state arrives before them and leaves after them."""
        started_s = time.perf_counter()
        task = self._running_task()
        self._clock.now_ms = timerValues.getCurrentProcessingTimeInMs()
        route, values = key[0], tuple(key[1:])
        text = self._encoding.write(values)
        arrival = task.arrivals.get(text)
        if arrival is not None and arrival.source == route:
            self._clear()
            return
        # Spark may call several times for a key: with many rows, or if it does not equal itself.
        if arrival is not None and text not in self._taken:
            self._taken.add(text)
            task.take_over(arrival.piece, self._take_in)
        rows = self._strip(rows, text, task.awaited)
        first = next(rows, None)
        if first is not None:
            rows = itertools.chain((first,), rows)
            yield from self._processor.handleInputRows(values, rows, timerValues)
        is_asked = task.is_asked(text, has_rows=first is not None)
        if is_asked and not self._encoding.comes_twice(values):
            self._hand_over_when_settled(text, timerValues)
        task.sketch.update(text.encode(), time.perf_counter() - started_s)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: TimerValues,
        expiredTimerInfo: ExpiredTimerInfo,
    ) -> Rows:
        """A timer of the user's; the state leaves after the last timer that is due."""
        started_s = time.perf_counter()
        self._clock.now_ms = timerValues.getCurrentProcessingTimeInMs()
        # A `Row`, unlike the tuple of `handleInputRows`, because Spark stored it with the timer.
        values = cut_row(key, slice(1, None))
        text = self._encoding.write(values)
        yield from self._processor.handleExpiredTimer(values, timerValues, expiredTimerInfo)
        fired_ms = expiredTimerInfo.getExpiryTimeInMs()
        due_ms = self._due_ms.get(text, set())
        if fired_ms in due_ms:
            due_ms.remove(fired_ms)
            if not due_ms:
                self._hand_over(text, fired_ms)
        self._running_task().sketch.update(text.encode(), time.perf_counter() - started_s)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: TimerValues) -> None:
        """The user's initial state of one key."""
        self._clock.now_ms = timerValues.getCurrentProcessingTimeInMs()
        for initial in self._strip_initial(iter((initialState,)), "", set()):
            self._processor.handleInitialState(tuple(key)[1:], initial, timerValues)

    def close(self) -> None:
        """Spark calls this at the end, before the task succeeds."""
        self._processor.close()
        if self._task is not None:
            self._reports.add((self._task.finish(),))

    def _running_task(self) -> KeyTask:
        assert self._task is not None  # noqa: S101 - Spark gives no rows to the driver's processor
        return self._task

    def _hand_over_when_settled(self, text: str, timer_values: TimerValues) -> None:
        """Hands over after the timers that are due: Spark fires them after all rows."""
        due_ms = {t for t in self._list_timers() if t < self._find_threshold_ms(timer_values)}
        if due_ms:
            self._due_ms[text] = due_ms
        else:
            self._hand_over(text)

    def _hand_over(self, text: str, fired_ms: int | None = None) -> None:
        """Writes all state of the key; Spark deletes the timer that fired after this."""

        def read() -> Any:
            contents = {name: variable.write() for name, variable in self._handle.variables.items()}
            held = {name: content for name, content in contents.items() if content is not None}
            timers_ms = [t for t in self._list_timers() if t != fired_ms]
            return (held, timers_ms) if held or timers_ms else None

        self._running_task().hand_over(text, read, as_instants=True)

    def _take_in(self, content: tuple[dict[str, Any], list[int]]) -> None:
        held, timers_ms = content
        for name, state in held.items():
            if name in self._handle.variables:
                self._handle.variables[name].take(state)
        for timer_ms in timers_ms:
            self._handle.registerTimer(timer_ms)

    def _clear(self) -> None:
        for variable in self._handle.variables.values():
            variable.clear()
        for timer_ms in self._list_timers():
            self._handle.deleteTimer(timer_ms)

    def _list_timers(self) -> list[int]:
        return [] if self._time_mode == "none" else [*self._handle.listTimers()]

    def _find_threshold_ms(self, timer_values: TimerValues) -> int:
        """Timers before this are due."""
        by_event = self._time_mode == "eventtime"
        now_ms: int = (
            timer_values.getCurrentWatermarkInMs()
            if by_event
            else timer_values.getCurrentProcessingTimeInMs()
        )
        return now_ms


def fill_control(data_type: DataType) -> int | None:
    """The value of control rows in the user's columns: null, so that they move no watermark.

    But a null would turn pandas' whole numbers into floats, and its booleans into objects.
    """
    return 0 if isinstance(data_type, IntegralType | BooleanType) else None


class StripRows:
    """A `Strip` of rows, whose last column is hidden: the route.

    PySpark makes a Python object of each cell of each row: a column that marks control rows would
    cost more than everything else for a row. The epoch says which keys have a control row, and the
    values in its columns are known. If a row of the user has the same values, it does not matter
    which of the two is removed.
    """

    def __init__(self, schema: StructType, keys: Sequence[str]) -> None:
        self._columns = tuple(schema.names)
        self._fills = _list_fills(schema, keys)

    def __call__(self, rows: Rows, key: str, awaited: set[str]) -> Rows:
        """See `Strip`."""
        cut = map(name_columns(self._columns), rows)
        return self._drop_control(cut, key, awaited) if key in awaited else cut

    def _drop_control(self, rows: Rows, key: str, awaited: set[str]) -> Rows:
        for row in rows:
            if key in awaited and self._is_control(row):
                awaited.remove(key)
            else:
                yield row

    def _is_control(self, row: Row) -> bool:
        return all(
            row[place] is None if fill is None else row[place] == fill
            for place, fill in self._fills
        )


class StripFrames:
    """A `Strip` of pandas frames; it finds control rows as `StripRows` does.

    Frames are changed, not copied: each is made for one call.
    """

    def __init__(self, schema: StructType, keys: Sequence[str]) -> None:
        self._fills = _list_fills(schema, keys)

    def __call__(self, frames: Rows, key: str, awaited: set[str]) -> Rows:
        """See `Strip`; frames that become empty are left out."""
        for frame in frames:
            data = self._drop_control(frame, key, awaited) if key in awaited else frame
            if len(data):
                yield self.cut(data)

    def cut(self, frame: Any) -> Any:
        """One frame without its hidden column."""
        del frame[ROUTE_COLUMN]
        return frame

    def _drop_control(self, frame: Any, key: str, awaited: set[str]) -> Any:
        same = np.ones(len(frame), bool)
        for place, fill in self._fills:
            # Not by name: PySpark renames a column whose name is no identifier.
            column = frame.iloc[:, place]
            found = column.isna() if fill is None else column == fill
            same &= found.to_numpy(bool, na_value=False)
        places = np.flatnonzero(same)
        if not len(places):
            return frame
        awaited.remove(key)
        others = np.arange(len(frame)) != places[0]
        return frame[others].reset_index(drop=True)


def _list_fills(schema: StructType, keys: Sequence[str]) -> list[tuple[int, int | None]]:
    """Positions of the user's columns outside the key, and the value of a control row there."""
    return [
        (place, fill_control(field.dataType))
        for place, field in enumerate(schema)
        if field.name not in keys
    ]
