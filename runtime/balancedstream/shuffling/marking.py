"""Hashes that distinguish the rows of a DataFrame.

Spark's hash functions skip nulls in any place, and treat some different values as equal: `('x',
null)` and `(null, 'x')`, `[1]` and `[1, null]`, 0.0 and -0.0, 'a' and 'A' under a collation. Two
rows that look the same to the router could swap places between two attempts of a task.

Two kinds of values are not fully distinguished. Spark SQL cannot take a user-defined type apart, so
Spark's own hash is used inside it. And inside a variant, an array of different types is an
ARRAY<VARIANT> to Spark, whose elements are hashed as JSON: a date equals the text it looks like.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    GeographyType,
    GeometryType,
    MapType,
    StringType,
    StructType,
    VariantType,
)


def mark_rows(columns: list[tuple[Column, DataType]]) -> tuple[Column, Column]:
    """Two independent 64-bit hashes over all values of the columns.

    Returns:
        Never null, and practically never equal for different rows, except for the two kinds of
        values above.
    """
    first, second = (_hash_all(columns, salt) for salt in (0, 1))
    return first, second


def _hash_all(columns: list[tuple[Column, DataType]], salt: int) -> Column:
    parts = [part for column, data_type in columns for part in _list_parts(column, data_type, salt)]
    return F.xxhash64(F.lit(salt), *parts)


def _list_parts(column: Column, data_type: DataType, salt: int) -> list[Column]:
    """Columns that Spark can hash, and that are equal only if this one is."""
    parts = [column.isNull()]
    match data_type:
        case StructType():
            # Fields may have names that Spark does not distinguish.
            places = StructType()
            for at, field in enumerate(data_type):
                places.add(str(at), field.dataType)
            by_place = column.cast(places)
            for field in places:
                parts += _list_parts(by_place.getField(field.name), field.dataType, salt)
        case ArrayType():
            element = data_type.elementType
            parts.append(F.transform(column, lambda each: _hash_all([(each, element)], salt)))
        case MapType():
            entry = StructType().add("key", data_type.keyType).add("value", data_type.valueType)
            parts += _list_parts(F.map_entries(column), ArrayType(entry), salt)
        case VariantType():
            # As JSON, a date equals the text it looks like.
            parts += [F.to_json(column), F.schema_of_variant(column)]
        case GeometryType() | GeographyType():
            parts += [F.st_asbinary(column), F.st_srid(column)]
        case StringType():
            # The bytes, because a collation may treat different texts as equal.
            parts.append(column.cast("binary"))
        case FloatType() | DoubleType():
            parts += [column, F.when(column == 0, column.cast("string"))]
        case _:
            parts.append(column)
    return parts
