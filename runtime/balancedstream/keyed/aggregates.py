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

import datetime
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues
from pyspark.sql.types import StructType

from balancedstream.engine.schemas import make_verifier, parse_columns
from balancedstream.errors import InvalidInputError
from balancedstream.keyed.encoding import KeyEncoding

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
            rows: one or more, with all columns of the DataFrame.
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
        """What lets through what a method gives, where it is a state.

        Raises:
            InvalidInputError: when called with what is none; the batch fails then.
        """
        return make_verifier(self.state, self._name(method), NOT_COMMITTED)

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
    aggregation: Aggregation, schema: StructType, keys: Sequence[str], encoding: KeyEncoding
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for `mapInArrow` that makes partial states of rows.

    Args:
        aggregation: the user's.
        schema: of the rows.
        keys: the key's columns.
        encoding: of the keys.

    Returns:
        What gives, for each Arrow batch, the columns of the key and the state of its rows.
    """

    def fold(batches: Iterator[Any]) -> Iterator[Any]:
        verify = aggregation.verify_state("add")
        column = StructType().add(STATE_COLUMN, aggregation.state)
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = ArrowTableToRowsConversion.convert(pa.Table.from_batches([batch]), schema)
            columns = [batch.column(schema.names.index(key)) for key in keys]
            folded = [*fold_rows(aggregation.aggregator, encoding.freeze_columns(columns), rows)]
            states = LocalDataToArrowConversion.convert(
                [(verify(state),) for _, state in folded], column, use_large_var_types=False
            )
            first = pa.array([position for position, _ in folded])
            yield pa.RecordBatch.from_arrays(
                [*(c.take(first) for c in columns), *states.combine_chunks().to_batches()[0]],
                names=[*keys, STATE_COLUMN],
            )

    return fold


class MergingProcessor(StatefulProcessor):
    """Merges the partial states of a key into the one that is kept.

    Args:
        aggregation: the user's.
        keys: the key's columns.
        ttl_ms: how long a state is kept after its last change; None for ever.
        window: position of the key's column that is a window; its state goes when the watermark
            passes its end.
        is_ntz: whether the window's times have no time zone.
        appends: whether the result is given once, when the window is over.
    """

    def __init__(
        self,
        aggregation: Aggregation,
        keys: Sequence[str],
        *,
        ttl_ms: int | None = None,
        window: int | None = None,
        is_ntz: bool = False,
        appends: bool = False,
    ) -> None:
        self._aggregation = aggregation
        self._columns = [*keys, *aggregation.output.names]
        self._ttl_ms = ttl_ms
        self._window = window
        self._is_ntz = is_ntz
        self._appends = appends

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark once a task."""
        self._handle = handle
        self._state = handle.getValueState("state", self._aggregation.state, self._ttl_ms)
        self._verify = self._aggregation.verify_state("merge")
        self._verify_output = self._aggregation.verify_output()

    def handleInputRows(
        self, key: Any, rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        """Takes the partial states of one key in."""
        kept = self._state.get()
        state = None if kept is None else tuple(kept)
        for row in rows:
            part = tuple(row[-1])
            if state is None:
                state = part
            else:
                state = self._verify(self._aggregation.aggregator.merge(state, part))
        if state is None:
            return
        self._state.update(state)
        if self._window is not None:
            # Spark fires what is before the watermark, and a window is over when the watermark is
            # at its end.
            self._handle.registerTimer(self._find_end_ms(key[self._window]) - 1)
        if not self._appends:
            yield self._make_result(key, state)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """The window is over."""
        state = self._state.get()
        if state is None:
            return
        self._state.clear()
        if self._appends:
            yield self._make_result(key, tuple(state))

    def close(self) -> None:
        """Nothing is left to do."""

    def _make_result(self, key: Any, state: State) -> Row:
        result = self._verify_output(self._aggregation.aggregator.finish(state))
        made: Row = Row(*self._columns)(*key, *result)
        return made

    def _find_end_ms(self, window: Any) -> int:
        end = window["end"]
        exact_s: float = (end.replace(tzinfo=datetime.UTC) if self._is_ntz else end).timestamp()
        return round(exact_s * 1000)
