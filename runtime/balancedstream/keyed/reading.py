"""Reads the state of a balanced operator, as if no key had ever had a route."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from balancedstream.keyed.processors import ROUTE_COLUMN
from balancedstream.keyed.variables import EXPIRY_FIELD


def read_state(spark: SparkSession, checkpoint: str, **options: Any) -> DataFrame:
    """Spark's own state reader (`format("statestore")`), without what is hidden from users.

    A value whose time to live is over may still be there: Spark cleans it up later.

    Args:
        spark: a session.
        checkpoint: of the query, which may run or not.
        options: of Spark's reader, such as `stateVarName` or `operatorId`.

    Returns:
        What Spark gives, without the route in `key` and the expiry in `value`.
    """
    frame = spark.read.format("statestore").options(**options).load(checkpoint)
    for field in frame.schema:
        if not isinstance(field.dataType, StructType):
            continue
        hidden = [n for n in (ROUTE_COLUMN, EXPIRY_FIELD) if n in field.dataType.fieldNames()]
        if hidden:
            frame = frame.withColumn(field.name, sf.col(field.name).dropFields(*hidden))
    return frame
