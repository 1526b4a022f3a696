"""`balancedstream.shuffle`: the cost-aware shuffle for stateless functions."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from numbers import Integral
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.types import DataType, GeographyType, GeometryType, StructType

from balancedstream.core.shuffle.sketches import CostSketch
from balancedstream.errors import InvalidInputError
from balancedstream.shuffling.collecting import CostReport, find_accumulator
from balancedstream.shuffling.folders import (
    Batch,
    CostFolder,
    FindBatch,
    FindCosts,
    PinnedCosts,
    find_root,
    read_costs,
)
from balancedstream.shuffling.joining import ARROW, join_outputs, join_rows, make_pandas_form
from balancedstream.shuffling.marking import mark_rows
from balancedstream.shuffling.naming import name_shuffle
from balancedstream.shuffling.routing import ROUTED, make_router
from balancedstream.shuffling.timing import (
    FunctionMeter,
    HiddenColumns,
    Piece,
    cut_arrow,
    cut_pandas,
)
from balancedstream.workers.garbage import spare_loaded_modules
from balancedstream.workers.names import CHECKPOINT_LOCATION
from balancedstream.workers.schemas import holds_type, quote

EPSILON = 0.001
DELTA = 0.1
SEED = 0

FOLDER = "_shuffle"
"""In the folder of the checkpoints; with the underscore it cannot be a query's name."""

HIDDEN = HiddenColumns("__balancedstream_item", "__balancedstream_estimated_s")
ROUTE = "__balancedstream_route"


def shuffle(
    df: DataFrame,
    *,
    cost_key: str | Column,
    partitions: int,
    folder: str | None = None,
    epsilon: float = EPSILON,
    delta: float = DELTA,
) -> Shuffle:
    """Spread rows over partitions by their expected cost for a function.

    Costs are learned from one micro-batch to the next while the function runs (Online Shuffle
    Grouping, Rivetti et al.; `docs/shuffle.md` says what differs in a micro-batch engine). The
    first two batches go round robin. Rows continue to go round robin until the estimates predict a
    batch better than equal costs do, and again once the estimates are clearly worse.

    Args:
        df: a streaming or batch DataFrame. Each row comes out once, unchanged, in any order.
        cost_key: the column or expression that determines the cost: a category, or a measure such
            as the length of a text in classes. Few distinct values are learned sooner. Null is a
            value like any other.
        partitions: number of partitions, 1 or more. With four to eight for each task that runs at
            once, faster executors process more of them: Spark gives the next partition to the
            executor that is free.
        folder: where the learned costs are stored. For a stream it must be a path that the driver
            and all executors share, by default beside the session's checkpoints. Otherwise only the
            driver needs it, by default for as long as it runs.
        epsilon: of the sketches, see `balancedstream.core.shuffle.sketches.CostSketch`.
        delta: of the sketches.

    Returns:
        An object that takes the function, which should process its input piece by piece.

    Raises:
        InvalidInputError: an argument cannot be used; the message names it.
    """
    is_whole = isinstance(partitions, Integral) and not isinstance(partitions, bool)
    if not is_whole or partitions < 1:
        message = f"partitions: must be a whole number, 1 or more, not {partitions}"
        raise InvalidInputError(message)
    CostSketch(epsilon, delta, seed=SEED)
    for name in df.columns:
        if name.casefold() in {*HIDDEN, ROUTE}:
            message = f"df: the shuffle adds a column {name!r}; rename the existing one"
            raise InvalidInputError(message)
        _find_column("df", df, name)
    key = _find_key(df, cost_key)
    root = find_root(folder) if folder else _find_default_root(df)
    return Shuffle(df, key, str(cost_key), int(partitions), root, epsilon, delta)


