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

from balancedstream.core.sketches import CostSketch
from balancedstream.errors import InvalidInputError
from balancedstream.shuffling.collecting import Report, find_accumulator
from balancedstream.shuffling.folders import (
    Batch,
    BatchSource,
    CostFolder,
    CostSource,
    GivenBatch,
    GivenCosts,
    PinnedCosts,
    find_root,
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
"""Below the checkpoints; the underscore keeps it apart from a query's name."""

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
    """Spread rows over partitions by what they are expected to cost a function.

    Costs are learnt from one micro-batch to the next while the function runs (Online Shuffle
    Grouping, Rivetti et al.; what differs in a micro-batch engine is in `docs/shuffle.md`). The
    first two batches go round robin, and so do all until the estimates foretell a batch better than
    equal costs would have, and again once they are clearly worse.

    Args:
        df: a stream or not. Rows come out as they go in, each once, in no order.
        cost_key: the column, or an expression, that the cost follows from: a category, or a
            measure such as the length of a text in classes. The fewer distinct values, the sooner
            they are known. Null is a value like any other.
        partitions: into how many; 1 or more. With four to eight for each task that runs at once,
            executors of different speed get shares accordingly: Spark gives the next partition to
            whoever is free.
        folder: where what is learnt is kept. For a stream it must be a path that the driver and
            all executors share, by default beside the session's checkpoints. Otherwise only the
            driver needs it, by default as long as it runs.
        epsilon: of the sketches, see `balancedstream.core.sketches.CostSketch`.
        delta: of the sketches.

    Returns:
        What takes the function, which should work on its input piece by piece.

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
            message = f"df: the shuffle itself adds a column {name!r}; rename the one that is there"
            raise InvalidInputError(message)
        _find_column("df", df, name)
    key = _find_key(df, cost_key)
    root = find_root(folder) if folder else _find_default_root(df)
    return Shuffle(df, key, str(cost_key), int(partitions), root, epsilon, delta)


@dataclass(frozen=True)
class Shuffle:
    """Rows that wait for the function that they are shuffled for; made by `shuffle`.

    Its methods are named and behave as Spark's own. But the function sees pieces of its input that
    hold rows of one cost key each, for it is the time for a piece that is measured. A function that
    reads all its input before it works cannot be measured; rows then go round robin. One that
    collects several pieces before it works on them, as mini-batches for a model, is measured
    wrongly: let it work piece by piece, and cut mini-batches from each.

    What a function costs is learnt by its name and the cost key, and anew with each checkpoint: two
    functions of a query that are shuffled by one key each need a name of their own.
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
        """Run a function over rows: it gets a `Row`, and gives a `Row`, tuple or dict."""
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
        """The rows where they shall run, and what runs over them.

        Args:
            named: gives the shuffle its name.
            cut: one input of a task.
            function: over the parts of all pieces.
            join: its outputs.
        """
        name = name_shuffle(named, self._key_name)
        if self._df.isStreaming:
            source = PinnedCosts(str(self._root), name)
            return self._route(source), self._measure(name, source, cut, function, join)
        folder = CostFolder(self._root / name)
        last, newest = folder.find_newest(), folder.newest()
        costs = GivenCosts(newest.to_bytes() if newest else None)
        batch = GivenBatch(Batch(str(self._root / name), 0 if last is None else last + 1))
        return self._route(costs), self._measure(name, batch, cut, function, join)

    def _route(self, source: CostSource) -> DataFrame:
        """The rows where they shall run, with the hidden columns."""
        route = F.arrow_udf(make_router(source, self._partitions), ROUTED)
        # What it answers depends on the other rows: the optimizer must not compute it elsewhere.
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
        source: BatchSource,
        cut: Callable[..., list[Piece[Any]]],
        function: Callable[[Iterator[Any]], Iterable[Any]],
        join: Callable[[Iterator[Any]], Iterator[Any]],
    ) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """The function as the tasks run it: measured, and reported at its end.

        Pieces are small, so its outputs are joined outside of what is measured.
        """
        reports = find_accumulator(self._df.sparkSession.sparkContext)
        partitions, epsilon, delta = self._partitions, self._epsilon, self._delta

        def measured(inputs: Iterator[Any]) -> Iterator[Any]:
            spare_loaded_modules()
            batch = source.find_batch()
            meter = FunctionMeter[Any, Any](name, CostSketch(epsilon, delta, seed=SEED))
            pieces = (cut(rows, first_alone=meter.is_cold()) for rows in inputs)
            yield from join(meter.run(function, pieces))
            context = TaskContext.get()
            place = context.partitionId(), context.taskAttemptId(), partitions
            report = Report.of(batch, name, context.stageId(), place, meter.summarize())
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
        # Spark itself says so only when the batch runs.
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
            "started: name one that is there, or rename those that are alike"
        )
        raise InvalidInputError(message) from error


def _find_default_root(df: DataFrame) -> Path:
    if not df.isStreaming:
        return _make_process_folder()
    checkpoints = df.sparkSession.conf.get(CHECKPOINT_LOCATION, None)
    if not checkpoints:
        message = (
            "folder: a stream needs one that the driver and all executors share, for what is "
            f"learnt must outlive them. Give it, or set {CHECKPOINT_LOCATION}."
        )
        raise InvalidInputError(message)
    return find_root(checkpoints) / FOLDER


@cache
def _make_process_folder() -> Path:
    # The directory object removes the folder when the process ends, and lives as long as the cache.
    return Path(_process_directory().name)


@cache
def _process_directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="balancedstream-shuffle-")


def _cut_rows(batch: Any, schema: StructType, *, first_alone: bool) -> list[Piece[Any]]:
    # Each row is alone.
    hidden = [batch.column(column).to_pylist() for column in HIDDEN]
    table = pa.Table.from_batches([batch.drop_columns([*HIDDEN])])
    rows = ArrowTableToRowsConversion.convert(table, schema)
    return [
        Piece(item, 1, estimated_s, row)
        for item, estimated_s, row in zip(*hidden, rows, strict=True)
    ]


def _map_rows(rows: Iterator[Any], function: Callable[[Any], Any]) -> Iterator[Any]:
    # In `map`, a StopIteration that escapes the function would pass for the end of the rows.
    for row in rows:
        yield function(row)
