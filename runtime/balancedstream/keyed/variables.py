"""State variables that can be handed over.

Spark's time to live can neither be read nor set. So a variable that has one stores the expiry
beside each value: it moves with the value, and expired values are hidden to the millisecond.
Spark's own time to live starts again after each handoff, and only cleans up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import LongType, StructType

from balancedstream.errors import InvalidInputError
from balancedstream.keyed.packing import check_packable
from balancedstream.workers.rows import cut_row

EXPIRY_FIELD = "balancedstream_expires_ms"

Row = tuple[Any, ...]

IsOver = Callable[[Sequence[Any]], bool]


class Clock:
    """The processing time of the running batch, by which Spark measures time to live."""

    now_ms = -1

    def is_over(self, stored: Sequence[Any]) -> bool:
        """Whether a value with a time to live has expired: its last column says when it does."""
        over: bool = stored[-1] <= self.now_ms
        return over


class Variable(NamedTuple):
    """One state variable of a processor, for the current key.

    Attributes:
        write: returns its content, in a form that can be pickled; None if it is empty.
        take: replaces its content with what another variable wrote.
        clear: removes its content.
    """

    write: Callable[[], Any]
    take: Callable[[Any], None]
    clear: Callable[[], None]


def _record_value(state: ValueState, is_over: IsOver) -> Variable:
    def write() -> Row | None:
        value = state.get()
        return None if value is None or is_over(value) else tuple(value)

    return Variable(write, state.update, state.clear)


def _record_list(state: ListState, is_over: IsOver) -> Variable:
    def write() -> list[Row] | None:
        return [tuple(value) for value in state.get() if not is_over(value)] or None

    return Variable(write, state.put, state.clear)


def _record_map(state: MapState, is_over: IsOver) -> Variable:
    def write() -> list[tuple[Row, Row]] | None:
        return [(tuple(key), tuple(v)) for key, v in state.iterator() if not is_over(v)] or None

    def take(content: list[tuple[Row, Row]]) -> None:
        for key, value in content:
            state.updateValue(key, value)

    return Variable(write, take, state.clear)


@dataclass(eq=False)
class _Expiring:
    """A state variable with a time to live, as Spark's documentation promises it."""

    _state: Any
    _ttl_ms: int
    _clock: Clock

    def clear(self) -> None:
        """Removes all content."""
        self._state.clear()

    def _stamp(self, value: Row) -> Row:
        return (*value, self._clock.now_ms + self._ttl_ms)


class ExpiringValue(_Expiring):
    """`ValueState` with a time to live."""

    def exists(self) -> bool:
        """Whether there is a value that has not expired."""
        return self.get() is not None

    def get(self) -> Row | None:
        """The value; None if there is none or it expired."""
        row = self._state.get()
        return None if row is None or self._clock.is_over(row) else tuple(row[:-1])

    def update(self, newValue: Row) -> None:
        """Sets the value, which lives from now on."""
        self._state.update(self._stamp(newValue))


class ExpiringValues(_Expiring):
    """`ListState` with a time to live for each of its values."""

    def exists(self) -> bool:
        """Whether there is a value that has not expired."""
        return any(True for _ in self.get())

    def get(self) -> Iterator[Row]:
        """The values that have not expired, in their order."""
        return (tuple(row[:-1]) for row in self._state.get() if not self._clock.is_over(row))

    def put(self, newState: list[Row]) -> None:
        """Replaces all values."""
        self._state.put([self._stamp(value) for value in newState])

    def appendValue(self, newState: Row) -> None:
        """Adds a value."""
        self._state.appendValue(self._stamp(newState))

    def appendList(self, newState: list[Row]) -> None:
        """Adds several values."""
        self._state.appendList([self._stamp(value) for value in newState])


class ExpiringEntries(_Expiring):
    """`MapState` with a time to live for each of its entries."""

    def exists(self) -> bool:
        """Whether there is an entry that has not expired."""
        return any(True for _ in self.iterator())

    def getValue(self, key: Row) -> Row | None:
        """The value of a key; None if there is none or it expired."""
        row = self._state.getValue(key)
        # Only here does Spark return a row with names.
        return None if row is None or self._clock.is_over(row) else cut_row(row, slice(-1))

    def containsKey(self, key: Row) -> bool:
        """Whether there is such an entry that has not expired."""
        return self.getValue(key) is not None

    def updateValue(self, key: Row, value: Row) -> None:
        """Sets the value of a key, which lives from now on."""
        self._state.updateValue(key, self._stamp(value))

    def iterator(self) -> Iterator[tuple[Row, Row]]:
        """The entries that have not expired."""
        return (
            (tuple(key), tuple(row[:-1]))
            for key, row in self._state.iterator()
            if not self._clock.is_over(row)
        )

    def keys(self) -> Iterator[Row]:
        """The keys of the entries that have not expired."""
        return (key for key, _ in self.iterator())

    def values(self) -> Iterator[Row]:
        """The values of the entries that have not expired."""
        return (value for _, value in self.iterator())

    def removeKey(self, key: Row) -> None:
        """Removes an entry."""
        self._state.removeKey(key)