@dataclass(frozen=True)
class Shuffle:
    """Rows to be shuffled for a function; created by `shuffle`.

    Its methods have the names and the behavior of Spark's. But the function gets pieces of its
    input with rows of one cost key each, because the time for a piece is measured. A function that
    reads all its input before it works cannot be measured; rows then go round robin. A function
    that collects several pieces before it works, such as mini-batches for a model, is measured
    incorrectly: let it work piece by piece, and cut mini-batches from each piece.

    Costs are learned by the function's name and the cost key, separately for each checkpoint. If a
    query shuffles for two functions by the same key, they need different names.
    """

    _df: DataFrame
    _key: Column
    _key_name: str
    _partitions: int
    _root: Path
    _epsilon: float
    _delta: float

    def mapInPandas(  # noqa: N802 - Spark's name
        self, function: Callable[[Iterator[Any]], Iterable[Any]], schema: StructType | str
    ) -> DataFrame:
        """Run a function over pandas DataFrames, as `DataFrame.mapInPandas` does."""
        cut = partial(cut_pandas, hidden=HIDDEN)
        join = partial(join_outputs, form=make_pandas_form())
        routed, measured = self._prepare(function, cut, function, join)
        return routed.mapInPandas(measured, schema)

    def mapInArrow(  # noqa: N802 - Spark's name
        self, function: Callable[[Iterator[Any]], Iterable[Any]], schema: StructType | str
    ) -> DataFrame:
        """Run a function over Arrow RecordBatches, as `DataFrame.mapInArrow` does."""
        cut = partial(cut_arrow, hidden=HIDDEN)
        join = partial(join_outputs, form=ARROW)
        routed, measured = self._prepare(function, cut, function, join)
        return routed.mapInArrow(measured, schema)

    def map(self, function: Callable[[Any], Any], schema: StructType | str) -> DataFrame:
        """Run a function over rows: it gets a `Row`, and returns a `Row`, tuple or dict."""
        fields = schema if isinstance(schema, StructType) else DataType.fromDDL(schema)
        routed, measured = self._prepare(
            function,
            partial(_cut_rows, schema=self._df.schema),
            partial(_map_rows, function=function),
            partial(join_rows, schema=fields),
        )
        return routed.mapInArrow(measured, schema)

    def _prepare(
        self,
        named: Callable[..., Any],
        cut: Callable[..., list[Piece[Any]]],
        function: Callable[[Iterator[Any]], Iterable[Any]],
        join: Callable[[Iterator[Any]], Iterator[Any]],
    ) -> tuple[DataFrame, Callable[[Iterator[Any]], Iterator[Any]]]:
        """The routed rows, and the function that runs over them."""
        name = name_shuffle(named, self._key_name)
        if self._df.isStreaming:
            pinned = PinnedCosts(str(self._root), name)
            measured = self._measure(name, pinned.find_batch, cut, function, join)
            return self._route(pinned.find_costs), measured
        # The driver numbers the batch and chooses the costs, because it makes the plan just now.
        folder = CostFolder(self._root / name)
        last, newest = folder.find_newest(), folder.newest()
        batch = Batch(str(self._root / name), 0 if last is None else last + 1)
        measured = self._measure(name, lambda: batch, cut, function, join)
        # As bytes, in which the empty cells of the sketches take almost no space.
        return self._route(partial(read_costs, newest.to_bytes() if newest else b"")), measured

    def _route(self, find_costs: FindCosts) -> DataFrame:
        """The rows in their partitions, with the hidden columns."""
        route = F.arrow_udf(make_router(find_costs, self._partitions), ROUTED)
        # The result depends on the other rows, so the optimizer must not compute it elsewhere.
        route = route.asNondeterministic()
        fields = self._df.schema
        marks = mark_rows([(self._df[quote(field.name)], field.dataType) for field in fields])
        with_item = self._df.withColumn(HIDDEN.item, F.xxhash64(self._key))
        routed = with_item.withColumn(ROUTE, route(HIDDEN.item, *marks))
        estimated = routed.withColumn(HIDDEN.estimated_s, F.col(ROUTE)["estimated_s"])
        placed = estimated.withColumn(ROUTE, F.col(ROUTE)["partition"])
        return placed.repartitionById(self._partitions, ROUTE).drop(ROUTE)

    def _measure(
        self,
        name: str,
        find_batch: FindBatch,
        cut: Callable[..., list[Piece[Any]]],
        function: Callable[[Iterator[Any]], Iterable[Any]],
        join: Callable[[Iterator[Any]], Iterator[Any]],
    ) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """The function as the tasks run it: measured, with a task report at the end.

        Pieces are small, so its outputs are joined, outside the measured time.
        """
        reports = find_accumulator(self._df.sparkSession.sparkContext)
        partitions, epsilon, delta = self._partitions, self._epsilon, self._delta

        def measured(inputs: Iterator[Any]) -> Iterator[Any]:
            spare_loaded_modules()
            batch = find_batch()
            meter = FunctionMeter[Any, Any](name, CostSketch(epsilon, delta, seed=SEED))
            pieces = (cut(rows, first_alone=meter.is_cold()) for rows in inputs)
            yield from join(meter.run(function, pieces))
            context = TaskContext.get()
            place = context.partitionId(), context.taskAttemptId(), partitions
            report = CostReport.of(batch, name, context.stageId(), place, meter.summarize())
            reports.add((report,))

        return measured


