"""The streaming queries, one function for each operator kind.

Their answers do not depend on the order of rows within a batch, which Spark does not promise:
sums are of whole numbers, and lists are kept sorted. This module is sent to Spark's workers by
value, so it imports nothing of its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import pandas as pd
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from balancedstream import Aggregator

Read = Callable[[str], DataFrame]
"""Gives the stream of a table, with `at` watermarked."""

Group = Callable[..., Any]
"""Groups rows by columns: as Spark does it, or so that a stream's keys can be reassigned."""

Key = tuple[Any, ...]

IDLE_MS = 45_000
"""Event time without a row after which a key is closed."""

FIRST_TIMER_MS = 1_000
TIMER_STEP_MS = 150
TIMER_KEYS_EVERY = 12
"""Every so manieth id sets timers."""

TIMER_ROUNDS = 2
"""Each timer is set again once from its own expiry."""

RUNNING_SCHEMA = "key BIGINT, event STRING, rows BIGINT, total BIGINT, last_ms BIGINT"
TIMER_SCHEMA = "key BIGINT, event STRING, round BIGINT, due_ms BIGINT, batch_ms BIGINT"

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


@dataclass(frozen=True)
class Query:
    """One streaming query.

    Attributes:
        build: makes it from its tables.
        tables: that it reads, in the order in which Spark logs their offsets.
        output_mode: of Spark.
        states: options of Spark's state reader, one mapping for each thing to read.
        trigger: of Spark; the default reads all files, one a batch, and ends. Spark never ends a
            query in processing time by itself: `until-read` does so when it has read all.
        reassigned: whether keys change their state partition in a disturbed run; an undisturbed
            one is Spark's alone.
        name_key: the columns of the key of a number.
    """

    build: Callable[[Read, Group], DataFrame]
    tables: tuple[str, ...]
    output_mode: Literal["append", "update"]
    states: tuple[Mapping[str, str], ...]
    trigger: Literal["available-now", "until-read", "processing-time"] = "available-now"
    reassigned: bool = False
    name_key: Callable[[int], Key] = lambda number: (number,)


def aggregate(read: Read, group: Group) -> DataFrame:
    """Streaming aggregation."""
    return (
        read("orders")
        .groupBy("key")
        .agg(F.count("*").alias("rows"), F.sum("value").alias("total"), F.max("at").alias("last"))
    )


def drop_duplicates(read: Read, group: Group) -> DataFrame:
    """`dropDuplicates` with a watermark, which forgets what is old."""
    return read("orders").select("id", "at").dropDuplicates(["id", "at"])


def join(read: Read, group: Group) -> DataFrame:
    """Stream-stream left outer join on key and event time."""
    orders = read("orders").alias("o")
    payments = read("payments").alias("p")
    within = "o.key = p.key AND p.at BETWEEN o.at AND o.at + INTERVAL 5 SECONDS"
    return orders.join(payments, F.expr(within), "left_outer").select(
        "o.key", "o.id", "o.at", F.col("p.id").alias("paid"), F.col("p.at").alias("paid_at")
    )


def transform_rows(read: Read, group: Group) -> DataFrame:
    """`transformWithState`, rows: value, list and map state and an event-time timer."""
    return _group_millis(read("orders"), group).transformWithState(
        statefulProcessor=RowAccounts(),
        outputStructType=RUNNING_SCHEMA,
        outputMode="Update",
        timeMode="EventTime",
    )


def transform_pandas(read: Read, group: Group) -> DataFrame:
    """`transformWithStateInPandas`, the same job."""
    return _group_millis(read("orders"), group).transformWithStateInPandas(
        statefulProcessor=PandasAccounts(),
        outputStructType=RUNNING_SCHEMA,
        outputMode="Update",
        timeMode="EventTime",
    )


def apply_in_pandas(read: Read, group: Group) -> DataFrame:
    """`applyInPandasWithState` with an event-time timeout."""
    return _group_millis(read("orders"), group).applyInPandasWithState(
        count_running,
        RUNNING_SCHEMA,
        "rows BIGINT, total BIGINT, last_ms BIGINT",
        "update",
        GroupStateTimeout.EventTimeTimeout,
    )


def chain(read: Read, group: Group) -> DataFrame:
    """Two stateful operators in a row: windows, and windows of these windows."""
    short = (
        read("orders")
        .groupBy(F.window("at", "10 seconds"), "key")
        .agg(F.count("*").alias("rows"), F.sum("value").alias("total"))
    )
    return short.groupBy(F.window("window", "1 minute"), "key").agg(
        F.count("*").alias("windows"), F.sum("rows").alias("rows"), F.max("total").alias("most")
    )


def unite(read: Read, group: Group) -> DataFrame:
    """The union of two stateful branches."""
    seen = drop_duplicates(read, group).select("id", "at")
    counted = (
        read("payments")
        .groupBy(F.window("at", "10 seconds"), "key")
        .agg(F.sum("value").alias("total"))
        .select(F.col("total").alias("id"), F.col("window.start").alias("at"))
    )
    return seen.union(counted)


