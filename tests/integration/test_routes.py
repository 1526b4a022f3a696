"""Hash, partition and route of keys of every type against what Spark itself says of them.

The values are random, with a fresh seed that is printed; what is peculiar of a type is always among
them.
"""

from __future__ import annotations

import datetime
import math
import random
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import TimeType

from balancedstream.core.keys.routes import MAX_ROUTE, find_route, partition_of, spark_hash
from balancedstream.core.keys.types import (
    INTEGER,
    KeyType,
    NeverMoved,
    StructKey,
    parse_key_type,
)

pytestmark = pytest.mark.integration

ROWS = 200
PARTITIONS = 13

Draw = Callable[[random.Random], Any]


def integers(bits: int) -> Draw:
    edges = [0, 1, -1, -(1 << bits - 1), (1 << bits - 1) - 1]
    return lambda chance: chance.choice([*edges, chance.getrandbits(bits) - (1 << bits - 1)])


def floats(form: str) -> Draw:
    """Any bits at all, NaNs of every kind among them."""
    edges = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan]
    size = struct.calcsize(form)
    return lambda chance: chance.choice(
        [*edges, *(struct.unpack(form, chance.randbytes(size))[0] for _ in edges)]
    )


def text(chance: random.Random) -> str:
    """Every length of the tail, and letters of one to four bytes."""
    alphabet = "abcXYZ 09é߿ßЖ中文\ud7ff\ue000😁🂡"
    return "".join(chance.choices(alphabet, k=chance.randrange(12)))


def decimals(precision: int, scale: int) -> Draw:
    most = 10**precision - 1

    def draw(chance: random.Random) -> Decimal:
        small = chance.randint(-300, 300)
        unscaled = chance.choice([0, most, -most, small, chance.randint(-most, most)])
        return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))

    return draw


def moment(chance: random.Random) -> datetime.datetime:
    edges = [datetime.datetime(1970, 1, 1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)]  # noqa: DTZ001
    span_us = chance.randrange(-(10**16), 10**16)
    return chance.choice([*edges, edges[0] + datetime.timedelta(microseconds=span_us)])


def lists(draw: Draw) -> Draw:
    return lambda chance: [
        None if chance.random() < 0.2 else draw(chance) for _ in range(chance.randrange(5))
    ]


def tuples(*draws: Draw) -> Draw:
    return lambda chance: tuple(None if chance.random() < 0.2 else draw(chance) for draw in draws)


# Spark's name of each type, and how a value of it is drawn.
TYPES: dict[str, Draw] = {
    "boolean": lambda chance: chance.random() < 0.5,
    "tinyint": integers(8),
    "smallint": integers(16),
    "int": integers(32),
    "bigint": integers(64),
    "float": floats("<f"),
    "double": floats("<d"),
    "string": text,
    "binary": lambda chance: chance.randbytes(chance.randrange(12)),
    "decimal(5,2)": decimals(5, 2),
    "decimal(18,0)": decimals(18, 0),
    "decimal(18,18)": decimals(18, 18),
    "decimal(19,4)": decimals(19, 4),
    "decimal(38,0)": decimals(38, 0),
    "decimal(38,18)": decimals(38, 18),
    "date": lambda chance: datetime.date.fromordinal(chance.choice([719_163, 700_000, 800_000])),
    "timestamp": lambda chance: moment(chance).replace(tzinfo=datetime.UTC),
    "timestamp_ntz": moment,
    "array<int>": lists(integers(32)),
    "array<array<string>>": lists(lists(text)),
    "array<struct<a:float,b:decimal(20,2)>>": lists(tuples(floats("<f"), decimals(20, 2))),
    "struct<a:int,b:string>": tuples(integers(32), text),
    "struct<a:array<timestamp_ntz>,b:struct<c:binary,d:double>>": tuples(
        lists(moment), tuples(lambda chance: chance.randbytes(5), floats("<d"))
    ),
}

# Its values come from text: not every PySpark takes a datetime.time for one.
TIME = "time(6)"


def quote(name: str) -> str:
    return f"`{name}`"


