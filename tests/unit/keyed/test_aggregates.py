"""Rows are folded into partial states, and merged ones give what all rows together give."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType

from balancedstream.errors import InvalidInputError
from balancedstream.keyed.aggregates import (
    STATE_COLUMN,
    Aggregation,
    Aggregator,
    MergingProcessor,
    fold_rows,
    make_fold,
)
from balancedstream.keyed.encoding import KeyEncoding

ROWS = StructType().add("user", spark.StringType()).add("n", spark.LongType())


class Spread(Aggregator):
    """How many rows, the greatest number, and which numbers there were."""

    state_schema = (
        StructType()
        .add("rows", spark.LongType())
        .add("most", spark.LongType())
        .add("seen", spark.ArrayType(spark.LongType()))
    )
    output_schema = StructType().add("rows", spark.LongType()).add("most", spark.LongType())

    def zero(self) -> tuple[Any, ...]:
        return (0, None, [])

    def add(self, state: tuple[Any, ...], rows: Sequence[Row]) -> tuple[Any, ...]:
        numbers = [row.n for row in rows]
        assert state == (0, None, [])
        return (len(numbers), max(numbers), sorted({*numbers}))

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return (left[0] + right[0], max(left[1], right[1]), sorted({*left[2], *right[2]}))

    def finish(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        return state[:2]


SPREAD = Aggregation(Spread())


class Store:
    """One key's state, and its timers."""

    def __init__(self) -> None:
        self.value: tuple[Any, ...] | None = None
        self.timers: set[int] = set()
        self.ttl_ms: int | None = None

    def getValueState(self, name: str, schema: str, ttl_ms: int | None) -> Store:
        self.ttl_ms = ttl_ms
        return self

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None

    def registerTimer(self, at_ms: int) -> None:
        self.timers.add(at_ms)


def fold(rows: Sequence[tuple[str | None, int]], aggregator: Aggregator) -> list[Any]:
    """What one task makes of its rows, as rows with the key and the state."""
    encoding = KeyEncoding(StructType([ROWS["user"]]))
    run = make_fold(Aggregation(aggregator), ROWS, ["user"], encoding)
    arrow = pa.schema([("user", pa.string()), ("n", pa.int64())])
    batch = pa.RecordBatch.from_pylist([{"user": u, "n": n} for u, n in rows], schema=arrow)
    found = [row for part in run(iter([batch])) for row in part.to_pylist()]
    return [(row["user"], *SPREAD.unpack(row[STATE_COLUMN])) for row in found]


def merge(parts: Sequence[Any], aggregator: Aggregator, store: Store, **options: Any) -> list[Any]:
    """What the stateful step says to the partial states of one key."""
    processor = MergingProcessor(Aggregation(aggregator), ["user"], **options)
    processor.init(store)
    pack = SPREAD.make_packer("add")
    rows = [Row("user", STATE_COLUMN)("de", pack(part, None)) for part in parts]
    return [*processor.handleInputRows(("de",), iter(rows), SimpleNamespace())]


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.sampled_from(["de", "fr", None]), st.integers(-9, 9)), max_size=30),
    st.data(),
)
def test_however_rows_are_split_over_tasks_and_batches_the_state_is_that_of_all_rows(
    rows: list[tuple[str | None, int]], data: st.DataObject
) -> None:
    aggregator = Spread()
    tasks: list[list[Any]] = [[], [], [], []]
    for row in rows:
        tasks[data.draw(st.integers(0, 3))].append(row)
    parts = data.draw(st.permutations([p for task in tasks for p in fold(task, aggregator)]))
    for key in {key for key, _ in rows}:
        store = Store()
        states = [state for user, state, _ in parts if user == key]
        cut = data.draw(st.integers(0, len(states)))
        said = merge(states[:cut], aggregator, store) + merge(states[cut:], aggregator, store)
        numbers = [n for k, n in rows if k == key]
        assert store.value is not None
        state, _ = SPREAD.unpack(store.value[0])
        assert state == (len(numbers), max(numbers), sorted({*numbers}))
        assert said[-1] == ("de", len(numbers), max(numbers))
        assert [*said[-1].__fields__] == ["user", "rows", "most"]


def test_a_task_gives_one_partial_state_a_key_and_one_for_rows_without_a_key() -> None:
    parts = fold([("de", 1), (None, 2), ("de", 3), (None, 4), ("fr", 5)], Spread())
    assert Counter(user for user, *_ in parts) == {"de": 1, "fr": 1, None: 1}


def test_a_fold_keeps_the_order_of_rows_and_says_where_each_key_began() -> None:
    seen = []

    class Listing(Spread):
        def add(self, state: tuple[Any, ...], rows: Sequence[Row]) -> tuple[Any, ...]:
            seen.append([row.n for row in rows])
            return state

    rows = [Row("user", "n")(user, n) for n, user in enumerate("abab")]
    assert [first for first, _ in fold_rows(Listing(), [*"abab"], rows)] == [0, 1]
    assert seen == [[0, 2], [1, 3]]


