"""Cells of Arrow batches as Python objects: many at once, where PySpark makes them one by one.

`transformWithState` gives a processor rows, and PySpark's worker asks an Arrow array of each column
for each cell of each row (`pyspark.worker`, SQL_TRANSFORM_WITH_STATE_PYTHON_ROW_UDF): about 1 µs a
cell, and those of the key twice. pyarrow makes a list of many in less; how much less depends on its
version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

ROWS_AT_ONCE: Final = 128
"""What is decoded ahead. Few, for these cells are in memory beside the batch."""

_markers: list[str] = []
"""A column of the stream that this worker reads next, if that is to be decoded ahead."""

_load_stream: Callable[[ArrowStreamSerializer, IO[bytes]], Iterator[pa.RecordBatch]] = (
    ArrowStreamSerializer.load_stream
)


def decode_next_stream(marker: str) -> None:
    """Has this worker's next stream of Arrow batches decoded column by column.

    To be called while Spark unpickles the function that it is for: PySpark opens the stream then.

    Args:
        marker: a column that its batches have; batches without it are left as they are.
    """
    _markers[:] = [marker]
    ArrowStreamSerializer.load_stream = _load_decoded


def _load_decoded(serializer: ArrowStreamSerializer, stream: IO[bytes]) -> Iterator[Any]:
    markers = _markers.copy()
    _markers.clear()
    batches = _load_stream(serializer, stream)
    if not markers:
        return batches
    return (DecodedBatch(b) if markers[0] in b.schema.names else b for b in batches)


class DecodedBatch:
    """An Arrow batch for who reads `batch.column(i)[row].as_py()`, row by row.

    All else is asked of the batch itself, cells of nested types as well: PySpark makes two lists of
    one that is in the key, and the user may change that of the row.

    Args:
        batch: what it stands for.

    >>> batch = DecodedBatch(pa.RecordBatch.from_pydict({"n": [7, 8, None]}))
    >>> [batch.column(0)[row].as_py() for row in range(batch.num_rows)]
    [7, 8, None]
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._columns = [
            column if pa.types.is_nested(column.type) else _DecodedColumn(column)
            for column in batch.columns
        ]

    def column(self, place: int) -> Any:
        """See `pyarrow.RecordBatch.column`."""
        return self._columns[place]

    __getitem__ = column

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)


class _DecodedColumn:
    """A column that is its own cell, that of the row it was asked for last: read it at once.

    So no object is made of a cell but the one that is asked for.
    """

    def __init__(self, array: pa.Array) -> None:
        self._array = array
        self._cells: list[Any] = []
        self._first = 0
        self._place = 0

    def __getitem__(self, row: int) -> _DecodedColumn:
        place = row - self._first
        if not 0 <= place < len(self._cells):
            self._cells = self._array.slice(row, ROWS_AT_ONCE).to_pylist()
            self._first, place = row, 0
        self._place = place
        return self

    def as_py(self) -> Any:
        """See `pyarrow.Scalar.as_py`."""
        return self._cells[self._place]
