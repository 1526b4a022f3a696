"""Puts small outputs of the user's function together before Spark gets them.

A function that is given small pieces gives small outputs. Each that is given to Spark costs what a
large one does, a millisecond or more in pandas, and that is more than measuring the piece cost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.types import StructType

ROWS_PER_OUTPUT = 10_000
"""Once so many rows are held, they are given to Spark, whose own batches are as large."""

BYTES_PER_OUTPUT = 4 * 2**20
"""Once so many bytes are held, they are given to Spark: a function may have chosen small outputs
because its rows are large."""

SURELY_SMALL_BYTES = 2**12
"""An output of no more is small; so are `OUTPUTS_HELD` of them together."""

OUTPUTS_HELD = 1_000
"""No more are held, however small: an empty pandas DataFrame has 4 KB."""

ROWS_CONVERTED = 100
"""Rows of `map` are made an Arrow batch by so many: enough for one to cost little, and few enough
to be held though they are large."""

FIXED_KINDS = set("biufmM")
"""Booleans, numbers and times: eight bytes a cell at most."""

PLAIN_CELLS = {
    *("boolean", "bytes", "date", "datetime", "datetime64", "decimal", "empty", "floating"),
    *("integer", "string", "time", "timedelta"),
}
"""What pandas calls Python objects that cannot change and whose size it knows."""


@dataclass(frozen=True)
class Form:
    """What outputs of one kind are, and how they are put together.

    Attributes:
        kind: their class. What is of another goes to Spark as it is, which may refuse it.
        describe: what two of them must have in common so that nothing but their number changes
            when they are put together, and how many bytes one holds; None if it cannot be held.
        copy: makes one that shares no memory with the function, which may use that memory again for
            its next output.
        join: puts them together; there is at least one.
    """

    kind: type[Any]
    describe: Callable[[Any], tuple[Any, int] | None]
    copy: Callable[[Any], Any]
    join: Callable[[list[Any]], Any]


def _measure_bytes(batch: pa.RecordBatch) -> int:
    """How large a copy is, or more where that is little."""
    # What a slice is cut from counts as a whole here, but it takes a tenth of the time. What
    # columns share counts once, and each has a copy of its own. (So have the fields of a struct,
    # which nobody shares.)
    at_most: int = batch.get_total_buffer_size() * batch.num_columns
    return at_most if at_most <= SURELY_SMALL_BYTES else batch.nbytes


ARROW = Form(
    kind=pa.RecordBatch,
    describe=lambda batch: (batch.schema, _measure_bytes(batch)),
    # Of a single batch, Arrow makes no copy.
    copy=lambda batch: pa.concat_batches([batch, batch.slice(0, 0)]),
    join=pa.concat_batches,
)


def make_pandas_form() -> Form:
    """The form of pandas DataFrames."""
    # Only who uses pandas waits for its import.
    import pandas as pd  # noqa: PLC0415

    def describe(frame: pd.DataFrame) -> tuple[Any, int] | None:
        size_bytes = 0
        # Python objects are of one kind each, for Spark may convert one kind and refuse two.
        kinds = []
        for at, dtype in enumerate(frame.dtypes):
            if dtype.kind in FIXED_KINDS:
                size_bytes += 8 * len(frame)
                continue
            cells = frame.iloc[:, at].to_numpy()
            # A list or an array may be filled again, and copying a frame does not copy it.
            kinds.append(pd.api.types.infer_dtype(cells))
            if kinds[-1] not in PLAIN_CELLS:
                return None
            size_bytes += sum(map(sys.getsizeof, cells))
        # Integers that are put together with floats would become floats.
        return (list(frame.dtypes.items()), kinds), size_bytes

    return Form(
        kind=pd.DataFrame,
        describe=describe,
        copy=lambda frame: frame.copy(),
        join=lambda frames: pd.concat(frames, ignore_index=True),
    )


def join_outputs(outputs: Iterable[Any], form: Form) -> Iterator[Any]:
    """Give the same rows in the same order, in fewer outputs.

    Args:
        outputs: of the function.
        form: of its outputs.

    Returns:
        Small outputs are held until they are `ROWS_PER_OUTPUT` rows, `BYTES_PER_OUTPUT` bytes or
        `OUTPUTS_HELD` together, or the next one is not like them; others are given on as they are.
    """
    held: list[Any] = []
    held_likeness: Any = None
    rows = size_bytes = 0
    for output in outputs:
        may_be_held = type(output) is form.kind and len(output) < ROWS_PER_OUTPUT
        described = form.describe(output) if may_be_held else None
        likeness, output_bytes = described or (None, 0)
        is_small = described is not None and output_bytes < BYTES_PER_OUTPUT
        if held and not (is_small and likeness == held_likeness):
            yield form.join(held)
            held, rows, size_bytes = [], 0, 0
        if not is_small:
            yield output
            continue
        held.append(form.copy(output))
        held_likeness = likeness
        rows += len(output)
        size_bytes += output_bytes
        is_enough = rows >= ROWS_PER_OUTPUT or size_bytes >= BYTES_PER_OUTPUT
        if is_enough or len(held) >= OUTPUTS_HELD:
            yield form.join(held)
            held, rows, size_bytes = [], 0, 0
    if held:
        yield form.join(held)


def join_rows(rows: Iterable[Any], schema: StructType) -> Iterator[Any]:
    """Give rows as Arrow batches, as `join_outputs` gives Arrow batches.

    Args:
        rows: of a function: a `Row`, tuple or dict each.
        schema: of the batches.
    """
    return join_outputs(_convert(iter(rows), schema), ARROW)


def _convert(rows: Iterator[Any], schema: StructType) -> Iterator[Any]:
    while few := list(islice(rows, ROWS_CONVERTED)):
        table = LocalDataToArrowConversion.convert(few, schema, use_large_var_types=False)
        yield from table.to_batches()
