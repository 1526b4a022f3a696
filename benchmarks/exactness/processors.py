"""What the queries do with the rows of a key: stateful processors, an aggregator, a function.

Their answers do not depend on the order of rows within a batch, which Spark does not guarantee:
sums are of whole numbers, and lists are kept sorted. This module is sent to Spark's workers by
value, so it imports nothing of its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState

from balancedstream.engine.traits import UnsupportedSparkError

try:
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
except ImportError:  # Spark 3.5; `kinds` leaves out what needs it
    StatefulProcessor = StatefulProcessorHandle = object
try:
    from balancedstream import Aggregator
except UnsupportedSparkError:
    Aggregator = object  # type: ignore[assignment, misc]

IDLE_MS = 45_000
"""Event time without a row after which a key is closed."""

FIRST_TIMER_MS = 1_000
TIMER_STEP_MS = 150
TIMER_ROUNDS = 2
"""Each timer is set again once from its own expiry."""

LIVES_MS = 3_600_000
"""A time to live that no run is long enough to see the end of."""

INITIAL_ROWS = 1_000
"""What every third key begins with."""

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
WIDE_KEY = "name STRING, level DOUBLE, since TIMESTAMP"
WIDE_STATE = (
    "rows BIGINT, most DECIMAL(20, 2), last TIMESTAMP, local TIMESTAMP_NTZ, day DATE, seal BINARY"
)
WIDE_SCHEMA = f"{WIDE_KEY}, {WIDE_STATE}, first BIGINT, recent STRING, minutes STRING"
WIDE_ROW = Row(
    *("name", "level", "since"),
    *("rows", "most", "last", "local", "day", "seal"),
    *("first", "recent", "minutes"),
)


class _Accounts(StatefulProcessor):  # type: ignore[misc]
    """Counts the rows of a key in three kinds of state, and closes it once it was idle."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.running = handle.getValueState("running", "rows BIGINT, total BIGINT, last_ms BIGINT")
        self.highest = handle.getListState("highest", "value BIGINT")
        self.minutes = handle.getMapState("minutes", "minute BIGINT", "rows BIGINT")

    def count(self, new: list[tuple[int, int]]) -> tuple[int, int, int]:
        """Takes rows (at_ms, value) in; returns the running rows, total and last_ms."""
        rows, total, last_ms = self.running.get() if self.running.exists() else (0, 0, 0)
        if last_ms:
            self.handle.deleteTimer(last_ms + IDLE_MS)
        rows += len(new)
        total += sum(value for _, value in new)
        last_ms = max(last_ms, *(at_ms for at_ms, _ in new))
        self.handle.registerTimer(last_ms + IDLE_MS)
        self.running.update((rows, total, last_ms))
        known = [value for (value,) in self.highest.get()] if self.highest.exists() else []
        highest = sorted(known + [value for _, value in new])[-3:]
        self.highest.put([(value,) for value in highest])
        for minute in sorted({at_ms // 60_000 for at_ms, _ in new}):
            more = sum(at_ms // 60_000 == minute for at_ms, _ in new)
            key = (minute,)
            before = self.minutes.getValue(key)[0] if self.minutes.containsKey(key) else 0
            self.minutes.updateValue(key, (before + more,))
        return rows, total, last_ms

    def close_key(self) -> tuple[int, int, int]:
        rows, total, last_ms = self.running.get()
        self.running.clear()
        self.highest.clear()
        self.minutes.clear()
        return rows, total, last_ms

    def close(self) -> None:
        pass


class RowAccounts(_Accounts):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        yield _running_row(key, "counted", self.count([(r.at_ms, r.value) for r in rows]))

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        yield _running_row(key, "closed", self.close_key())


class PandasAccounts(_Accounts):
    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        new = [
            (int(at_ms), int(value))
            for frame in rows
            for at_ms, value in zip(frame["at_ms"], frame["value"], strict=True)
        ]
        yield _frame(_running_row(key, "counted", self.count(new)))

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        yield _frame(_running_row(key, "closed", self.close_key()))


class Alarms(StatefulProcessor):  # type: ignore[misc]
    """Sets a timer when it first sees a key, and again when it fires, `TIMER_ROUNDS` in all."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.round = handle.getValueState("round", "round BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for _ in rows:
            pass
        if not self.round.exists():
            yield self._set(key, 1, timerValues.getCurrentProcessingTimeInMs())

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        (fired,) = self.round.get()
        due_ms = expiredTimerInfo.getExpiryTimeInMs()
        yield Row(key=key[0], event="fired", round=fired, due_ms=due_ms, batch_ms=now_ms)
        if fired < TIMER_ROUNDS:
            yield self._set(key, fired + 1, now_ms)

    def _set(self, key: Any, number: int, now_ms: int) -> Row:
        due_ms = now_ms + FIRST_TIMER_MS + TIMER_STEP_MS * (key[0] % 16)
        self.handle.registerTimer(due_ms)
        self.round.update((number,))
        return Row(key=key[0], event="set", round=number, due_ms=due_ms, batch_ms=now_ms)

    def close(self) -> None:
        pass


class WideAccounts(StatefulProcessor):  # type: ignore[misc]
    """Keeps values of many types, and says all of them each time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.wide = handle.getValueState("wide", WIDE_STATE)
        self.first = handle.getValueState("first", "value BIGINT", LIVES_MS)
        self.recent = handle.getListState("recent", "value BIGINT", LIVES_MS)
        self.minutes = handle.getMapState("minutes", "at TIMESTAMP", "rows BIGINT", LIVES_MS)

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:  # noqa: N802, N803
        self.wide.update(_make_wide(INITIAL_ROWS, Decimal(initialState.number), FIRST))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        new = sorted((row.at.astimezone(UTC), row.value) for row in rows)
        before, most, last, *_ = self.wide.get() or (0, Decimal(0), FIRST)
        values = [value for _, value in new]
        last = max(last.astimezone(UTC), *(at for at, _ in new))
        self.wide.update(_make_wide(before + len(new), max(most, *map(Decimal, values)), last))
        if not self.first.exists():
            self.first.update((min(values),))
        self.recent.appendList([(value,) for value in sorted(values)])
        for at, _ in new:
            minute = (at.replace(second=0, microsecond=0),)
            seen = (self.minutes.getValue(minute) or (0,))[0]
            self.minutes.updateValue(minute, (seen + 1,))
        yield WIDE_ROW(
            *key,
            *self.wide.get(),
            *self.first.get(),
            str([value for (value,) in self.recent.get()]),
            str(sorted((str(at.astimezone(UTC)), n) for (at,), (n,) in self.minutes.iterator())),
        )

    def close(self) -> None:
        pass


def _make_wide(rows: int, most: Decimal, last: datetime) -> tuple[Any, ...]:
    local = last.replace(tzinfo=None)
    return rows, most, last, local, date(2024, 1, 1 + rows % 31), bytes([0, rows % 256])


class Totals(Aggregator):
    """Rows, sum and the last time."""

    state_schema = "rows BIGINT, total BIGINT, last TIMESTAMP"
    output_schema = state_schema

    def zero(self) -> tuple[Any, ...]:
        return 0, 0, FIRST

    def add(self, state: tuple[Any, ...], rows: Sequence[Row]) -> tuple[Any, ...]:
        count, total, last = state
        total += sum(row.value for row in rows)
        return count + len(rows), total, max(last, *(row.at for row in rows))

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return left[0] + right[0], left[1] + right[1], max(left[2], right[2])

    def finish(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        return state


def count_running(
    key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    if state.hasTimedOut:
        last = state.get
        state.remove()
        yield _frame(_running_row(key, "closed", last))
        return
    rows, total, last_ms = state.get if state.exists else (0, 0, 0)
    for frame in frames:
        rows += len(frame)
        total += int(frame["value"].sum())
        last_ms = max(last_ms, int(frame["at_ms"].max()))
    state.update((rows, total, last_ms))
    state.setTimeoutTimestamp(last_ms + IDLE_MS)
    yield _frame(_running_row(key, "counted", (rows, total, last_ms)))


def _running_row(key: Any, event: str, running: tuple[int, int, int]) -> Row:
    rows, total, last_ms = running
    return Row(key=int(key[0]), event=event, rows=rows, total=total, last_ms=last_ms)


def _frame(row: Row) -> pd.DataFrame:
    return pd.DataFrame([row.asDict()])