def test_keys_keep_their_values_whatever_their_type() -> None:
    class Counting(Spread):
        def add(self, state: tuple[Any, ...], rows: Sequence[Row]) -> tuple[Any, ...]:
            return (len(rows), None, [])

    schema = StructType().add("share", spark.DoubleType())
    run = make_fold(Aggregation(Counting()), schema, ["share"], KeyEncoding(schema))
    batch = pa.RecordBatch.from_pydict({"share": [0.0, math.nan, -0.0, math.nan, None, 1.5]})
    (part,) = run(iter([batch.slice(0, 0), batch]))
    keys = [repr(key) for key in part.column("share").to_pylist()]
    rows = [SPREAD.unpack(state)[0][0] for state in part.column(STATE_COLUMN).to_pylist()]
    assert dict(zip(keys, rows, strict=True)) == {"0.0": 2, "nan": 2, "None": 1, "1.5": 1}


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_a_window_is_kept_until_its_end_and_appended_once(zone: str | None) -> None:
    times = pa.timestamp("us", zone)
    span = pa.struct([("start", times), ("end", times)])
    of_time = spark.TimestampType() if zone else spark.TimestampNTZType()
    of_window = StructType().add("start", of_time).add("end", of_time)
    schema = StructType().add("window", of_window).add("n", spark.LongType())
    minute = pa.array([0, 60_000_000], pa.int64()).cast(times).to_pylist()
    window = dict(zip(("start", "end"), minute, strict=True))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([window, window], span), pa.array([7, 5])], names=["window", "n"]
    )
    encoding = KeyEncoding(StructType([schema["window"]]))
    run = make_fold(Aggregation(Spread()), schema, ["window"], encoding, "window")
    ((part,),) = (made.to_pylist() for made in run(iter([batch])))

    store = Store()
    processor = MergingProcessor(Aggregation(Spread()), ["window"], appends=True)
    processor.init(store)
    rows = iter([Row(*part)(*part.values())])
    assert [*processor.handleInputRows((window,), rows, SimpleNamespace())] == []
    assert store.timers == {59_999}
    assert [*processor.handleExpiredTimer((window,), None, None)] == [(window, 2, 7)]
    assert store.value is None
    assert [*processor.handleExpiredTimer((window,), None, None)] == []


class Latest(Spread):
    state_schema = StructType().add("at", spark.TimestampType())
    output_schema = state_schema

    def zero(self) -> tuple[Any, ...]:
        return (None,)

    def add(self, state: tuple[Any, ...], rows: Sequence[Row]) -> tuple[Any, ...]:
        inner = [row.visit["times"][0] for row in rows]
        assert inner == [row.at for row in rows]
        return (max(inner),)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_times_are_in_utc_whatever_zone_the_session_and_the_machine_are_in(
    zone: str, travel: Callable[[str], None]
) -> None:
    travel("America/New_York")
    moment = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    of_visit = StructType().add("times", spark.ArrayType(spark.TimestampType()))
    schema = StructType().add("user", spark.StringType()).add("at", spark.TimestampType())
    schema.add("visit", of_visit)
    times = pa.timestamp("us", zone)
    visit = pa.struct([("times", pa.list_(times))])
    arrow = pa.schema([("user", pa.string()), ("at", times), ("visit", visit)])
    row = {"user": "de", "at": moment, "visit": {"times": [moment]}}
    batch = pa.RecordBatch.from_pylist([row], schema=arrow)
    aggregation = Aggregation(Latest())
    run = make_fold(aggregation, schema, ["user"], KeyEncoding(StructType([schema["user"]])))
    ((part,),) = (made.to_pylist() for made in run(iter([batch])))
    assert aggregation.unpack(part[STATE_COLUMN])[0] == (moment,)


def test_state_that_was_kept_with_other_columns_is_refused() -> None:
    store = Store()
    merge([(1, 1, [1])], Spread(), store)
    first, *others = Spread.state_schema
    renamed = StructType([StructField("n", first.dataType), *others])
    changed = type("Changed", (Spread,), {"state_schema": renamed})()
    with pytest.raises(InvalidInputError, match=r"^Changed.state_schema: .*with other columns"):
        merge([(1, 2, [2])], changed, store)


def test_a_time_to_live_is_sparks_own() -> None:
    store = Store()
    merge([(1, 1, [1])], Spread(), store, ttl_ms=5000)
    assert store.ttl_ms == 5000


def change(method: str, gives: object) -> Aggregator:
    """An aggregator with a method that gives something else."""
    changed: Aggregator = type("Changed", (Spread,), {method: lambda self, *_: gives})()
    return changed


@pytest.mark.parametrize(
    "gives", [(0, None), (0, None, [], 1), (0.5, None, []), ("1", None, []), [0, None, []], None]
)
@pytest.mark.parametrize("method", ["zero", "add", "merge"])
def test_what_is_no_state_is_refused_with_the_method_named(method: str, gives: object) -> None:
    aggregator = change(method, gives)

    def aggregate() -> None:
        fold([("de", 1)], aggregator)
        merge([(1, 1, [1]), (1, 2, [2])], aggregator, Store())

    with pytest.raises(
        InvalidInputError, match=rf"^Changed.{method}\(\): returned .*, no tuple of"
    ):
        aggregate()


def test_a_result_that_does_not_fit_its_columns_is_refused() -> None:
    with pytest.raises(
        InvalidInputError, match=r"^Changed.finish\(\): returned \(1,\).*not committed"
    ):
        merge([(1, 1, [1])], change("finish", (1,)), Store())


def test_what_is_no_aggregator_is_refused() -> None:
    not_one: Any = SimpleNamespace(zero=tuple)
    with pytest.raises(InvalidInputError, match="aggregator: must be an instance of a class"):
        Aggregation(not_one)
    untold: Any = type("Untold", (Spread,), {"state_schema": spark.LongType()})()
    with pytest.raises(InvalidInputError, match=r"Untold.state_schema: must name columns"):
        Aggregation(untold)
