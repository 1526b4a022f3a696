"""Reads the state of a balanced operator without the hidden routes."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from balancedstream.keyed.processors import ROUTE_COLUMN
from balancedstream.keyed.variables import EXPIRY_FIELD

VALUE_FIELD, END_FIELD = "value", "ttlExpirationMs"
"""Spark's fields for a value with a time to live (`getValueSchemaWithTTL`)."""


def read_state(spark: SparkSession, checkpoint: str, **options: Any) -> DataFrame:
    """Spark's own state reader (`format("statestore")`), without hidden columns.

    An expired value may still be there, because Spark cleans it up later; `ttlExpirationMs` shows
    that.

    Args:
        spark: a session.
        checkpoint: of the query, which may be running.
        options: of Spark's reader, such as `stateVarName` or `operatorId`.

    Returns:
        Spark's result without the route in `key` and the hidden column of values with a time to
        live; `ttlExpirationMs` is as if no key had moved.
    """
    frame = spark.read.format("statestore").options(**options).load(checkpoint)
    for field in frame.schema:
        as_json = field.dataType.json()
        if ROUTE_COLUMN in as_json or EXPIRY_FIELD in as_json:
            frame = frame.withColumn(field.name, _unveil(sf.col(field.name), field.dataType))
    return frame


def _unveil(column: Column, of_type: DataType) -> Column:
    """A column without hidden fields: the key, a value, a list or map of values."""
    if isinstance(of_type, ArrayType):
        return sf.transform(column, lambda value: _unveil(value, of_type.elementType))
    if isinstance(of_type, MapType):
        return sf.transform_values(column, lambda _, value: _unveil(value, of_type.valueType))
    if not isinstance(of_type, StructType):
        return column
    if ROUTE_COLUMN in of_type.fieldNames():
        return column.dropFields(ROUTE_COLUMN)
    if of_type.fieldNames() != [VALUE_FIELD, END_FIELD]:
        return column
    value = column.getField(VALUE_FIELD)
    # Spark's own expiry is later if the value was handed over.
    return column.withField(END_FIELD, value.getField(EXPIRY_FIELD)).withField(
        VALUE_FIELD, value.dropFields(EXPIRY_FIELD)
    )
