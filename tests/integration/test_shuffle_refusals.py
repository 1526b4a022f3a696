"""Bad arguments of the shuffle are refused at once, by their field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from shuffled_jobs import POINT, texts
from spark_versions import needs_spark

import balancedstream
from balancedstream.errors import InvalidInputError
from balancedstream.shuffling.shuffles import HIDDEN, ROUTE

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("cost_key", {"cost_key": "length"}),
        ("partitions", {"partitions": 0}),
        ("partitions", {"partitions": 2.5}),
        ("epsilon", {"epsilon": 0.0}),
        ("epsilon", {"epsilon": 1.0}),
        ("epsilon", {"epsilon": "0.1"}),
        ("delta", {"delta": 1.5}),
        ("delta", {"delta": None}),
        ("folder", {"folder": "s3a://bucket/costs"}),
    ],
)
def test_bad_input_is_refused_at_once_by_its_field(
    spark: SparkSession, field: str, arguments: dict[str, Any]
) -> None:
    fine: dict[str, Any] = {"cost_key": "kind", "partitions": 2}
    with pytest.raises(InvalidInputError, match=f"^{field}: "):
        balancedstream.shuffle(texts(spark), **(fine | arguments))


def test_columns_that_spark_cannot_tell_apart_are_refused(spark: SparkSession) -> None:
    twice = texts(spark).select("id", "kind", F.lit(1).alias("Kind"))
    with pytest.raises(InvalidInputError, match=r"^df: .*'kind', or more than one"):
        balancedstream.shuffle(twice, cost_key="id", partitions=2)


@pytest.mark.parametrize("name", [*HIDDEN, ROUTE, ROUTE.upper()])
def test_a_column_that_the_shuffle_adds_itself_is_refused_where_it_is_there_already(
    spark: SparkSession, name: str
) -> None:
    rows = texts(spark).withColumnRenamed("id", name)
    with pytest.raises(InvalidInputError, match=rf"^df: .*{name}"):
        balancedstream.shuffle(rows, cost_key="kind", partitions=2)


def test_a_cost_key_that_is_no_column_is_refused_by_its_field(spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match=r"^cost_key: must be .*not None"):
        balancedstream.shuffle(texts(spark), cost_key=None, partitions=2)


@needs_spark((4, 2))  # Spark 4.1 has these types turned off.
def test_a_cost_key_that_spark_cannot_hash_is_refused_by_its_field(spark: SparkSession) -> None:
    point = F.st_geomfromwkb(F.unhex(F.lit(POINT.hex())))
    for cost_key in (point, F.array(F.struct(point))):
        with pytest.raises(InvalidInputError, match=r"^cost_key: .*geometry"):
            balancedstream.shuffle(texts(spark), cost_key=cost_key, partitions=2)


def test_an_expression_of_a_column_that_is_absent_is_refused_by_its_field(
    spark: SparkSession,
) -> None:
    with pytest.raises(InvalidInputError, match=r"^cost_key: .*length"):
        balancedstream.shuffle(texts(spark), cost_key=F.col("length") + 1, partitions=2)


def test_a_stream_without_a_shared_folder_is_refused_with_what_to_do(
    stream: Callable[[int], DataFrame],
) -> None:
    with pytest.raises(InvalidInputError, match=r"^folder: .*checkpointLocation"):
        balancedstream.shuffle(stream(10), cost_key="value", partitions=2)
