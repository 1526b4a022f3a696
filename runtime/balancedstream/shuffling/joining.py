"""Joins small outputs of the user's function before Spark gets them.

A function with small pieces as input returns small outputs. Each costs Spark as much as a large
one, a millisecond or more in pandas, which is more than the measurement of the piece costs.
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
"""This many held rows go to Spark, whose own batches are as large."""

BYTES_PER_OUTPUT = 4 * 2**20
"""This many held bytes go to Spark: a function may return small outputs because its rows are
large."""

SURELY_SMALL_BYTES = 2**12
"""An output of at most this size is small; so are `OUTPUTS_HELD` of them together."""

OUTPUTS_HELD = 1_000
"""At most this many are held, even small ones: an empty pandas DataFrame has 4 KB."""

ROWS_CONVERTED = 100
"""Rows of `map` in an Arrow batch: enough to make a row cheap, few enough to hold large ones."""

FIXED_KINDS = set("biufmM")
"""Booleans, numbers and times: at most eight bytes a cell."""

PLAIN_CELLS = {
    *("boolean", "bytes", "date", "datetime", "datetime64", "decimal", "empty", "floating"),
    *("integer", "string", "time", "timedelta"),
}
"""The kinds of Python objects, in pandas' words, that cannot change and have a known size."""


@dataclass(frozen=True)
class Form:
    """One kind of outputs, and how to join them.

    Attributes:
        kind: their class. Outputs of another class go to Spark as they are, which may refuse them.
        describe: gives what two outputs must have in common to be joined without any change to
            their rows, and the size of one in bytes; None if it cannot be held.
        copy: makes a copy that shares no memory with the function, which may reuse that memory for
            its next output.
        join: joins one or more outputs.
    """

    kind: type[Any]
    describe: Callable[[Any], tuple[Any, int] | None]
    copy: Callable[[Any], Any]
    join: Callable[[list[Any]], Any]


def _measure_bytes(batch: pa.RecordBatch) -> int:
    """Size of a copy; an upper bound if that is small."""
    # This counts the whole array behind a slice, but takes a tenth of the time. Memory that
    # columns share counts once, but each column gets its own copy. (So do the fields of a struct,
    # which are not shared in practice.)
    at_most: int = batch.get_total_buffer_size() * batch.num_columns
    return at_most if at_most <= SURELY_SMALL_BYTES else batch.nbytes


ARROW = Form(
    kind=pa.RecordBatch,
    describe=lambda batch: (batch.schema, _measure_bytes(batch)),
    # Arrow does not copy a single batch.
    copy=lambda batch: pa.concat_batches([batch, batch.slice(0, 0)]),
    join=pa.concat_batches,
)


def make_pandas_form() -> Form:
    """The form of pandas DataFrames."""
    # Only users of pandas wait for its import.
    import pandas as pd  # noqa: PLC0415

    def describe(frame: pd.DataFrame) -> tuple[Any, int] | None:
        size_bytes = 0
        # A column must have one kind of Python objects: Spark may convert one kind and refuse two.
        kinds = []
        for at, dtype in enumerate(frame.dtypes):
            if dtype.kind in FIXED_KINDS:
                size_bytes += 8 * len(frame)
                continue
            cells = frame.iloc[:, at].to_numpy()
            # The function may refill a list or an array, which a copy of the frame does not copy.
            kinds.append(pd.api.types.infer_dtype(cells))
            if kinds[-1] not in PLAIN_CELLS:
                return None
            size_bytes += sum(map(sys.getsizeof, cells))
        # Integers joined with floats would become floats.
        return (list(frame.dtypes.items()), kinds), size_bytes

    return Form(
        kind=pd.DataFrame,
        describe=describe,
        copy=lambda frame: frame.copy(),
        join=lambda frames: pd.concat(frames, ignore_index=True),
    )


def join_outputs(outputs: Iterable[Any], form: Form) -> Iterator[Any]:
    """Return the same rows in the same order, in fewer outputs.

    Returns:
        Small outputs are held until together they have `ROWS_PER_OUTPUT` rows, `BYTES_PER_OUTPUT`
        bytes or `OUTPUTS_HELD` outputs, or the next one differs in form; others pass unchanged.
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
    """Return rows (`Row`, tuple or dict) as Arrow batches, joined as by `join_outputs`."""
    return join_outputs(_convert(iter(rows), schema), ARROW)


def _convert(rows: Iterator[Any], schema: StructType) -> Iterator[Any]:
    while few := list(islice(rows, ROWS_CONVERTED)):
        table = LocalDataToArrowConversion.convert(few, schema, use_large_var_types=False)
        yield from table.to_batches()
