"""Types of keys with structs and arrays inside, as Spark and Arrow have them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.types import StructType

from balancedstream.keyed.encoding import KeyEncoding

MIDNIGHT_UTC = pa.timestamp("us", "UTC")
PAIR_TYPE = StructType().add("land", spark.StringType()).add("share", spark.DoubleType())
PAIR = pa.struct([("land", pa.string()), ("share", pa.float64())])
DEEP_TYPE = (
    StructType()
    .add("day", spark.DateType())
    .add("at", spark.TimestampType())
    .add("inner", StructType().add("parts", spark.ArrayType(PAIR_TYPE)))
)
DEEP = pa.struct(
    [
        ("day", pa.date32()),
        ("at", MIDNIGHT_UTC),
        ("inner", pa.struct([("parts", pa.list_(PAIR))])),
    ]
)


def encode(*of_types: spark.DataType) -> KeyEncoding:
    schema = StructType()
    for number, of_type in enumerate(of_types):
        schema.add(f"k{number}", of_type)
    return KeyEncoding(schema)
