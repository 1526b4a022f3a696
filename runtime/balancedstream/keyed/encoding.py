"""Keys as Spark returns them, as Spark hashes them, and as text."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    NumericType,
    StructType,
    TimestampType,
)

from balancedstream.core.keys.routes import find_route, partition_of
from balancedstream.core.keys.text import freeze_key, read_key, write_key
from balancedstream.core.keys.types import NeverMoved, StructKey, parse_key_type
from balancedstream.errors import InvalidInputError, RefusedKeyError
from balancedstream.workers.schemas import holds_type

EXACT = 2**53
"""From this number on, not every whole number is a float."""


class KeyEncoding:
    """Converts the keys of one operator.

    Args:
        schema: the key's columns, in the order in which the operator groups by them.

    Attributes:
        problem: why keys of this type never move; empty if they can move.
        has_timestamp: whether a key has one: pandas uses the time zone of the session, and Python
            that of the machine.

    >>> from pyspark.sql.types import IntegerType, StringType
    >>> encoding = KeyEncoding(StructType().add("land", StringType()).add("n", IntegerType()))
    >>> encoding.write(("de", 7)), encoding.read('["de",7]')
    ('["de",7]', ('de', 7))
    """

    def __init__(self, schema: StructType) -> None:
        self._types: list[DataType] = [column.dataType for column in schema]
        parsed = parse_key_type(schema.jsonValue())
        self.problem = parsed.reason if isinstance(parsed, NeverMoved) else ""
        # Whether a dictionary can find all values as they are: no NaN, no signed zero, no list.
        unlike = FloatType, DoubleType, ArrayType, StructType
        self._plain = not any(isinstance(column, unlike) for column in self._types)
        self._alone = len(self._types) == 1
        self.has_timestamp = holds_type(schema, TimestampType)
        if isinstance(parsed, StructKey):
            # A key of one column is hashed and written like the column.
            self._key_type = parsed.fields[0][1] if self._alone else parsed

    def write(self, values: Sequence[Any]) -> str:
        """A key in the form in which plans name it."""
        return write_key(self._internalize(values), self._key_type)

    def read(self, text: str) -> tuple[Any, ...]:
        """The values of the key's columns, as PySpark passes them to a function.

        Raises:
            InvalidInputError: this operator has no such key, or the key is null, which never moves.
        """
        return self._read_values(text, read_key(text, self._key_type))

    def _read_values(self, text: str, value: Any) -> tuple[Any, ...]:
        if value is None:
            _refuse_null(text)
        values: Any = (value,) if self._alone else value
        try:
            return tuple(t.fromInternal(v) for t, v in zip(self._types, values, strict=True))
        except (ValueError, OverflowError, OSError) as problem:
            raise RefusedKeyError(
                text, "Python has no such value", detail=str(problem)
            ) from problem

    def spell(self, text: str) -> str:
        """The text of a key to move, spelled as `write` spells it.

        Raises:
            InvalidInputError: as `read`, or the key is NaN. One of several columns may be NaN: an
                earlier epoch may contain such a key.
        """
        values = self.read(text)
        if self._alone and values[0] != values[0]:
            _refuse_nan(text)
        return self.write(values)

    def check_movable(self, text: str) -> None:
        """Refuses immovable keys.

        Raises:
            InvalidInputError: as `read`, or all columns are null, or the key contains NaN, a value
                that pandas turns into NaN, a zero of a float, or a time that comes twice.
        """
        values = self.read(text)
        if all(value is None for value in values):
            _refuse_null(text)
        if any(map(_is_nan_in_pandas, values, self._types)):
            _refuse_nan(text)
        _refuse_zero(text, values)
        if self.comes_twice(values):
            why = (
                "has a timestamp in an hour that comes twice, because clocks are set back then: it "
                "is never moved, for PySpark confuses it with the key an hour later or earlier"
            )
            raise RefusedKeyError(text, why)

    def comes_twice(self, values: Sequence[Any]) -> bool:
        """Whether the key has a timestamp whose local time is that of another one, too.

        PySpark compares keys in the session's time zone, and finds the key of a timer by its time
        in the zone of this machine. For such a key both may find the state of another one.

        Args:
            values: of the key's columns, as PySpark passes them to a function.
        """
        return self.has_timestamp and any(map(_comes_twice, values, self._types))

    def can_move(self, text: str) -> bool:
        """Whether a key that a task wrote can move."""
        try:
            self.check_movable(text)
        except InvalidInputError:
            return False
        return True

    def find_route(self, text: str, partition: int, partitions: int) -> int:
        """The smallest route that brings a key to a state partition.

        Raises:
            InvalidInputError: as `read`, or no route was found, which practically never happens.
        """
        value = read_key(text, self._key_type)
        # Python cannot represent every value that Spark can hash.
        self._read_values(text, value)
        route = find_route(value, self._key_type, partition, partitions)
        if route is None:
            why = f"no route leads to partition {partition}"
            raise RefusedKeyError(text, why, "the key stays where it is")
        return route

    def find_partition(self, text: str, route: int, partitions: int) -> int:
        """The state partition to which a route leads a key.

        Raises:
            InvalidInputError: as `read`.
        """
        return partition_of(route, read_key(text, self._key_type), self._key_type, partitions)

    def freeze(self, text: str) -> Any:
        """A key in the form in which `freeze_columns` yields it."""
        value = read_key(text, self._key_type)
        return freeze_key((value,) if self._alone else value)

    def freeze_columns(self, columns: Sequence[pa.Array]) -> list[Any]:
        """One tuple for each row, equal to that of `freeze` for the same key."""
        lists = [
            _list_internal(column, of_type)
            for column, of_type in zip(columns, self._types, strict=True)
        ]
        if self._plain:
            return [*zip(*lists, strict=True)]
        return [freeze_key(row) for row in zip(*lists, strict=True)]

    def _internalize(self, values: Sequence[Any]) -> Any:
        if self._alone:
            return _internalize(values[0], self._types[0])
        return tuple(_internalize(v, t) for t, v in zip(self._types, values, strict=True))


def _refuse_null(text: str) -> NoReturn:
    raise RefusedKeyError(text, "rows without a key are never moved")


def _refuse_nan(text: str) -> NoReturn:
    why = (
        "NaN is never moved, nor a null that pandas turns into NaN (in a float or double, or in an "
        "array of numbers)"
    )
    raise RefusedKeyError(text, why)


def _is_nan_in_pandas(value: Any, of_type: DataType) -> bool:
    """Whether it contains NaN, or a null that pandas turns into NaN: Spark keeps the two apart."""
    match of_type:
        case FloatType() | DoubleType():
            return value is None or math.isnan(value)
        case ArrayType(elementType=NumericType()) if value is not None and None in value:
            return True
        case ArrayType():
            return any(_is_nan_in_pandas(each, of_type.elementType) for each in value or ())
        case StructType():
            types = [field.dataType for field in of_type]
            return value is not None and any(map(_is_nan_in_pandas, value, types))
    return False


def _refuse_zero(text: str, values: Sequence[Any]) -> None:
    # PySpark passes the rows of both zeros to one call, with the key of the first.
    if any(map(_holds_zero, values)):
        why = (
            "0.0 of a float or double is never moved, for 0.0 and -0.0 are one key to Python and "
            "two in Spark's state"
        )
        raise RefusedKeyError(text, why)


def _holds_zero(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_zero, value))
    return isinstance(value, float) and not value


def _internalize(value: Any, of_type: DataType) -> Any:
    """A value as `toInternal` returns it, also from a pandas column with nulls."""
    if isinstance(value, np.generic | np.ndarray | dict):
        value = _to_python(value)
    if isinstance(of_type, FloatType | DoubleType):
        return value
    if isinstance(value, float | datetime.datetime) and value != value:  # noqa: PLR0124 - NaN, NaT
        return None
    if isinstance(of_type, IntegralType) and isinstance(value, float):
        if abs(value) >= EXACT:
            message = (
                f"key {value:.0f}: pandas turns a column with nulls into floats, which cannot "
                "represent so large a whole number exactly; the batch was not committed: use "
                "transformWithState with rows, or drop rows without a key before balanced(...)"
            )
            raise InvalidInputError(message)
        return int(value)
    return of_type.toInternal(_fix_instants(value, of_type))


def _fix_instants(value: Any, of_type: DataType) -> Any:
    """A value whose timestamps are in UTC.

    `toInternal` confuses the two hours when clocks are set back, unless it is given a time zone.
    """
    match of_type:
        case _ if value is None:
            return None
        case ArrayType():
            return [_fix_instants(each, of_type.elementType) for each in value]
        case StructType():
            types = [field.dataType for field in of_type]
            return tuple(map(_fix_instants, _list_fields(value, of_type), types))
        case TimestampType() if value.tzinfo is None:
            return value.astimezone(datetime.UTC)
    return value


def _list_fields(value: Any, of_type: StructType) -> Sequence[Any]:
    """The fields of a struct, which Arrow gives as a dictionary, and Spark as a row."""
    return [value[name] for name in of_type.names] if isinstance(value, dict) else value


def _comes_twice(value: Any, of_type: DataType) -> bool:
    match of_type:
        case _ if value is None:
            return False
        case ArrayType():
            return any(_comes_twice(each, of_type.elementType) for each in value)
        case StructType():
            types = [field.dataType for field in of_type]
            return any(map(_comes_twice, _list_fields(value, of_type), types))
        case TimestampType():
            return any(map(_has_two_instants, (value, _to_local(value))))
    return False


def _to_local(moment: datetime.datetime) -> datetime.datetime:
    """A moment in the time zone of this machine, as PySpark gives it: without the zone."""
    try:
        return datetime.datetime.fromtimestamp(moment.timestamp())  # noqa: DTZ006
    except (OverflowError, ValueError):
        # On the first or last day of the calendar, when no clock was set back.
        return moment.replace(tzinfo=None)


def _has_two_instants(time: datetime.datetime) -> bool:
    """Whether clocks showed a time, in its zone or else in that of this machine, twice."""
    try:
        first, second = (time.replace(fold=fold).timestamp() for fold in (0, 1))
    except (OverflowError, ValueError):
        # On the first or last day of the calendar, when no clock was set back.
        return False
    return first != second


def _to_python(value: Any) -> Any:
    """Python's values for numpy's numbers and arrays, also inside arrays and structs."""
    if isinstance(value, np.ndarray):
        return [_to_python(each) for each in value]
    if isinstance(value, dict):
        return {name: _to_python(each) for name, each in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _list_internal(column: pa.Array, of_type: DataType) -> list[Any]:
    """The values of an Arrow column as `DataType.toInternal` returns them."""
    values: list[Any]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    elif pa.types.is_time64(column.type):
        column = column.cast(pa.time64("ns")).cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif of_type.needConversion():
        if isinstance(of_type, StructType):
            rows = [None if v is None else tuple(v.values()) for v in column.to_pylist()]
        else:
            rows = column.to_pylist()
        return [of_type.toInternal(row) for row in rows]
    values = column.to_pylist()
    return values
