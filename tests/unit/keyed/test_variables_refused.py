"""State that could not be handed over is refused before any row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import types as spark
from pyspark.sql.streaming import StatefulProcessorHandle
from pyspark.sql.types import StructType

from balancedstream.errors import InvalidInputError
from balancedstream.keyed.packing import check_packable
from balancedstream.keyed.variables import Clock, RecordingHandle


class Pair(spark.UserDefinedType):
    @classmethod
    def sqlType(cls) -> StructType:
        return StructType().add("left", "long").add("right", "long")

    @classmethod
    def module(cls) -> str:
        return __name__


class Client:
    """What Spark's handle asks of its JVM: text is parsed, and variables are made."""

    SCHEMAS = {  # noqa: RUF012
        "n long": StructType().add("n", "long"),
        "n long, seen variant": StructType().add("n", "long").add("seen", spark.VariantType()),
    }

    def _parse_string_schema(self, schema: str) -> StructType:
        return self.SCHEMAS[schema]

    def get_value_state(self, *arguments: object) -> None:
        pass

    get_list_state = get_map_state = delete_if_exists = get_value_state


class Handle(StatefulProcessorHandle):
    """Spark's, as it may become one day."""

    def getAverageState(self, name: str) -> object:
        return object()


def begin(ask: Callable[[Any], object]) -> None:
    """A processor asks for its state variables, in a task."""
    client: Any = Client()
    handle = RecordingHandle(Handle(client), Clock())
    ask(handle)
    handle.check_variables()


FINE = "n long"
VARIANT = "n long, seen variant"
REFUSED = r"state variable 'kept': its field seen is of type variant.*no row was processed"


@pytest.mark.parametrize(
    "ask",
    [
        lambda handle: handle.getValueState("kept", VARIANT),
        lambda handle: handle.getValueState("kept", Client.SCHEMAS[VARIANT]),
        lambda handle: handle.getValueState("kept", Client.SCHEMAS[VARIANT], 1000),
        lambda handle: handle.getListState("kept", VARIANT),
        lambda handle: handle.getMapState("kept", FINE, VARIANT),
        lambda handle: handle.getMapState("kept", VARIANT, FINE),
        lambda handle: (handle.getValueState("n", FINE), handle.getListState("kept", VARIANT)),
    ],
)
def test_a_variable_that_cannot_be_handed_over_is_refused_by_its_name_and_field(
    ask: Callable[[Any], object],
) -> None:
    with pytest.raises(InvalidInputError, match=REFUSED):
        begin(ask)


def test_a_variable_that_is_deleted_is_no_obstacle() -> None:
    def ask(handle: Any) -> None:
        handle.getListState("kept", VARIANT)
        handle.getValueState("n", FINE)
        handle.deleteIfExists("kept")

    begin(ask)


def test_another_kind_of_variable_is_refused_rather_than_left_behind() -> None:
    with pytest.raises(InvalidInputError, match=r"getAverageState: .*no row was processed"):
        begin(lambda handle: handle.getAverageState("kept"))


def test_what_spark_does_not_have_is_said_to_be_missing() -> None:
    begin(lambda handle: getattr(handle, "getMedianState", None))


@pytest.mark.parametrize(
    "of_type",
    [
        spark.VariantType(),
        spark.GeometryType(4326),
        spark.GeographyType(4326),
        Pair(),
        spark.ArrayType(Pair()),
        spark.MapType(spark.StringType(), spark.VariantType()),
        spark.MapType(Pair(), spark.StringType()),
        StructType().add("within", StructType().add("a", spark.ArrayType(spark.VariantType()))),
    ],
    ids=spark.DataType.simpleString,
)
def test_a_field_whose_values_cannot_be_packed_is_found_however_deep(
    of_type: spark.DataType,
) -> None:
    with pytest.raises(InvalidInputError, match="stateStructType: its field odd is of type"):
        check_packable("stateStructType", StructType().add("n", "long").add("odd", of_type))


@pytest.mark.parametrize(
    "of_type",
    [
        spark.BooleanType(),
        spark.ByteType(),
        spark.ShortType(),
        spark.IntegerType(),
        spark.LongType(),
        spark.FloatType(),
        spark.DoubleType(),
        spark.DecimalType(38, 18),
        spark.StringType(),
        spark.StringType("UNICODE_CI"),
        spark.CharType(3),
        spark.VarcharType(3),
        spark.BinaryType(),
        spark.DateType(),
        spark.TimeType(),
        spark.TimestampType(),
        spark.TimestampNTZType(),
        spark.DayTimeIntervalType(),
        spark.YearMonthIntervalType(),
        spark.NullType(),
        spark.ArrayType(StructType().add("at", spark.TimestampType())),
        spark.MapType(spark.StringType(), spark.ArrayType(spark.DecimalType(10, 2))),
        StructType().add("within", StructType().add("a", spark.LongType())),
    ],
    ids=spark.DataType.simpleString,
)
def test_every_other_type_is_accepted(of_type: spark.DataType) -> None:
    check_packable("stateStructType", StructType().add("kept", of_type))