def set_timers(read: Read, group: Group) -> DataFrame:
    """`transformWithState` with a processing-time timer on every key that is set again once."""
    keys = (
        read("orders").select(F.col("id").alias("key")).where(F.col("key") % TIMER_KEYS_EVERY == 0)
    )
    return group(keys, "key").transformWithState(
        statefulProcessor=Alarms(),
        outputStructType=TIMER_SCHEMA,
        outputMode="Update",
        timeMode="ProcessingTime",
    )


def transform_wide(read: Read, group: Group) -> DataFrame:
    """`transformWithState` of wide keys and state, with initial state and times to live."""
    orders = read("orders")
    number = F.col("key").cast("int")
    rows = orders.select(
        F.format_string("Schlüssel %d", F.floor(number / 2)).alias("name"),
        F.when(number % 4 == 0, F.lit(-0.0))
        .when(number % 4 == 1, F.lit(0.0))
        .otherwise(number / 8)
        .alias("level"),
        (F.lit(FIRST) + F.make_dt_interval(hours=number)).alias("since"),
        "value",
        "at",
    )
    initial = orders.sparkSession.createDataFrame(
        [(*name_wide_key(number), number) for number in range(0, 40, 3)], f"{WIDE_KEY}, number INT"
    )
    columns = ("name", "level", "since")
    return group(rows, *columns).transformWithState(
        statefulProcessor=WideAccounts(),
        outputStructType=WIDE_SCHEMA,
        outputMode="Update",
        timeMode="ProcessingTime",
        initialState=group(initial, *columns),
    )


def name_wide_key(number: int) -> Key:
    """Neighbours differ in nothing but the zero's sign, or the number, and the hour."""
    level = (-0.0, 0.0)[number % 4] if number % 4 < 2 else number / 8
    return f"Schlüssel {number // 2}", level, FIRST + timedelta(hours=number)


def split_work(read: Read, group: Group) -> DataFrame:
    """Spark's aggregation, or `balanced(...).aggregate` that gives the same."""
    grouped = group(read("orders").select("key", "value", "at"), "key")
    if hasattr(grouped, "aggregate"):
        return grouped.aggregate(Totals())
    return aggregate(read, group)


def _group_millis(rows: DataFrame, group: Group) -> Any:
    return group(rows.select("key", "value", "at", F.unix_millis("at").alias("at_ms")), "key")


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


_ACCOUNTS = (
    {"stateVarName": "running"},
    {"stateVarName": "highest"},
    {"stateVarName": "minutes"},
    {"readRegisteredTimers": "true"},
)

AGGREGATION = Query(aggregate, ("orders",), "update", ({},))
JOIN = Query(
    join,
    ("orders", "payments"),
    "append",
    (
        {"joinSide": "left"},
        {"joinSide": "right"},
        {"storeName": "left-keyToNumValues"},
        {"storeName": "right-keyToNumValues"},
    ),
)

ALARMS = Query(
    set_timers,
    ("orders",),
    "update",
    ({"readRegisteredTimers": "true"},),
    trigger="processing-time",
    name_key=lambda number: (number * TIMER_KEYS_EVERY,),
)

KINDS: dict[str, dict[str, Query]] = {
    "aggregation": {"aggregation": AGGREGATION},
    "drop-duplicates": {"duplicates": Query(drop_duplicates, ("orders",), "append", ({},))},
    "join": {"join": JOIN},
    "transform-with-state-row": {
        "accounts": Query(transform_rows, ("orders",), "update", _ACCOUNTS)
    },
    "transform-with-state-pandas": {
        "accounts": Query(transform_pandas, ("orders",), "update", _ACCOUNTS)
    },
    "reassigned-keys-row": {
        "accounts": Query(transform_rows, ("orders",), "update", _ACCOUNTS, reassigned=True)
    },
    "reassigned-keys-pandas": {
        "accounts": Query(transform_pandas, ("orders",), "update", _ACCOUNTS, reassigned=True)
    },
    "apply-in-pandas-with-state": {
        "accounts": Query(apply_in_pandas, ("orders",), "update", ({},))
    },
    "chained-aggregations": {
        "chain": Query(chain, ("orders",), "append", ({"operatorId": "0"}, {"operatorId": "1"}))
    },
    "union-of-stateful-branches": {
        "union": Query(
            unite, ("orders", "payments"), "append", ({"operatorId": "0"}, {"operatorId": "1"})
        )
    },
    "several-queries": {"aggregation": AGGREGATION, "join": JOIN},
    "reassigned-keys-apply": {
        "accounts": Query(apply_in_pandas, ("orders",), "update", ({},), reassigned=True)
    },
    "reassigned-keys-wide": {
        "accounts": Query(
            transform_wide,
            ("orders",),
            "update",
            tuple({"stateVarName": name} for name in ("wide", "first", "recent", "minutes")),
            trigger="until-read",
            reassigned=True,
            # Zeros stay where they are.
            name_key=lambda number: name_wide_key(number | 2),
        )
    },
    "reassigned-keys-aggregate": {
        # Spark's own aggregation, which it is compared with, keeps another state.
        "totals": Query(split_work, ("orders",), "update", (), reassigned=True)
    },
    "processing-time-timers": {"alarms": ALARMS},
    "reassigned-keys-timers": {"alarms": replace(ALARMS, reassigned=True)},
}
"""The queries of each kind, by name."""

TIMERS = frozenset({"processing-time-timers", "reassigned-keys-timers"})
"""The kinds whose answer follows the wall clock: they have assertions of their own."""
