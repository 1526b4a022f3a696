"""One key by many tasks: what `balanced(...).aggregate` runs. Our own design.

Spark aggregates partially for its own functions, but not for stateful processors in Python. Here
the expensive step, adding rows to a state, runs where the rows are: each task folds the rows of a
key into a partial state, and partial states cross the shuffle instead of rows. The stateful step
merges only a few of them. So all tasks that read rows of a key share its work in a batch, and one
owner keeps its state.

A fold ends with each Arrow batch, of at most `spark.sql.execution.arrow.maxRecordsPerBatch` rows,
which bounds the memory for any number of keys.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues
from pyspark.sql.types import (
    ArrayType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from balancedstream.errors import InvalidInputError
from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.packing import pack_state, unpack_state
from balancedstream.workers.garbage import spare_loaded_modules
from balancedstream.workers.schemas import make_verifier, parse_columns

STATE_COLUMN = "balancedstream_state"

State = tuple[Any, ...]


class Aggregator(ABC):
    """An aggregation whose work on one key many tasks can share.

    Its states must be mergeable: the result must not depend on how the rows of a key are split, or
    in which order and grouping the parts are merged. Counts, sums, extremes, sets, histograms and
    sketches are mergeable (sums of floats up to rounding). "The first", "the last" and "the one
    before" are not, unless the state keeps the time that decides which one is first. The split of
    rows differs from batch to batch, and no check can find an aggregator that depends on it.

    A state is a tuple with one value for each column of `state_schema`. Do not change it in place.

    Attributes:
        state_schema: the columns of a state, such as `n LONG, sketch BINARY`, of Spark's types.
        output_schema: the columns of a result; the columns of the key are added before them.
    """

    state_schema: StructType | str
    output_schema: StructType | str

    @abstractmethod
    def zero(self) -> State:
        """The state without rows."""

    @abstractmethod
    def add(self, state: State, rows: Sequence[Row]) -> State:
        """Adds rows of one key to a state: the expensive step, run where the rows are.

        Args:
            state: the result of `zero`.
            rows: one or more rows, with all columns of the DataFrame; times are in UTC.
        """

    @abstractmethod
    def merge(self, left: State, right: State) -> State:
        """The state of the rows of both states; each has one row or more."""

    @abstractmethod
    def finish(self, state: State) -> tuple[Any, ...]:
        """The columns of the result; the state must not change."""


class Aggregation:
    """A checked aggregator with its schemas.

    Attributes:
        aggregator: the user's.
        state: the columns of a state.
        output: the columns of a result, without the key's.

    Raises:
        InvalidInputError: this is no `Aggregator`, Spark cannot read a schema, or `zero` does not
            fit the schema.
    """

    def __init__(self, aggregator: Aggregator) -> None:
        if not isinstance(aggregator, Aggregator):
            message = (
                f"aggregator: must be an instance of a class derived from Aggregator, not "
                f"{aggregator!r:.200}; nothing was started"
            )
            raise InvalidInputError(message)
        name = type(aggregator).__name__
        for schema in ("state_schema", "output_schema"):
            if not hasattr(aggregator, schema):
                message = f"{name}.{schema}: is missing; nothing was started: name the columns"
                raise InvalidInputError(message)
        self.aggregator = aggregator
        self.state = parse_columns(aggregator.state_schema, f"{name}.state_schema")
        self.output = parse_columns(aggregator.output_schema, f"{name}.output_schema")
        make_verifier(self.state, f"{name}.zero()", "nothing was started")(aggregator.zero())

    def verify_state(self, method: str) -> Callable[[Any], State]:
        """A function that returns the result of a method if it is a state.

        Raises:
            InvalidInputError: when called with a value that is no state; the batch then fails.
        """
        return make_verifier(self.state, self._name(method), NOT_COMMITTED)

    @property
    def _mark(self) -> str:
        """Distinguishes states with these columns from states with others."""
        return f"{zlib.crc32(self.state.simpleString().encode()):08x}"

    def unpack(self, packed: bytes) -> tuple[State, int | None]:
        """A packed state, and the end of its window.

        Raises:
            InvalidInputError: the state has other columns.
        """
        mark, state, end_ms = unpack_state(packed)
        if mark != self._mark:
            message = (
                f"{type(self.aggregator).__name__}.state_schema: is "
                f"{self.state.simpleString():.200}, and the checkpoint has states with other "
                f"columns; {NOT_COMMITTED}: restore the former columns, or start with a new "
                "checkpoint"
            )
            raise InvalidInputError(message)
        return state, end_ms

    def make_packer(self, method: str) -> Callable[[Any, int | None], bytes]:
        """A function that packs a state that a method returned, with the end of its window.

        A state is sent and stored as bytes, because Spark's Python API does not always return a
        struct, a map or a time as it was stored.

        Raises:
            InvalidInputError: when called with a value that is no state; the batch then fails.
        """
        name = self._name(method)
        verify, mark = self.verify_state(method), self._mark

        def pack(state: Any, end_ms: int | None) -> bytes:
            packed = pack_state((mark, verify(state), end_ms))
            if packed is None:
                message = (
                    f"{name}: returned {state!r:.200}, with a value that cannot be stored; "
                    f"{NOT_COMMITTED}: use plain values, and times in UTC or without a time zone"
                )
                raise InvalidInputError(message)
            return packed

        return pack

    def verify_output(self) -> Callable[[Any], tuple[Any, ...]]:
        """The same as `verify_state`, for results of `finish`."""
        return make_verifier(self.output, self._name("finish"), NOT_COMMITTED)

    def _name(self, method: str) -> str:
        return f"{type(self.aggregator).__name__}.{method}()"


NOT_COMMITTED = "the batch was not committed and no state changed"


def fold_rows(
    aggregator: Aggregator, keys: Sequence[Any], rows: Sequence[Row]
) -> Iterator[tuple[int, State]]:
    """Folds the rows of each key into one partial state.

    Args:
        aggregator: the user's.
        keys: the key of each row, hashable. Two keys that are one to Spark may differ here: their
            partial states meet after the shuffle.
        rows: the same number of rows.

    Yields:
        The position of the first row of each key, and its state.
    """
    positions: dict[Any, list[int]] = {}
    for position, key in enumerate(keys):
        positions.setdefault(key, []).append(position)
    for of_key in positions.values():
        yield of_key[0], aggregator.add(aggregator.zero(), [rows[n] for n in of_key])


def make_fold(
    aggregation: Aggregation,
    schema: StructType,
    keys: Sequence[str],
    encoding: KeyEncoding,
    window: str | None = None,
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for `mapInArrow` that folds rows into partial states.

    Returns:
        A function that returns, for each Arrow batch, the columns of the keys and their packed
        states.
    """

    def fold(batches: Iterator[Any]) -> Iterator[Any]:
        spare_loaded_modules()
        pack = aggregation.make_packer("add")
        as_given = _leave_times(schema)
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = ArrowTableToRowsConversion.convert(_to_utc(batch), as_given)
            columns = [batch.column(schema.names.index(key)) for key in keys]
            folded = [*fold_rows(aggregation.aggregator, encoding.freeze_columns(columns), rows)]
            first = pa.array([position for position, _ in folded])
            columns = [column.take(first) for column in columns]
            ends_ms = (
                [None] * len(folded) if window is None else _find_ends_ms(columns, keys, window)
            )
            parts = [
                pack(state, end_ms) for (_, state), end_ms in zip(folded, ends_ms, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(
                [*columns, pa.array(parts, pa.binary())], names=[*keys, STATE_COLUMN]
            )

    return fold


def _find_ends_ms(columns: Sequence[Any], keys: Sequence[str], window: str) -> list[int | None]:
    ends = columns[keys.index(window)].field("end")
    exact_us = ends.cast(pa.timestamp("us", ends.type.tz)).cast(pa.int64())
    # Rounded up, because its rows are not late until then.
    return [None if end_us is None else -(-end_us // 1000) for end_us in exact_us.to_pylist()]


def _to_utc(batch: Any) -> Any:
    """A table with times in UTC, as Spark gives them to stateful processors."""
    table = pa.Table.from_batches([batch])
    return table.cast(pa.schema([_field_to_utc(field) for field in table.schema]))


def _field_to_utc(field: Any) -> Any:
    kind = field.type
    if pa.types.is_timestamp(kind) and kind.tz:
        # With this name Arrow uses Python's own time zone, which can be packed.
        return field.with_type(pa.timestamp(kind.unit, "+00:00"))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_field_to_utc(inner) for inner in kind]))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_field_to_utc(kind.value_field)))
    if pa.types.is_map(kind):
        inner = _field_to_utc(kind.key_field), _field_to_utc(kind.item_field)
        return field.with_type(pa.map_(*inner))
    return field


