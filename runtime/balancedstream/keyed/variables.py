"""State variables that can be handed over.

Spark's time to live can neither be read nor set. So a variable that has one stores the expiry
beside each value: it moves with the value, and expired values are hidden to the millisecond.
Spark's own time to live starts again after each handoff, and only cleans up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

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


class Variable(Protocol):
    """One state variable of a processor, for the current key."""

    def write(self) -> Any:
        """Its content, in a form that can be pickled; None if it is empty."""

    def take(self, content: Any) -> None:
        """Replaces its content with what another variable wrote."""

    def clear(self) -> None:
        """Removes its content."""


class Value:
    """A `ValueState`."""

    def __init__(self, state: ValueState, is_over: IsOver) -> None:
        self._state = state
        self._is_over = is_over

    def write(self) -> Row | None:
        """The value."""
        value = self._state.get()
        return None if value is None or self._is_over(value) else tuple(value)

    def take(self, content: Row) -> None:
        """Sets it."""
        self._state.update(content)

    def clear(self) -> None:
        """Removes it."""
        self._state.clear()


class Values:
    """A `ListState`."""

    def __init__(self, state: ListState, is_over: IsOver) -> None:
        self._state = state
        self._is_over = is_over

    def write(self) -> list[Row] | None:
        """The values in their order."""
        return [tuple(value) for value in self._state.get() if not self._is_over(value)] or None

    def take(self, content: list[Row]) -> None:
        """Sets them."""
        self._state.put(content)

    def clear(self) -> None:
        """Removes them."""
        self._state.clear()


class Entries:
    """A `MapState`."""

    def __init__(self, state: MapState, is_over: IsOver) -> None:
        self._state = state
        self._is_over = is_over

    def write(self) -> list[tuple[Row, Row]] | None:
        """The entries."""
        entries = self._state.iterator()
        return [(tuple(key), tuple(v)) for key, v in entries if not self._is_over(v)] or None

    def take(self, content: list[tuple[Row, Row]]) -> None:
        """Sets them."""
        for key, value in content:
            self._state.updateValue(key, value)

    def clear(self) -> None:
        """Removes them."""
        self._state.clear()


class ExpiringValue:
    """`ValueState` with a time to live, as Spark's documentation promises it."""

    def __init__(self, state: ValueState, ttl_ms: int, clock: Clock) -> None:
        self._state = state
        self._ttl_ms = ttl_ms
        self._clock = clock

    def exists(self) -> bool:
        """Whether there is a value that has not expired."""
        return self.get() is not None

    def get(self) -> Row | None:
        """The value; None if there is none or it expired."""
        row = self._state.get()
        return None if row is None or self._clock.is_over(row) else tuple(row[:-1])

    def update(self, newValue: Row) -> None:
        """Sets the value, which lives from now on."""
        self._state.update((*newValue, self._clock.now_ms + self._ttl_ms))

    def clear(self) -> None:
        """Removes it."""
        self._state.clear()


class ExpiringValues:
    """`ListState` with a time to live for each of its values."""

    def __init__(self, state: ListState, ttl_ms: int, clock: Clock) -> None:
        self._state = state
        self._ttl_ms = ttl_ms
        self._clock = clock

    def exists(self) -> bool:
        """Whether there is a value that has not expired."""
        return any(True for _ in self.get())

    def get(self) -> Iterator[Row]:
        """The values that have not expired, in their order."""
        return (tuple(row[:-1]) for row in self._state.get() if not self._clock.is_over(row))

    def put(self, newState: list[Row]) -> None:
        """Replaces them all."""
        self._state.put([self._stamp(value) for value in newState])

    def appendValue(self, newState: Row) -> None:
        """Adds one."""
        self._state.appendValue(self._stamp(newState))

    def appendList(self, newState: list[Row]) -> None:
        """Adds several."""
        self._state.appendList([self._stamp(value) for value in newState])

    def clear(self) -> None:
        """Removes them."""
        self._state.clear()

    def _stamp(self, value: Row) -> Row:
        return (*value, self._clock.now_ms + self._ttl_ms)


class ExpiringEntries:
    """`MapState` with a time to live for each of its entries."""

    def __init__(self, state: MapState, ttl_ms: int, clock: Clock) -> None:
        self._state = state
        self._ttl_ms = ttl_ms
        self._clock = clock

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
        self._state.updateValue(key, (*value, self._clock.now_ms + self._ttl_ms))

    def iterator(self) -> Iterator[tuple[Row, Row]]:
        """The entries that have not expired."""
        return (
            (tuple(key), tuple(row[:-1]))
            for key, row in self._state.iterator()
            if not self._clock.is_over(row)
        )

    def keys(self) -> Iterator[Row]:
        """Their keys."""
        return (key for key, _ in self.iterator())

    def values(self) -> Iterator[Row]:
        """Their values."""
        return (value for _, value in self.iterator())

    def removeKey(self, key: Row) -> None:
        """Removes an entry."""
        self._state.removeKey(key)

    def clear(self) -> None:
        """Removes them all."""
        self._state.clear()


# Variables with their schemas that this Python worker has checked.
_checked: set[tuple[str, StructType | str]] = set()


class RecordingHandle:
    """Spark's handle for a processor, which also records the state variables.

    As for Spark, a time to live of 0 is none (`StatefulProcessorHandleImpl`).

    Args:
        handle: Spark's own, for everything that is not defined here.
        clock: of the running batch.

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
        self,
        stateName: str,
        schema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> ValueState | ExpiringValue:
        """As Spark's."""
        stored = _add_expiry(stateName, schema) if ttlDurationMs else schema
        state = self._handle.getValueState(stateName, stored, ttlDurationMs)
        self.variables[stateName] = Value(state, self._choose_rule(ttlDurationMs))
        self._schemas[stateName] = (schema,)
        if not ttlDurationMs:
            return state
        return ExpiringValue(state, ttlDurationMs, self._clock)

    def getListState(
        self,
        stateName: str,
        schema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> ListState | ExpiringValues:
        """As Spark's."""
        stored = _add_expiry(stateName, schema) if ttlDurationMs else schema
        state = self._handle.getListState(stateName, stored, ttlDurationMs)
        self.variables[stateName] = Values(state, self._choose_rule(ttlDurationMs))
        self._schemas[stateName] = (schema,)
        if not ttlDurationMs:
            return state
        return ExpiringValues(state, ttlDurationMs, self._clock)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> MapState | ExpiringEntries:
        """As Spark's."""
        stored = _add_expiry(stateName, valueSchema) if ttlDurationMs else valueSchema
        state = self._handle.getMapState(stateName, userKeySchema, stored, ttlDurationMs)
        self.variables[stateName] = Entries(state, self._choose_rule(ttlDurationMs))
        self._schemas[stateName] = (userKeySchema, valueSchema)
        if not ttlDurationMs:
            return state
        return ExpiringEntries(state, ttlDurationMs, self._clock)

    def _choose_rule(self, ttl_ms: int | None) -> IsOver:
        """Expired values are not handed over: after a handoff, Spark would let them live again."""
        return self._clock.is_over if ttl_ms else lambda _: False

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
