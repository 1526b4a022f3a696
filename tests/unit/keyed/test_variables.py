"""State variables with a time to live are what Spark documents, to the millisecond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import Row
from pyspark.sql.types import DateType, LongType, StringType, StructType
from simulated import ENCODING, Timers
from simulated_state import Handle, ListState, MapState, ValueState

from balancedstream.errors import InvalidInputError
from balancedstream.keyed import processors
from balancedstream.keyed.processors import MovableProcessor, StripRows
from balancedstream.keyed.storage import Operator
from balancedstream.keyed.variables import EXPIRY_FIELD, Clock, RecordingHandle

BORN_MS = 1_000
TTL_MS = 50
END_MS = BORN_MS + TTL_MS

AROUND_THE_END = pytest.mark.parametrize(
    ("now_ms", "lives"), [(END_MS - 1, True), (END_MS, False), (END_MS + 1, False)]
)


class Place:
    """Three variables of one processor, one of each kind, at a time of the test's choice."""

    def __init__(self, ttl_ms: int | None = TTL_MS) -> None:
        self.clock = Clock()
        self.clock.now_ms = BORN_MS
        self.spark = Handle({})
        handle: Any = self.spark
        self.handle = RecordingHandle(handle, self.clock)
        self.value: Any = self.handle.getValueState("value", "n INT", ttl_ms)
        self.values: Any = self.handle.getListState("values", "n INT", ttl_ms)
        self.entries: Any = self.handle.getMapState("entries", "k INT", "n INT", ttl_ms)

    def move(self) -> Place:
        """Another owner has taken in what this one wrote down."""
        other = Place()
        other.clock.now_ms = self.clock.now_ms
        for name, variable in self.handle.variables.items():
            content = variable.write()
            if content is not None:
                other.handle.variables[name].take(content)
        return other

    def see_value(self) -> Any:
        seen = self.value.get()
        assert self.value.exists() == (seen is not None)
        return seen

    def see_values(self) -> list[Any]:
        seen = [*self.values.get()]
        assert self.values.exists() == bool(seen)
        return seen

    def see_entries(self) -> dict[Any, Any]:
        seen = dict(self.entries.iterator())
        assert self.entries.exists() == bool(seen)
        assert [*self.entries.keys()] == [*seen]
        assert [*self.entries.values()] == [*seen.values()]
        for number in range(10):
            assert self.entries.getValue((number,)) == seen.get((number,))
            assert self.entries.containsKey((number,)) == ((number,) in seen)
        return seen

    def see(self) -> tuple[Any, list[Any], dict[Any, Any]]:
        return self.see_value(), self.see_values(), self.see_entries()


NOTHING: tuple[Any, list[Any], dict[Any, Any]] = (None, [], {})


def fill(place: Place, number: int = 7) -> None:
    place.value.update((number,))
    place.values.put([(number,), (number + 1,)])
    place.entries.updateValue((1,), (number,))


@pytest.fixture
def place() -> Place:
    return Place()


def test_at_first_there_is_nothing(place: Place) -> None:
    assert place.see() == NOTHING


@AROUND_THE_END
def test_what_was_set_lives_until_its_time_is_over(place: Place, now_ms: int, lives: bool) -> None:
    fill(place)
    assert place.see() == ((7,), [(7,), (8,)], {(1,): (7,)})
    place.clock.now_ms = now_ms
    assert place.see() == (((7,), [(7,), (8,)], {(1,): (7,)}) if lives else NOTHING)


@AROUND_THE_END
def test_what_moves_lives_as_long_as_if_it_had_stayed(
    place: Place, now_ms: int, lives: bool
) -> None:
    fill(place)
    place.clock.now_ms = END_MS - 10
    other = place.move()
    assert other.see() == place.see() != NOTHING
    other.clock.now_ms = now_ms
    assert other.see() == (((7,), [(7,), (8,)], {(1,): (7,)}) if lives else NOTHING)


def test_what_is_over_does_not_move(place: Place) -> None:
    fill(place)
    place.clock.now_ms = END_MS - 1
    place.values.appendValue((9,))
    place.entries.updateValue((2,), (9,))
    place.clock.now_ms = END_MS
    assert place.move().see() == place.see() == (None, [(9,)], {(2,): (9,)})
    written = {name: variable.write() for name, variable in place.handle.variables.items()}
    assert written["value"] is None
    assert [len(written[name]) for name in ("values", "entries")] == [1, 1]


@pytest.mark.parametrize("now_ms", [END_MS - 1, END_MS])
def test_what_is_set_again_begins_a_new_life(place: Place, now_ms: int) -> None:
    fill(place)
    place.clock.now_ms = now_ms
    fill(place, 9)
    place.clock.now_ms = now_ms + TTL_MS - 1
    assert place.see() == ((9,), [(9,), (10,)], {(1,): (9,)})
    place.clock.now_ms = now_ms + TTL_MS
    assert place.see() == NOTHING


