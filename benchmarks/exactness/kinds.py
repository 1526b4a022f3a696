"""The streaming queries, one function for each operator kind; `processors` is what they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

import pyspark
from nexmark import queries as nexmark
from processors import (
    FIRST,
    WIDE_KEY,
    WIDE_SCHEMA,
    Alarms,
    PandasAccounts,
    RowAccounts,
    Totals,
    WideAccounts,
    count_running,
)
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.state import GroupStateTimeout

from balancedstream.engine.traits import FEATURES, Version, read_version

Read = Callable[[str], DataFrame]
"""Gives the stream of a table, with its event time watermarked."""

Group = Callable[..., Any]
"""Groups rows by columns: as Spark does it, or so that a stream's keys can be reassigned."""

Key = tuple[Any, ...]
TIMER_KEYS_EVERY = 12
"""One of this many ids sets timers."""

RUNNING_SCHEMA = "key BIGINT, event STRING, rows BIGINT, total BIGINT, last_ms BIGINT"
TIMER_SCHEMA = "key BIGINT, event STRING, round BIGINT, due_ms BIGINT, batch_ms BIGINT"


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


def _take_over(query: nexmark.Query) -> Query:
    """A query of NEXMark's as one of these; its output alone is compared."""
    return Query(lambda read, _: query.build(read), query.tables, query.output_mode, ())


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
_EVERY_KIND: dict[str, dict[str, Query]] = {
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
    **{f"nexmark-{name}": {name: _take_over(query)} for name, query in nexmark.QUERIES.items()},
}
_FIRST_SPARK: dict[str, Version] = {
    "transform-with-state-row": (4, 1),
    "transform-with-state-pandas": (4, 0),
    "processing-time-timers": (4, 1),
    **{f"nexmark-{name}": query.since for name, query in nexmark.QUERIES.items()},
}
_STATE_READABLE_SINCE: Version = (4, 0)
"""The first with a state reader. That of 4.0 reads format 1 only, which all write there."""


def _select(spark: Version) -> dict[str, dict[str, Query]]:
    """The kinds that a version of Spark has; what it cannot read of a state is not compared."""
    found = {}
    for kind, queries in _EVERY_KIND.items():
        reassigned = any(query.reassigned for query in queries.values())
        first = FEATURES["balanced"][0] if reassigned else _FIRST_SPARK.get(kind, spark)
        if spark < first:
            continue
        is_readable = spark >= _STATE_READABLE_SINCE
        found[kind] = {
            name: query if is_readable else replace(query, states=())
            for name, query in queries.items()
        }
    return found


KINDS = _select(read_version(pyspark.__version__))
"""The queries of each kind, by name."""

TIMERS = frozenset({"processing-time-timers", "reassigned-keys-timers"})
"""The kinds whose answer depends on the clock: they have assertions of their own."""

NEXMARK = frozenset(kind for kind in KINDS if kind.startswith("nexmark-"))
"""The kinds whose answer another engine knows."""

UNDISTURBED = frozenset(KINDS) - TIMERS - NEXMARK
"""The kinds whose answer is that of an undisturbed run."""