def _leave_times(kind: Any) -> Any:
    """The same type, with which Spark keeps times as in Arrow instead of making them local."""
    match kind:
        case TimestampType():
            return TimestampNTZType()
        case StructType():
            fields = (StructField(f.name, _leave_times(f.dataType), f.nullable) for f in kind)
            return StructType([*fields])
        case ArrayType():
            return ArrayType(_leave_times(kind.elementType), kind.containsNull)
        case MapType():
            ends = _leave_times(kind.keyType), _leave_times(kind.valueType)
            return MapType(*ends, kind.valueContainsNull)
        case _:
            return kind


class MergingProcessor(StatefulProcessor):
    """Merges the partial states of a key into its stored state.

    Args:
        aggregation: the user's.
        keys: the key's columns.
        ttl_ms: time that a state is kept after its last change; None to keep it forever.
        appends: whether the result comes once, when the window ends.
    """

    def __init__(
        self,
        aggregation: Aggregation,
        keys: Sequence[str],
        *,
        ttl_ms: int | None = None,
        appends: bool = False,
    ) -> None:
        self._aggregation = aggregation
        self._columns = [*keys, *aggregation.output.names]
        self._ttl_ms = ttl_ms
        self._appends = appends

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark calls this once a task."""
        self._handle = handle
        self._state = handle.getValueState("state", "packed BINARY", self._ttl_ms)
        self._verify = self._aggregation.verify_state("merge")
        self._pack = self._aggregation.make_packer("merge")
        self._verify_output = self._aggregation.verify_output()

    def handleInputRows(
        self, key: Any, rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        """Merges the partial states of one key."""
        state = self._read_state()
        end_ms = None
        for row in rows:
            part, end_ms = self._aggregation.unpack(row[-1])
            if state is not None:
                part = self._verify(self._aggregation.aggregator.merge(state, part))
            state = part
        if state is None:
            return
        self._state.update((self._pack(state, end_ms),))
        if end_ms is not None:
            # Spark fires timers before the watermark, and a window ends when the watermark reaches
            # its end.
            self._handle.registerTimer(end_ms - 1)
        if not self._appends:
            yield self._make_result(key, state)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Removes the state of a window that ended; returns its result if results come once."""
        state = self._read_state()
        if state is None:
            return
        self._state.clear()
        if self._appends:
            yield self._make_result(key, state)

    def close(self) -> None:
        """Nothing to do."""

    def _read_state(self) -> State | None:
        kept = self._state.get()
        return None if kept is None else self._aggregation.unpack(kept[0])[0]

    def _make_result(self, key: Any, state: State) -> Row:
        result = self._verify_output(self._aggregation.aggregator.finish(state))
        made: Row = Row(*self._columns)(*key, *result)
        return made
