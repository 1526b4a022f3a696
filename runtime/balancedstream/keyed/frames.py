"""The user's API for keys: `balanced(df, "user_id").transformWithState(...)`."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    StructType,
)

from balancedstream.engine.session.checkpoints import publish_checkpoints
from balancedstream.engine.session.hadoop import read_hadoop_settings
from balancedstream.errors import InvalidInputError
from balancedstream.keyed.aggregates import (
    STATE_COLUMN,
    Aggregation,
    Aggregator,
    MergingProcessor,
    make_fold,
)
from balancedstream.keyed.control import KeyControl
from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.functions import Function, MovableFunction
from balancedstream.keyed.objectstores import HADOOP_NAMES, HADOOP_PREFIXES, Access
from balancedstream.keyed.packing import check_packable
from balancedstream.keyed.processors import (
    ROUTE_COLUMN,
    MovableProcessor,
    Rows,
    Strip,
    StripFrames,
    StripRows,
    fill_control,
)
from balancedstream.keyed.routing import route_by
from balancedstream.keyed.source import SOURCE, ControlSource
from balancedstream.keyed.storage import DEFAULT_NAME, Operator
from balancedstream.keyed.windows import check_window, has_watermark
from balancedstream.workers.names import MAILBOX_OPTION
from balancedstream.workers.schemas import quote


class BalancedFrame:
    """A DataFrame grouped by a key whose hot values can be reassigned; created by `balanced`.

    Attributes:
        control: the driver's control over its keys; None if they never move, because of their type
            or the method that was called.
    """

    def __init__(self, frame: DataFrame, keys: tuple[str, ...], name: str) -> None:
        self._frame = frame
        self._keys = keys
        self._encoding = KeyEncoding(StructType([frame.schema[key] for key in keys]))
        self.control: KeyControl | None = None
        if not frame.isStreaming:
            return
        if self._encoding.problem:
            warnings.warn(f"balanced: {self._encoding.problem}", stacklevel=4)
        else:
            spark = frame.sparkSession
            operator = Operator(name, _read_access(spark))
            self.control = KeyControl(spark.sparkContext, operator, self._encoding)

    def transformWithState(
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: BalancedFrame | None = None,
        eventTimeColumnName: str = "",
    ) -> DataFrame:
        """As `GroupedData.transformWithState`, with the same processor.

        `initialState` is `balanced(...)` of a batch DataFrame, with the same key columns.

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
        """As `GroupedData.applyInPandasWithState`, with the same function.

        Raises:
            InvalidInputError: the DataFrame is no stream, or values of a field of the state cannot
                be handed over; the message names the field.
        """
        self._check_stream()
        modes = (outputStructType, stateStructType, outputMode, timeoutConf)
        by_event_time = timeoutConf == GroupStateTimeout.EventTimeTimeout
        self._let_keys_stay("applyInPandasWithState", by_event_time=by_event_time)
        if self.control is None:
            plain: DataFrame = self._frame.groupBy(*self._keys).applyInPandasWithState(func, *modes)
            return plain
        is_text = isinstance(stateStructType, str)
        state = DataType.fromDDL(stateStructType) if is_text else stateStructType
        if isinstance(state, StructType):
            check_packable("stateStructType", state)
        movable = MovableFunction(
            func,
            self.control.operator,
            self._encoding,
            timeoutConf,
            self.control.reports,
            StripFrames(self._frame.schema, self._keys),
        )

        def run(key: Any, frames: Rows, state: Any) -> Rows:
            yield from movable(key, frames, state)

        grouped = self._group_routed(self.control)
        applied: DataFrame = grouped.applyInPandasWithState(run, *modes)
        return applied

    def aggregate(
        self,
        aggregator: Aggregator,
        outputMode: Literal["update", "append"] = "update",
        *,
        ttl_s: float | None = None,
        window: str | None = None,
    ) -> DataFrame:
        """Aggregates by key; all tasks that read rows of a hot key share its work.

        The expensive step, `Aggregator.add`, runs before the shuffle, in the tasks that read the
        rows; after the shuffle, only a few partial states a key are merged. So the work of a key is
        split as evenly as its rows are split over the partitions of the input. A Kafka topic that
        is partitioned by the same key has all rows of a key in one partition: `repartition` the
        DataFrame first.

        Keys are hashed and moved as with `transformWithState`. Keys with a window stay, because
        they end soon and their work is already split. A row counts once, also if a task or a batch
        runs again: partial states are part of Spark's batch.

        Args:
            aggregator: its states can be merged in any order and grouping.
            outputMode: "update" returns, in each batch, a row for each key that had rows. "append"
                returns one row for each key, when its window ends.
            ttl_s: a key without rows for this many seconds of processing time is dropped. By
                default, and without a window, keys are kept forever.
            window: the column of the key that `pyspark.sql.functions.window` created from a time
                with a watermark. As in Spark's own aggregation by window, a window's state is kept
                until the watermark passes its end, and later rows are dropped.

        Returns:
            The columns of the key, then those of `Aggregator.output_schema`.

        Raises:
            InvalidInputError: the DataFrame is no stream, or an argument cannot be used; the
                message names it. The results of the aggregator's methods are checked: one that does
                not fit its schema fails the batch with this error, and no state changes.
        """
        self._check_stream()
        aggregation = Aggregation(aggregator)
        self._check_output_names(aggregation)
        if outputMode not in {"update", "append"}:
            message = f"outputMode: must be update or append, not {outputMode!r:.80}"
            raise InvalidInputError(message)
        if outputMode == "append" and window is None:
            message = (
                "outputMode: append returns final results, and without a window every result may "
                "change; nothing was started: name a window, or use update"
            )
            raise InvalidInputError(message)
        if ttl_s is not None and not 0.001 <= ttl_s < math.inf:
            message = f"ttl_s: must be a number of seconds, 0.001 or more, not {ttl_s}"
            raise InvalidInputError(message)
        if window is not None:
            check_window(window, self._key_schema(), ttl_s)
        processor = MergingProcessor(
            aggregation,
            self._keys,
            ttl_ms=None if ttl_s is None else round(ttl_s * 1000),
            appends=outputMode == "append",
        )
        if window is not None:
            # After the window ends, control rows would be late, like data.
            self.control = None
        partial = copy.copy(self)
        partial._frame = self._fold(aggregation, window)
        time_mode = "eventTime" if window else "processingTime" if ttl_s is not None else "none"
        schema = StructType([*self._key_schema(), *aggregation.output])
        return partial.transformWithState(processor, schema, outputMode, time_mode)

    def _fold(self, aggregation: Aggregation, window: str | None) -> DataFrame:
        """Partial states instead of rows."""
        # The key's columns keep their metadata, with which Spark finds late rows.
        schema = self._key_schema().add(STATE_COLUMN, BinaryType())
        fold = make_fold(aggregation, self._frame.schema, self._keys, self._encoding, window)
        return self._frame.mapInArrow(fold, schema)

    def _key_schema(self) -> StructType:
        return StructType([self._frame.schema[key] for key in self._keys])

    def _check_output_names(self, aggregation: Aggregation) -> None:
        for column in aggregation.output.names:
            if column in self._keys:
                message = (
                    f"{type(aggregation.aggregator).__name__}.output_schema: its column {column!r} "
                    "is a column of the key, which is added anyway; nothing was started: remove it"
                )
                raise InvalidInputError(message)

    def _check_stream(self) -> None:
        if not self._frame.isStreaming:
            message = (
                "df: keys are balanced from one micro-batch to the next, and this DataFrame is no "
                "stream; nothing was started: use groupBy instead"
            )
            raise InvalidInputError(message)

    def _let_keys_stay(self, method: str, *, by_event_time: bool) -> None:
        """Gives up control of keys that could move, but not with this method."""
        if self.control is None:
            return
        if "Pandas" in method and self._encoding.has_timestamp:
            why = (
                f"keys with a timestamp do not move under {method}, because pandas has them in "
                "another time zone; use transformWithState, or another key"
            )
        elif by_event_time and any(map(has_watermark, self._key_schema())):
            why = (
                "keys with the time of the watermark do not move: after the watermark, Spark drops "
                "the rows that would move them; group by another key, or by another time"
            )
        else:
            return
        warnings.warn(f"balanced: {why}", stacklevel=4)
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
        self._let_keys_stay(method, by_event_time=modes[2].lower() == "eventtime")
        if self.control is None:
            grouped: Any = self._frame.groupBy(*self._keys)
            begins = initial._frame.groupBy(*self._keys) if initial else None
        else:
            in_pandas = method.endswith("Pandas")
            processor = MovableProcessor(
                processor,
                self.control.operator,
                self._encoding,
                modes[2],
                self.control.reports,
                self._make_strip(in_pandas=in_pandas),
                (initial or self)._make_strip(in_pandas=in_pandas),
            )
            grouped = self._group_routed(self.control)
            begins = initial._group_as_found() if initial else None
        transform = getattr(grouped, method)
        transformed: DataFrame = transform(processor, *modes, begins, event_time)
        return transformed

    def _make_strip(self, *, in_pandas: bool) -> Strip:
        strip = StripFrames if in_pandas else StripRows
        return strip(self._frame.schema, self._keys)

    def _group_routed(self, control: KeyControl) -> Any:
        """The data first, so that it alone sets the watermark; then the control rows."""
        spark = self._frame.sparkSession
        publish_checkpoints(spark)
        spark.dataSource.register(ControlSource)
        route = route_by(self._keys, control.operator, self._encoding)
        data = self._frame.withColumn(ROUTE_COLUMN, route)
        schema = StructType().add(ROUTE_COLUMN, IntegerType())
        for key in self._keys:
            schema.add(self._frame.schema[key].name, self._frame.schema[key].dataType)
        rows = (
            spark.readStream.format(SOURCE)
            .schema(schema)
            .option("name", control.operator.name)
            .option(MAILBOX_OPTION, str(control.folder))
            .load()
        )
        columns = [
            sf.col(quote(field.name))
            if field.name in schema.fieldNames()
            else sf.lit(fill_control(field.dataType)).cast(field.dataType).alias(field.name)
            for field in self._frame.schema
        ]
        asked = rows.select(*columns, ROUTE_COLUMN)
        return data.union(asked).groupBy(ROUTE_COLUMN, *self._keys)

    def _group_as_found(self) -> Any:
        """Every key with route 0, because initial state belongs to Spark's first batch."""
        return self._frame.withColumn(ROUTE_COLUMN, sf.lit(0)).groupBy(ROUTE_COLUMN, *self._keys)


def _read_access(spark: SparkSession) -> Access:
    settings = read_hadoop_settings(spark, HADOOP_NAMES, HADOOP_PREFIXES)
    return Access(frozenset(settings.items()))


def balanced(df: DataFrame, *keys: str, name: str = DEFAULT_NAME) -> BalancedFrame:
    """The part of `taking_over.balanced`, which users call, that needs no plugin.

    Args, result and errors are those of `taking_over.balanced`.
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
    for hidden in (ROUTE_COLUMN, STATE_COLUMN):
        if hidden in df.columns:
            message = f"df: its column {hidden} has a reserved name; nothing was started: rename it"
            raise InvalidInputError(message)
    if not name.isidentifier():
        message = f"name: must be a word of letters, digits and _, not {name!r:.80}"
        raise InvalidInputError(message)
    return BalancedFrame(df, keys, name)
