"""One key by many tasks: what `balanced(...).aggregate` runs. Our own design.

Spark aggregates partially for its own functions and not for Python's stateful processors. Here the
expensive step, a row into a state, is done where the rows are: each task folds the rows of a key
into a partial state, and partial states cross the shuffle, not rows. The stateful step merges few
of them. So a key has as many owners within a batch as there are tasks that read its rows, and its
state has one.

A fold ends with each Arrow batch, of at most `spark.sql.execution.arrow.maxRecordsPerBatch` rows:
that bounds the memory whatever the number of keys.
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
    """An aggregation whose work on one key may be split over many tasks.

    Its states must be mergeable: however the rows of a key are split, and in whatever order and
    grouping the parts are merged, the answer is the same. Counts, sums, extremes, sets, histograms
    and sketches are like that; "the first", "the last" and "the one before" are not, unless the
    state keeps the time that says which is first. Sums of floats are so up to rounding. How rows
    are split differs from batch to batch, and no check can find an aggregator that depends on it.

    A state is a tuple, one value for each column of `state_schema`, and is not changed in place.

    Attributes:
        state_schema: the columns of a state, `n LONG, sketch BINARY`, of Spark's types.
        output_schema: the columns of a result; those of the key come before them by themselves.
    """

    state_schema: StructType | str
    output_schema: StructType | str

    @abstractmethod
    def zero(self) -> State:
        """The state of no rows."""

    @abstractmethod
    def add(self, state: State, rows: Sequence[Row]) -> State:
        """Takes rows of one key in: the expensive step, run where the rows are.

        Args:
            state: what `zero` gives.
            rows: one or more, with all columns of the DataFrame; times are in UTC.
        """

    @abstractmethod
    def merge(self, left: State, right: State) -> State:
        """The state of the rows of both; each has seen one or more."""

    @abstractmethod
    def finish(self, state: State) -> tuple[Any, ...]:
        """The columns of the result; the state stays as it is."""


class Aggregation:
    """An aggregator that was looked at, with its schemas.

    Args:
        aggregator: the user's.

    Attributes:
        aggregator: the user's.
        state: the columns of a state.
        output: the columns of a result, without the key's.

    Raises:
        InvalidInputError: it is no `Aggregator`, a schema cannot be read, or `zero` does not fit.
    """

    def __init__(self, aggregator: Aggregator) -> None:
        if not isinstance(aggregator, Aggregator):
            message = (
                f"aggregator: must be an instance of a class derived from Aggregator, and is "
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
        """What lets through what a method gave, where it is a state.

        Raises:
            InvalidInputError: when called with what is none; the batch fails then.
        """
        return make_verifier(self.state, self._name(method), NOT_COMMITTED)

    @property
    def _mark(self) -> str:
        """Tells states of these columns from those of others."""
        return f"{zlib.crc32(self.state.simpleString().encode()):08x}"

    def unpack(self, packed: bytes) -> tuple[State, int | None]:
        """A packed state, and the end of its window.

        Raises:
            InvalidInputError: it was kept with other columns.
        """
        mark, state, end_ms = unpack_state(packed)
        if mark != self._mark:
            message = (
                f"{type(self.aggregator).__name__}.state_schema: is "
                f"{self.state.simpleString():.200}, and the checkpoint has states with other "
                f"columns; {NOT_COMMITTED}: give it the columns that it had, or begin with a new "
                "checkpoint"
            )
            raise InvalidInputError(message)
        return state, end_ms

    def make_packer(self, method: str) -> Callable[[Any, int | None], bytes]:
        """What packs a state that a method gave, with the end of its window.

        A state travels, and is kept, as bytes: what Spark's Python API gives back for a struct, a
        map or a time is not in every case what it was given.

        Raises:
            InvalidInputError: when called with what is no state; the batch fails then.
        """
        name = self._name(method)
        verify, mark = self.verify_state(method), self._mark

        def pack(state: Any, end_ms: int | None) -> bytes:
            packed = pack_state((mark, verify(state), end_ms))
            if packed is None:
                message = (
                    f"{name}: gave {state!r:.200}, with a value that cannot be kept; "
                    f"{NOT_COMMITTED}: use plain values, and times in UTC or without a time zone"
                )
                raise InvalidInputError(message)
            return packed

        return pack

    def verify_output(self) -> Callable[[Any], tuple[Any, ...]]:
        """The same for results."""
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
        keys: the key of each row, as a dictionary finds it. Two keys that Spark takes for one may
            differ here: their partial states meet after the shuffle.
        rows: as many.

    Yields:
        For each key the position of its first row, and its state.
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
    """The function for `mapInArrow` that makes partial states of rows.

    Args:
        aggregation: the user's.
        schema: of the rows.
        keys: the key's columns.
        encoding: of the keys.
        window: the key's column that is a window.

    Returns:
        What gives, for each Arrow batch, the columns of the key and its rows' packed state.
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
    # Rounded up: until then its rows are not late.
    return [None if end_us is None else -(-end_us // 1000) for end_us in exact_us.to_pylist()]


def _to_utc(batch: Any) -> Any:
    """A table whose times are in UTC, as Spark's own stateful processors are given them."""
    table = pa.Table.from_batches([batch])
    return table.cast(pa.schema([_field_to_utc(field) for field in table.schema]))


def _field_to_utc(field: Any) -> Any:
    kind = field.type
    if pa.types.is_timestamp(kind) and kind.tz:
        # By this name Arrow gives Python's own time zone, which can be packed.
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
    """The same type, but that Spark leaves a time as Arrow has it, instead of making it local."""
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
    """Merges the partial states of a key into the one that is kept.

    Args:
        aggregation: the user's.
        keys: the key's columns.
        ttl_ms: how long a state is kept after its last change; None for ever.
        appends: whether the result is given once, when the window is over.
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
        """Called by Spark once a task."""
        self._handle = handle
        self._state = handle.getValueState("state", "packed BINARY", self._ttl_ms)
        self._verify = self._aggregation.verify_state("merge")
        self._pack = self._aggregation.make_packer("merge")
        self._verify_output = self._aggregation.verify_output()

    def handleInputRows(
        self, key: Any, rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        """Takes the partial states of one key in."""
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
            # Spark fires what is before the watermark, and a window is over when the watermark is
            # at its end.
            self._handle.registerTimer(end_ms - 1)
        if not self._appends:
            yield self._make_result(key, state)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """The window is over."""
        state = self._read_state()
        if state is None:
            return
        self._state.clear()
        if self._appends:
            yield self._make_result(key, state)

    def close(self) -> None:
        """Nothing is left to do."""

    def _read_state(self) -> State | None:
        kept = self._state.get()
        return None if kept is None else self._aggregation.unpack(kept[0])[0]

    def _make_result(self, key: Any, state: State) -> Row:
        result = self._verify_output(self._aggregation.aggregator.finish(state))
        made: Row = Row(*self._columns)(*key, *result)
        return made
