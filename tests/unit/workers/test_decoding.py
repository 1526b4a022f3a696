"""Cells of Arrow batches, decoded ahead where PySpark's worker decodes them one by one."""

from __future__ import annotations

import datetime as dt
import io
import pickle
from collections.abc import Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark import Accumulator
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.types import StructType

from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.processors import ROUTE_COLUMN, MovableProcessor, StripFrames, StripRows
from balancedstream.keyed.storage import Operator
from balancedstream.workers import decoding
from balancedstream.workers.decoding import ROWS_AT_ONCE, decode_next_stream

ROUTED = pa.RecordBatch.from_pydict({"n": [1, None], ROUTE_COLUMN: [0, 7]})
PLAIN = pa.RecordBatch.from_pydict({"n": [1, None]})

NOON = dt.datetime(2026, 3, 29, 12, 30, 15, 123456)  # noqa: DTZ001

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "null": (pa.null(), [None]),
    "boolean": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-128, 127]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [0.1, -0.0, float("inf")]),
    "double": (pa.float64(), [0.1, -0.0, 5e-324, float("nan")]),
    "string": (pa.string(), ["", "Zürich", "\x00"]),
    "large string": (pa.large_string(), ["", "Zürich"]),
    "binary": (pa.binary(), [b"", b"\x00\xff"]),
    "decimal": (pa.decimal128(38, 3), [Decimal("-12345678901234567890.125")]),
    "date": (pa.date32(), [dt.date(1582, 10, 15), dt.date(9999, 12, 31)]),
    "time": (pa.time64("ns"), [dt.time(23, 59, 59, 999999)]),
    "timestamp": (pa.timestamp("us", tz="Europe/Berlin"), [NOON.replace(tzinfo=dt.UTC)]),
    "timestamp_ntz": (pa.timestamp("us"), [NOON, NOON.replace(year=1)]),
    "interval": (pa.duration("us"), [dt.timedelta(days=-3, microseconds=1)]),
    "array": (pa.list_(pa.list_(pa.int32())), [[[1, None], None, []]]),
    "map": (pa.map_(pa.string(), pa.float64()), [[("a", 1.5), ("b", None)], []]),
    "struct": (pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())}), [{"a": 1, "b": ["x"]}]),
}


@pytest.fixture(autouse=True)
def _a_new_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ArrowStreamSerializer, "load_stream", ArrowStreamSerializer.load_stream)
    yield
    decoding._markers.clear()


def load(*batches: pa.RecordBatch) -> list[Any]:
    """What PySpark's worker gets of a stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    sink.seek(0)
    return list(ArrowStreamSerializer().load_stream(sink))


def read_rows(batch: Any) -> list[tuple[Any, ...]]:
    """As PySpark's worker does: the key, then all cells, row by row."""
    return [
        (batch[0][row].as_py(), *(batch.column(i)[row].as_py() for i in range(batch.num_columns)))
        for row in range(batch.num_rows)
    ]


@pytest.mark.parametrize("kind", COLUMNS)
def test_cells_of_every_type_are_those_that_arrow_gives_one_by_one(kind: str) -> None:
    data_type, values = COLUMNS[kind]
    cells = pa.array([*values, None] * ROWS_AT_ONCE, data_type)
    batch = pa.RecordBatch.from_arrays([cells, cells[::-1]], ["key", ROUTE_COLUMN])
    # A slice, too: its columns do not begin where their memory does.
    for expected in (batch, batch.slice(3, 2 * ROWS_AT_ONCE - 5), batch.slice(0, 0)):
        decode_next_stream(ROUTE_COLUMN)
        (loaded,) = load(expected)
        assert not isinstance(loaded, pa.RecordBatch)
        rows = read_rows(loaded)
        assert repr(rows) == repr(read_rows(expected))
        assert [*map(types_of, rows)] == [*map(types_of, read_rows(expected))]


def types_of(row: tuple[Any, ...]) -> list[type]:
    """The classes of its cells."""
    return [type(cell) for cell in row]


@pytest.mark.parametrize("kind", ["array", "map", "struct"])
def test_who_changes_a_nested_cell_does_not_change_the_key(kind: str) -> None:
    data_type, values = COLUMNS[kind]
    decode_next_stream("key")
    (loaded,) = load(pa.RecordBatch.from_arrays([pa.array(values[:1], data_type)], ["key"]))
    ((key, cell),) = read_rows(loaded)
    cell.clear()
    assert (key, cell) == (values[0], type(cell)())


def test_rows_can_be_read_in_any_order() -> None:
    decode_next_stream("n")
    (loaded,) = load(pa.RecordBatch.from_pydict({"n": range(1000)}))
    assert [loaded.column(0)[row].as_py() for row in (999, 0, 500, 499, 0)] == [999, 0, 500, 499, 0]


def test_what_else_is_asked_of_a_batch_is_answered_by_arrow() -> None:
    decode_next_stream(ROUTE_COLUMN)
    (loaded,) = load(ROUTED)
    assert loaded.schema.names == ["n", ROUTE_COLUMN]
    assert loaded.to_pydict() == ROUTED.to_pydict()


def test_only_the_next_stream_is_decoded_ahead_and_only_where_it_is_the_marked_one() -> None:
    decode_next_stream(ROUTE_COLUMN)
    assert load(PLAIN) == [PLAIN]
    assert load(ROUTED) == [ROUTED]
    decode_next_stream(ROUTE_COLUMN)
    assert load(ROUTED, ROUTED) != [ROUTED, ROUTED]
    assert load(ROUTED) == [ROUTED]


def make_processor(strip: Any) -> MovableProcessor:
    """One as it is sent to workers."""
    encoding = KeyEncoding(StructType().add("n", "long"))
    reports = cast("Accumulator[Any]", None)
    user = cast("Any", SimpleNamespace())
    return MovableProcessor(user, Operator(), encoding, "none", reports, strip, strip)


def test_a_worker_decodes_ahead_where_a_processor_is_given_rows() -> None:
    schema = StructType().add("n", "long")
    pickle.loads(pickle.dumps(make_processor(StripRows(schema, ["n"]))))  # noqa: S301
    assert load(ROUTED) != [ROUTED]
    pickle.loads(pickle.dumps(make_processor(StripFrames(schema, ["n"]))))  # noqa: S301
    assert load(ROUTED) == [ROUTED]
