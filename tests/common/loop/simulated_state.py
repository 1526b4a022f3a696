"""Spark's handle and state variables in memory, and a processor that shows all it remembers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import IntegerType, StructField, StructType

MS_PER_BATCH = 10
Owner = tuple[int, str]
Output = tuple[str, str, int]


@dataclass
class Held:
    """What Spark keeps for one owner."""

    value: tuple[int] | None = None
    values: list[tuple[int]] = field(default_factory=list)
    entries: dict[tuple[int], tuple[int]] = field(default_factory=dict)
    timers_ms: set[int] = field(default_factory=set)


class Handle:
    """Spark's handle, and each of its variables, for the owner that it is at."""

    def __init__(self, owners: dict[Owner, Held]) -> None:
        self._owners = owners
        self.owner: Owner = (0, "")
        self._statefulProcessorApiClient = self

    def _parse_string_schema(self, schema: str) -> StructType:
        """Each field here is an INT; Spark asks its JVM."""
        fields = (field.split()[0] for field in schema.split(","))
        return StructType([StructField(name, IntegerType()) for name in fields])

    @property
    def held(self) -> Held:
        return self._owners.setdefault(self.owner, Held())

    def getValueState(self, name: str, schema: str, ttl_ms: int | None) -> ValueState:
        return ValueState(self)

    def getListState(self, name: str, schema: str, ttl_ms: int | None) -> ListState:
        return ListState(self)

    def getMapState(self, name: str, key: str, schema: str, ttl_ms: int | None) -> MapState:
        return MapState(self)

    def registerTimer(self, timer_ms: int) -> None:
        self.held.timers_ms.add(timer_ms)

    def deleteTimer(self, timer_ms: int) -> None:
        self.held.timers_ms.discard(timer_ms)

    def listTimers(self) -> Iterator[int]:
        return iter(sorted(self.held.timers_ms))


@dataclass
class ValueState:
    handle: Handle

    def get(self) -> tuple[int] | None:
        return self.handle.held.value

    def update(self, value: tuple[int]) -> None:
        self.handle.held.value = value

    def clear(self) -> None:
        self.handle.held.value = None


@dataclass
class ListState:
    handle: Handle

    def get(self) -> Iterator[tuple[int]]:
        return iter(self.handle.held.values)

    def put(self, values: list[tuple[int]]) -> None:
        self.handle.held.values = [*values]

    def appendValue(self, value: tuple[int]) -> None:
        self.handle.held.values.append(value)

    def appendList(self, values: list[tuple[int]]) -> None:
        self.handle.held.values += values

    def clear(self) -> None:
        self.handle.held.values = []


@dataclass
class MapState:
    handle: Handle

    def iterator(self) -> Iterator[tuple[tuple[int], tuple[int]]]:
        return iter(self.handle.held.entries.items())

    def getValue(self, key: tuple[int]) -> tuple[int] | None:
        return self.handle.held.entries.get(key)

    def updateValue(self, key: tuple[int], value: tuple[int]) -> None:
        self.handle.held.entries[key] = value

    def removeKey(self, key: tuple[int]) -> None:
        self.handle.held.entries.pop(key, None)

    def clear(self) -> None:
        self.handle.held.entries = {}


class CountingProcessor:
    """Counts records, and what it shows in a batch tells all that it remembers."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n INT")
        self._batches = handle.getListState("batches", "n INT")
        self._sizes = handle.getMapState("sizes", "n INT", "n INT")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Output]:
        now_ms = timers.getCurrentProcessingTimeInMs()
        size = sum(1 for _ in rows)
        count = size + (self._count.get() or (0,))[0]
        self._count.update((count,))
        self._batches.appendValue((now_ms,))
        (before,) = self._sizes.getValue((now_ms,)) or (0,)
        self._sizes.updateValue((now_ms,), (before + size,))
        # One is due in this very batch, one in the next that comes after a while.
        self._handle.registerTimer(now_ms - 1)
        self._handle.registerTimer(now_ms + 3 * MS_PER_BATCH - 1)
        yield key[0], "rows", self._sum_up()

    def handleExpiredTimer(self, key: Any, timers: Any, info: Any) -> Iterator[Output]:
        fired_ms = info.getExpiryTimeInMs()
        self._count.update(((self._count.get() or (0,))[0] + 1000,))
        if fired_ms % 4 == 1:
            # Due already, and not before the next batch.
            self._handle.registerTimer(fired_ms - 1)
        yield key[0], f"timer {fired_ms}", self._sum_up()

    def close(self) -> None:
        pass

    def _sum_up(self) -> int:
        batches = [number for (number,) in self._batches.get()]
        sizes = {k[0]: v[0] for k, v in self._sizes.iterator()}
        return hash((self._count.get(), tuple(batches), tuple(sorted(sizes.items()))))
