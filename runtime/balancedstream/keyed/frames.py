"""What a user writes: `balanced(df, "user_id").transformWithState(...)`."""

from __future__ import annotations

import warnings
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import BooleanType, IntegerType, StructType

from balancedstream.engine.checkpoints import publish_checkpoints
from balancedstream.errors import InvalidInputError
from balancedstream.keyed.control import KeyControl
from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.functions import Function, MovableFunction
from balancedstream.keyed.processors import (
    CONTROL_COLUMN,
    ROUTE_COLUMN,
    MovableProcessor,
    Rows,
    StripFrames,
    StripRows,
)
from balancedstream.keyed.routing import route_by
from balancedstream.keyed.source import SOURCE, ControlSource

DEFAULT_NAME = "keys"


class BalancedFrame:
    """A DataFrame grouped by a key whose hot values can be reassigned; made by `balanced`.

    Attributes:
        control: the driver's hand on its keys; None where keys of this type are never moved.
    """

    def __init__(self, frame: DataFrame, keys: tuple[str, ...], name: str) -> None:
        self._frame = frame
        self._keys = keys
        self._name = name
        self._encoding = KeyEncoding(StructType([frame.schema[key] for key in keys]))
        self.control: KeyControl | None = None
        if self._encoding.problem:
            warnings.warn(f"balanced: {self._encoding.problem}", stacklevel=3)
        elif frame.isStreaming:
            self.control = KeyControl(frame.sparkSession.sparkContext, name, self._encoding)

    def transformWithState(
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: BalancedFrame | None = None,
        eventTimeColumnName: str = "",
    ) -> DataFrame:
        """As `GroupedData.transformWithState`; the processor is the same one.

        Args:
            statefulProcessor: as Spark's.
            outputStructType: as Spark's.
            outputMode: as Spark's.
            timeMode: as Spark's.
            initialState: `balanced(...)` of a batch DataFrame, with the same key columns.
            eventTimeColumnName: as Spark's.

        Raises:
            InvalidInputError: the DataFrame is no stream, or the initial state has another key.
        """
        return self._transform(
            "transformWithState",
            statefulProcessor,
            (outputStructType, outputMode, timeMode),
            initialState,
            eventTimeColumnName,
        )

    def transformWithStateInPandas(
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: BalancedFrame | None = None,
        eventTimeColumnName: str = "",
    ) -> DataFrame:
        """As `GroupedData.transformWithStateInPandas`; see `transformWithState`."""
        return self._transform(
            "transformWithStateInPandas",
            statefulProcessor,
            (outputStructType, outputMode, timeMode),
            initialState,
            eventTimeColumnName,
        )

    def applyInPandasWithState(
        self,
        func: Function,
        outputStructType: StructType | str,
        stateStructType: StructType | str,
        outputMode: str,
        timeoutConf: str,
    ) -> DataFrame:
        """As `GroupedData.applyInPandasWithState`; the function is the same one.

        Raises:
            InvalidInputError: the DataFrame is no stream.
        """
        self._check_stream()
        self._stay_if_pandas_changes_keys("applyInPandasWithState")
        modes = (outputStructType, stateStructType, outputMode, timeoutConf)
        if self.control is None:
            plain: DataFrame = self._frame.groupBy(*self._keys).applyInPandasWithState(func, *modes)
            return plain
        movable = MovableFunction(
            func,
            self._name,
            self._encoding,
            timeoutConf,
            self.control.reports,
            StripFrames(tuple(self._frame.columns)),
        )

        def run(key: Any, frames: Rows, state: Any) -> Rows:
            yield from movable(key, frames, state)

        grouped = self._unite(self.control).groupBy(ROUTE_COLUMN, *self._keys)
        applied: DataFrame = grouped.applyInPandasWithState(run, *modes)
        return applied

    def _check_stream(self) -> None:
        if not self._frame.isStreaming:
            message = (
                "df: keys are balanced from one micro-batch to the next, and this DataFrame is no "
                "stream; nothing was started: group it by its key instead"
            )
            raise InvalidInputError(message)

    def _stay_if_pandas_changes_keys(self, method: str) -> None:
        if self._encoding.changes_in_pandas and self.control is not None:
            warnings.warn(
                f"balanced: keys with a timestamp are not moved under {method}, for pandas knows "
                "them in another time zone; use transformWithState, or another key",
                stacklevel=4,
            )
            self.control = None

    def _transform(
        self,
        method: str,
        processor: StatefulProcessor,
        modes: tuple[StructType | str, str, str],
        initial: BalancedFrame | None,
        event_time: str,
    ) -> DataFrame:
        self._check_stream()
        if initial is not None and initial._keys != self._keys:
            message = (
                f"initialState: is balanced by {', '.join(initial._keys)}, and the stream by "
                f"{', '.join(self._keys)}; nothing was started: give both the same key"
            )
            raise InvalidInputError(message)
        if method.endswith("Pandas"):
            self._stay_if_pandas_changes_keys(method)
        if self.control is None:
            grouped: Any = self._frame.groupBy(*self._keys)
            begins = initial._frame.groupBy(*self._keys) if initial else None
        else:
            strip = StripFrames if method.endswith("Pandas") else StripRows
            processor = MovableProcessor(
                processor,
                self._name,
                self._encoding,
                modes[2],
                self.control.reports,
                strip(tuple(self._frame.columns)),
            )
            grouped = self._unite(self.control).groupBy(ROUTE_COLUMN, *self._keys)
            begins = initial._group_as_found() if initial else None
        transform = getattr(grouped, method)
        transformed: DataFrame = transform(processor, *modes, begins, event_time)
        return transformed

    def _unite(self, control: KeyControl) -> DataFrame:
        """The data first, so that it alone says what the watermark is; then the control rows."""
        spark = self._frame.sparkSession
        publish_checkpoints(spark)
        spark.dataSource.register(ControlSource)
        data = self._frame.withColumns(
            {
                ROUTE_COLUMN: route_by(self._keys, self._name, self._encoding),
                CONTROL_COLUMN: sf.lit(False),
            }
        )
        schema = StructType().add(ROUTE_COLUMN, IntegerType())
        for key in self._keys:
            schema.add(self._frame.schema[key].name, self._frame.schema[key].dataType)
        rows = (
            spark.readStream.format(SOURCE)
            .schema(schema)
            .option("name", self._name)
            .option("mailbox", str(control.folder))
            .load()
        )
        columns = [
            sf.col(f"`{field.name}`")
            if field.name in schema.fieldNames()
            else sf.lit(None).cast(field.dataType).alias(field.name)
            for field in self._frame.schema
        ]
        asked = rows.select(
            *columns, ROUTE_COLUMN, sf.lit(True).cast(BooleanType()).alias(CONTROL_COLUMN)
        )
        return data.union(asked)

    def _group_as_found(self) -> Any:
        """Every key where the stream begins with it: initial state is Spark's first batch's."""
        hidden = {ROUTE_COLUMN: sf.lit(0), CONTROL_COLUMN: sf.lit(False)}
        return self._frame.withColumns(hidden).groupBy(ROUTE_COLUMN, *self._keys)


def balanced(df: DataFrame, *keys: str, name: str = DEFAULT_NAME) -> BalancedFrame:
    """Groups a stream by a key whose hot values may be reassigned while the query runs.

    Args:
        df: a streaming DataFrame; for initial state, a batch one.
        keys: its key columns.
        name: of the operator; each one of a query needs its own, the same at every start.

    Returns:
        What has `transformWithState` and its like, as Spark's `GroupedData` has.

    Raises:
        InvalidInputError: no key column, one that is not there, or a column with a hidden name.
    """
    if not keys:
        message = "keys: name the column, or columns, that the stream is grouped by"
        raise InvalidInputError(message)
    for key in keys:
        if key not in df.columns:
            message = (
                f"keys: there is no column {key!r}, only {', '.join(df.columns)}; nothing was "
                "started"
            )
            raise InvalidInputError(message)
    for hidden in (ROUTE_COLUMN, CONTROL_COLUMN):
        if hidden in df.columns:
            message = f"df: its column {hidden} has a name that is needed; rename the column"
            raise InvalidInputError(message)
    if not name.isidentifier():
        message = f"name: must be a word of letters, digits and _, not {name!r:.80}"
        raise InvalidInputError(message)
    return BalancedFrame(df, keys, name)
