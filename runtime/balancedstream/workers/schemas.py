"""Schemas from users, and checks that values fit them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, _make_type_verifier

from balancedstream.errors import InvalidInputError

Verify = Callable[[Any], tuple[Any, ...]]


def parse_columns(schema: StructType | str, what: str) -> StructType:
    """The columns of a schema; a message calls it `what`.

    Raises:
        InvalidInputError: this is no schema, or it has no columns.
    """
    try:
        parsed = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    except PySparkException as problem:
        message = (
            f"{what}: Spark cannot read {schema!r:.200} ({problem!s:.200}); nothing was started"
        )
        raise InvalidInputError(message) from problem
    if not isinstance(parsed, StructType) or not len(parsed):
        message = (
            f"{what}: must name columns with their types, as in 'n LONG, total DOUBLE', not "
            f"{schema!r:.200}; nothing was started"
        )
        raise InvalidInputError(message)
    return parsed


def quote(name: str) -> str:
    """A column's name in quotes, so that Spark's functions take any character in it.

    >>> quote("a.b")
    '`a.b`'
    """
    return "`" + name.replace("`", "``") + "`"


def holds_type(data_type: DataType, wanted: type[DataType] | tuple[type[DataType], ...]) -> bool:
    """Whether a type is one of these, or contains one of them.

    >>> from pyspark.sql.types import DateType, LongType
    >>> nested = StructType().add("days", ArrayType(DateType()))
    >>> holds_type(nested, DateType), holds_type(nested, LongType)
    (True, False)
    """
    match data_type:
        case StructType():
            return any(holds_type(field.dataType, wanted) for field in data_type)
        case ArrayType():
            return holds_type(data_type.elementType, wanted)
        case MapType():
            inner = data_type.keyType, data_type.valueType
            return any(holds_type(each, wanted) for each in inner)
    return isinstance(data_type, wanted)


def make_verifier(schema: StructType, what: str, consequence: str) -> Verify:
    """A function that returns tuples of these columns, and refuses any other value.

    Args:
        schema: the columns.
        what: where the values come from, for the message.
        consequence: what a wrong value means for the user's data, for the message.

    >>> from pyspark.sql.types import LongType
    >>> verify = make_verifier(StructType().add("n", LongType()), "add()", "try again")
    >>> verify((7,))
    (7,)
    >>> verify((7, 8))
    Traceback (most recent call last):
    balancedstream.errors.InvalidInputError: add(): returned (7, 8), no tuple of n bigint; try again
    """
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
    fits = _make_type_verifier(schema, nullable=False)

    def verify(value: Any) -> tuple[Any, ...]:
        problem = ""
        if isinstance(value, tuple) and len(value) == len(schema):
            try:
                fits(tuple(value))
            except (PySparkException, TypeError, ValueError) as refused:
                problem = f" ({refused!s:.200})"
            else:
                return tuple(value)
        message = f"{what}: returned {value!r:.200}, no tuple of {columns}{problem}; {consequence}"
        raise InvalidInputError(message)

    return verify