# Variables with their schemas that this Python worker has checked.
_checked: set[tuple[str, StructType | str]] = set()


class RecordingHandle:
    """Spark's handle for a processor, which also records the state variables.

    As for Spark, a time to live of 0 is none (`StatefulProcessorHandleImpl`).

    Attributes:
        variables: every state variable, by name.
    """

    def __init__(self, handle: StatefulProcessorHandle, clock: Clock) -> None:
        self._handle = handle
        self._clock = clock
        self.variables: dict[str, Variable] = {}
        self._schemas: dict[str, tuple[StructType | str, ...]] = {}
        self._unknown: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._handle, name)
        if name.startswith("get") and name.endswith("State"):
            self._unknown.append(name)
        return found

    def check_variables(self) -> None:
        """Refuses variables that cannot be handed over; call it in a task, before any row.

        Spark also creates variables in the driver, but hides errors there.

        Raises:
            InvalidInputError: the message names the variable and its field.
        """
        if self._unknown:
            message = (
                f"{self._unknown[0]}: balanced(...) does not support this kind of state variable, "
                "so its content would not move when a key changes its state partition; no row was "
                "processed: use value, list or map state, or group without balanced(...)"
            )
            raise InvalidInputError(message)
        client = self._handle._statefulProcessorApiClient
        for name, schemas in self._schemas.items():
            for schema in schemas:
                if (name, schema) in _checked:
                    continue
                # Only Spark's JVM can read a schema that is text.
                is_text = isinstance(schema, str)
                columns = client._parse_string_schema(schema) if is_text else schema
                check_packable(f"state variable {name!r}", columns)
                _checked.add((name, schema))

    def getValueState(
        self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None
    ) -> ValueState | ExpiringValue:
        """As Spark's."""
        kinds = _record_value, ExpiringValue
        return self._get("getValueState", stateName, (schema,), ttlDurationMs, *kinds)

    def getListState(
        self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None
    ) -> ListState | ExpiringValues:
        """As Spark's."""
        kinds = _record_list, ExpiringValues
        return self._get("getListState", stateName, (schema,), ttlDurationMs, *kinds)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> MapState | ExpiringEntries:
        """As Spark's."""
        schemas, kinds = (userKeySchema, valueSchema), (_record_map, ExpiringEntries)
        return self._get("getMapState", stateName, schemas, ttlDurationMs, *kinds)

    def _get(
        self,
        method: str,
        name: str,
        schemas: tuple[StructType | str, ...],
        ttl_ms: int | None,
        record: Callable[[Any, IsOver], Variable],
        expiring: type[_Expiring],
    ) -> Any:
        *keys, schema = schemas
        stored = _add_expiry(name, schema) if ttl_ms else schema
        state = getattr(self._handle, method)(name, *keys, stored, ttl_ms)
        # Expired values are not handed over: after a handoff, Spark would let them live again.
        self.variables[name] = record(state, self._clock.is_over if ttl_ms else lambda _: False)
        self._schemas[name] = schemas
        return expiring(state, ttl_ms, self._clock) if ttl_ms else state

    def deleteIfExists(self, stateName: str) -> None:
        """As Spark's."""
        self._handle.deleteIfExists(stateName)
        self.variables.pop(stateName, None)
        self._schemas.pop(stateName, None)


def _add_expiry(variable: str, schema: StructType | str) -> StructType | str:
    """A value's schema with one more column, the expiry of the value.

    >>> _add_expiry("v", "n INT")
    'n INT, balancedstream_expires_ms BIGINT'
    >>> _add_expiry("v", "struct<n:int>")
    'struct<n:int, balancedstream_expires_ms:bigint>'
    """
    if isinstance(schema, StructType):
        if EXPIRY_FIELD in schema.fieldNames():
            message = (
                f"state variable {variable!r}: its field {EXPIRY_FIELD} has a name that is "
                "reserved for the time to live; no row was processed: rename the field"
            )
            raise InvalidInputError(message)
        return StructType([*schema.fields]).add(EXPIRY_FIELD, LongType())
    text = schema.strip()
    if text.lower().startswith("struct<") and text.endswith(">"):
        return f"{text[:-1]}, {EXPIRY_FIELD}:bigint>"
    return f"{text}, {EXPIRY_FIELD} BIGINT"