class Sample:
    """One row for each of some random keys of every type, as Spark has them and as we do.

    Attributes:
        frame: `id`, `route` and a column for each type, named after it.
        routes: route of each row.
        values: type to the value of each row, in the form that `spark_hash` takes.
        key_types: type to what `parse_key_type` makes of it.
    """

    def __init__(self, spark: SparkSession, chance: random.Random) -> None:
        drawn = {
            name: [None if chance.random() < 0.1 else draw(chance) for _ in range(ROWS)]
            for name, draw in TYPES.items()
        }
        times = [
            None
            if chance.random() < 0.1
            else datetime.time(chance.randrange(24), 59, 0, chance.choice([0, 1, 999_999]))
            for _ in range(ROWS)
        ]
        self.routes = [chance.choice([0, 1, chance.randint(0, MAX_ROUTE)]) for _ in range(ROWS)]
        written = [time and time.isoformat("microseconds") for time in times]
        schema = "id int, route int, clock string, "
        schema += ", ".join(f"{quote(name)} {name}" for name in TYPES)
        rows = list(zip(range(ROWS), self.routes, written, *drawn.values(), strict=True))
        spark.conf.set("spark.sql.timeType.enabled", "true")
        frame = spark.createDataFrame(rows, schema)
        self.frame = frame.withColumn(TIME, F.col("clock").cast(TIME)).drop("clock").cache()
        assert isinstance(self.frame.schema[TIME].dataType, TimeType)
        self.values: dict[str, list[Any]] = {}
        self.key_types: dict[str, KeyType] = {}
        for name, values in {**drawn, TIME: times}.items():
            data_type = self.frame.schema[name].dataType
            self.values[name] = [data_type.toInternal(value) for value in values]
            key_type = parse_key_type(data_type.jsonValue())
            assert not isinstance(key_type, NeverMoved)
            self.key_types[name] = key_type


@pytest.fixture(scope="module")
def sample(spark: SparkSession) -> Iterator[Sample]:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    made = Sample(spark, random.Random(seed))
    yield made
    made.frame.unpersist()


@pytest.fixture(scope="module")
def hashes(sample: Sample) -> list[dict[str, int]]:
    """What Spark says of each row: `hash <type>` and `partition <type>`, all of it in one job."""
    quoted = {name: F.col(quote(name)) for name in sample.values}
    columns = [F.hash(column).alias(f"hash {name}") for name, column in quoted.items()]
    columns += [
        F.pmod(F.hash("route", column), F.lit(PARTITIONS)).alias(f"partition {name}")
        for name, column in quoted.items()
    ]
    columns.append(F.hash(*quoted.values()).alias("hash all"))
    return [row.asDict() for row in sample.frame.orderBy("id").select(*columns).collect()]


def partitions_by_spark(frame: DataFrame, *key: str) -> dict[int, int]:
    """Row id to the partition that Spark's own hash partitioning put the row in."""
    parted = frame.repartition(PARTITIONS, *map(quote, key)).select("id", F.spark_partition_id())
    return dict(map(tuple, parted.collect()))


@pytest.mark.parametrize("name", [*TYPES, TIME])
def test_hash_and_partition_are_what_spark_says(
    name: str, sample: Sample, hashes: list[dict[str, int]]
) -> None:
    key_type = sample.key_types[name]
    for route, value, said in zip(sample.routes, sample.values[name], hashes, strict=True):
        assert spark_hash(value, key_type) == said[f"hash {name}"], value
        ours = partition_of(route, value, key_type, PARTITIONS)
        assert ours == said[f"partition {name}"], (route, value)


def test_a_key_of_all_columns_together_is_hashed_as_spark_does(
    sample: Sample, hashes: list[dict[str, int]]
) -> None:
    key_type = parse_key_type(sample.frame.select(*map(quote, sample.values)).schema.jsonValue())
    assert isinstance(key_type, StructKey)
    for row, said in enumerate(hashes):
        key = tuple(values[row] for values in sample.values.values())
        assert spark_hash(key, key_type) == said["hash all"], key


@pytest.mark.parametrize("name", ["string", "double", "decimal(38,18)", "struct<a:int,b:string>"])
def test_rows_really_go_there(name: str, sample: Sample) -> None:
    key_type = sample.key_types[name]
    real = partitions_by_spark(sample.frame, "route", name)
    ours = [
        partition_of(route, value, key_type, PARTITIONS)
        for route, value in zip(sample.routes, sample.values[name], strict=True)
    ]
    assert real == dict(enumerate(ours))


def test_a_route_that_was_found_leads_to_the_wanted_partition(
    spark: SparkSession, sample: Sample
) -> None:
    key_type = StructKey((("word", sample.key_types["string"]), ("number", INTEGER)))
    keys = list(zip(sample.values["string"], sample.values["int"], strict=True))
    wanted = [row % PARTITIONS for row in range(ROWS)]
    routes = [
        find_route(key, key_type, partition, PARTITIONS)
        for key, partition in zip(keys, wanted, strict=True)
    ]
    rows = [(row, route, *key) for row, (route, key) in enumerate(zip(routes, keys, strict=True))]
    frame = spark.createDataFrame(rows, "id int, route int, word string, number int")
    assert partitions_by_spark(frame, "route", "word", "number") == dict(enumerate(wanted))


def test_a_collation_is_seen_in_what_spark_says_of_a_type(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "plain string, folded string collate UTF8_LCASE")
    assert not isinstance(parse_key_type(frame.select("plain").schema.jsonValue()), NeverMoved)
    for described in (
        frame.schema["folded"].dataType.jsonValue(),
        frame.schema.jsonValue(),
        frame.select(F.array("folded").alias("all")).schema.jsonValue(),
        frame.select(F.struct("folded").alias("all")).schema.jsonValue(),
    ):
        assert isinstance(parse_key_type(described), NeverMoved)