def _find_key(df: DataFrame, cost_key: str | Column) -> Column:
    if isinstance(cost_key, str):
        cost_key = _find_column("cost_key", df, cost_key)
    if not isinstance(cost_key, Column):
        message = f"cost_key: must be the name of a column or a Column, not {cost_key!r:.80}"
        raise InvalidInputError(message)
    try:
        df.select(F.xxhash64(cost_key))
        fields = df.select(cost_key).schema
    except AnalysisException as error:
        message = f"cost_key: {str(error).partition(chr(10))[0]}"
        raise InvalidInputError(message) from error
    if holds_type(fields, (GeometryType, GeographyType)):
        # Spark itself raises this only when the batch runs.
        message = (
            "cost_key: Spark cannot hash a geometry or geography; take a measure of it, such as "
            "octet_length(st_asbinary(...)) in classes"
        )
        raise InvalidInputError(message)
    return cost_key


def _find_column(field: str, df: DataFrame, name: str) -> Column:
    try:
        return df[quote(name)]
    except AnalysisException as error:
        known = ", ".join(df.columns)
        message = (
            f"{field}: there is no column {name!r}, or more than one, among {known}; nothing was "
            "started: name an existing column, or rename columns with the same name"
        )
        raise InvalidInputError(message) from error


def _find_default_root(df: DataFrame) -> Path:
    if not df.isStreaming:
        return _make_process_folder()
    checkpoints = df.sparkSession.conf.get(CHECKPOINT_LOCATION, None)
    if not checkpoints:
        message = (
            "folder: a stream needs a folder that the driver and all executors share, because "
            "learned costs must outlive them; nothing was started: pass folder, or set "
            f"{CHECKPOINT_LOCATION}"
        )
        raise InvalidInputError(message)
    return find_root(checkpoints) / FOLDER


@cache
def _make_process_folder() -> Path:
    # The directory object lives as long as the cache and removes the folder when the process ends.
    return Path(_process_directory().name)


@cache
def _process_directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="balancedstream-shuffle-")


def _cut_rows(batch: Any, schema: StructType, *, first_alone: bool) -> list[Piece[Any]]:
    # Each row is a piece.
    hidden = [batch.column(column).to_pylist() for column in HIDDEN]
    table = pa.Table.from_batches([batch.drop_columns([*HIDDEN])])
    rows = ArrowTableToRowsConversion.convert(table, schema)
    return [
        Piece(item, 1, estimated_s, row)
        for item, estimated_s, row in zip(*hidden, rows, strict=True)
    ]


def _map_rows(rows: Iterator[Any], function: Callable[[Any], Any]) -> Iterator[Any]:
    # In `map`, a StopIteration from the function would look like the end of the rows.
    for row in rows:
        yield function(row)
