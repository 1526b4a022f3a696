"""Cells of Arrow batches as Python objects, many at once instead of one by one.

`transformWithState` gives a processor rows. For each cell of each row, PySpark's worker asks the
Arrow array of the column (`pyspark.worker`, SQL_TRANSFORM_WITH_STATE_PYTHON_ROW_UDF): about 1 µs a
cell, and twice for the key. pyarrow converts many cells to a list in less time; how much less
depends on its version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

ROWS_AT_ONCE: Final = 128
"""Rows that are decoded ahead. Only a few, because their cells are in memory beside the batch."""

_markers: list[str] = []
"""A column of the stream that this worker reads next, if that stream is decoded ahead."""

_load_stream: Callable[[ArrowStreamSerializer, IO[bytes]], Iterator[pa.RecordBatch]] = (
    ArrowStreamSerializer.load_stream
)


def decode_next_stream(marker: str) -> None:
    """Decodes this worker's next stream of Arrow batches column by column.

    Call it while Spark unpickles the function that reads the stream: PySpark opens it then.

    Args:
        marker: a column of its batches; batches without this column stay as they are.
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
    """An Arrow batch for readers of `batch.column(i)[row].as_py()`, row by row.

    Everything else comes from the batch itself, also cells of nested types: PySpark makes two lists
    of one in the key, and the user may change the one in the row.

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
    """A column that acts as its own cell in the last requested row: read it at once.

    So the only object made for a cell is its value.
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