@pytest.mark.parametrize(
    "append",
    [
        lambda values: values.appendValue((8,)),
        lambda values: values.appendList([(8,)]),
    ],
    ids=["appendValue", "appendList"],
)
def test_each_value_of_a_list_has_a_life_of_its_own(
    place: Place, append: Callable[[Any], None]
) -> None:
    place.values.appendList([(6,), (7,)])
    place.clock.now_ms += 10
    append(place.values)
    for now_ms, seen in [
        (END_MS - 1, [(6,), (7,), (8,)]),
        (END_MS, [(8,)]),
        (END_MS + 9, [(8,)]),
        (END_MS + 10, []),
    ]:
        place.clock.now_ms = now_ms
        assert place.see_values() == seen


def test_each_entry_of_a_map_has_a_life_of_its_own(place: Place) -> None:
    place.entries.updateValue((1,), (7,))
    place.entries.updateValue((2,), (7,))
    place.clock.now_ms += 10
    place.entries.updateValue((2,), (8,))
    place.entries.updateValue((3,), (9,))
    for now_ms, seen in [
        (END_MS - 1, {(1,): (7,), (2,): (8,), (3,): (9,)}),
        (END_MS, {(2,): (8,), (3,): (9,)}),
        (END_MS + 10, {}),
    ]:
        place.clock.now_ms = now_ms
        assert place.see_entries() == seen


def test_what_is_removed_or_cleared_is_gone(place: Place) -> None:
    fill(place)
    place.entries.updateValue((2,), (8,))
    place.entries.removeKey((1,))
    place.entries.removeKey((5,))
    assert place.see_entries() == {(2,): (8,)}
    for variable in (place.value, place.values, place.entries):
        variable.clear()
    assert place.see() == NOTHING
    assert all(variable.write() is None for variable in place.handle.variables.values())


@pytest.mark.parametrize("ttl_ms", [None, 0])
def test_without_a_time_to_live_or_with_one_of_0_values_live_for_ever(ttl_ms: int | None) -> None:
    place = Place(ttl_ms)
    assert isinstance(place.value, ValueState)
    assert isinstance(place.values, ListState)
    assert isinstance(place.entries, MapState)
    fill(place)
    place.clock.now_ms = 2**62
    held = place.spark.held
    assert (held.value, held.values, held.entries) == ((7,), [(7,), (8,)], {(1,): (7,)})
    assert {name: variable.write() for name, variable in place.handle.variables.items()} == {
        "value": (7,),
        "values": [(7,), (8,)],
        "entries": [((1,), (7,))],
    }


def test_spark_is_told_the_schema_with_the_end_of_life_and_its_own_time_to_live() -> None:
    spark: Any = mock.Mock()
    handle = RecordingHandle(spark, Clock())
    schema = StructType().add("n", LongType())
    handle.getValueState("value", schema, TTL_MS)
    handle.getListState("values", "n LONG", TTL_MS)
    handle.getMapState("entries", "k INT", schema)
    stored = StructType().add("n", LongType()).add(EXPIRY_FIELD, LongType())
    spark.getValueState.assert_called_once_with("value", stored, TTL_MS)
    spark.getListState.assert_called_once_with("values", f"n LONG, {EXPIRY_FIELD} BIGINT", TTL_MS)
    spark.getMapState.assert_called_once_with("entries", "k INT", schema, None)
    assert schema.names == ["n"]


def test_a_field_with_the_name_of_the_end_of_life_is_refused(place: Place) -> None:
    schema = StructType().add(EXPIRY_FIELD, LongType())
    with pytest.raises(InvalidInputError, match=r"variable 'twice': its field .* rename the"):
        place.handle.getValueState("twice", schema, TTL_MS)


def test_a_variable_that_is_deleted_moves_no_more() -> None:
    spark: Any = mock.Mock()
    handle = RecordingHandle(spark, Clock())
    handle.getValueState("old", "n INT")
    handle.deleteIfExists("old")
    handle.deleteIfExists("never")
    assert handle.variables == {}
    assert spark.deleteIfExists.call_args_list == [mock.call("old"), mock.call("never")]


class Remembering:
    """Keeps its initial state for a time."""

    def init(self, handle: Any) -> None:
        self._value = handle.getValueState("value", "n INT", TTL_MS)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self._value.update((initialState.total,))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        yield self._value.get()


@AROUND_THE_END
def test_initial_state_has_columns_of_its_own_and_lives_from_the_batch_that_it_came_in(
    now_ms: int, lives: bool
) -> None:
    remembering: Any = Remembering()
    columns = StructType().add("key", StringType()).add("n", LongType())
    initial = (
        StructType().add("total", LongType()).add("key", StringType()).add("since", DateType())
    )
    strips = StripRows(columns, ("key",)), StripRows(initial, ("key",))
    modes = ENCODING, "ProcessingTime", mock.Mock()
    movable = MovableProcessor(remembering, Operator(), *modes, *strips)
    context = mock.Mock(epoch=mock.Mock(arrivals={}, asked=(), touched=()))
    timers: Any = Timers(BORN_MS)
    later: Any = Timers(now_ms)
    with (
        mock.patch.object(processors, "TaskContext"),
        mock.patch.object(processors, "BatchContext", return_value=context),
    ):
        movable.init(Handle({}))
    movable.handleInitialState((0, "a"), Row(7, "a", None, 0, False), timers)
    rows = iter([Row("a", 1, 0)])
    assert [*movable.handleInputRows((0, "a"), rows, later)] == [(7,) if lives else None]
