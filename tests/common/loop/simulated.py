"""A stateful query without Spark: the real processor on owners in memory, batch after batch.

What Spark does is done here in the least way that shows the same to the processor: rows are grouped
by (route, key), timers that are due fire after all rows, and a batch that fails leaves no trace.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

from pyspark.sql import Row
from pyspark.sql.types import StringType, StructType
from simulated_state import (
    MS_PER_BATCH,
    CountingProcessor,
    Handle,
    Held,
    Output,
    Owner,
)

from balancedstream.core.keys.epochs import Epoch, Export, Wish, advance_epoch, parse_epoch
from balancedstream.core.keys.routes import partition_of
from balancedstream.core.keys.types import Primitive
from balancedstream.keyed import processors
from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.processors import MovableProcessor, StripRows
from balancedstream.keyed.source import find_owners
from balancedstream.keyed.storage import Operator

PARTITIONS = 3
ENCODING = KeyEncoding(StructType().add("key", StringType()))


@dataclass
class Home:
    """The operator's folder, in memory.

    Attributes:
        files: by name, with what they hold.
        taken: what was read out of them in this batch.
    """

    files: dict[str, bytearray] = field(default_factory=dict)
    taken: list[tuple[str, int]] = field(default_factory=list)

    def open_handoff(self, batch: int, partition: int, attempt: int) -> Writer:
        name = f"{batch}-{partition}-{attempt}"
        assert name not in self.files, "an attempt writes one file"
        self.files[name] = bytearray()
        return Writer(name, self.files[name])

    def read_handoff(self, file: str, offset: int, state_bytes: int) -> bytes:
        self.taken.append((file, offset))
        return bytes(self.files[file][offset : offset + state_bytes])

    def remove_outdated(self, next_batch: int) -> None:
        outdated = [name for name in self.files if int(name.partition("-")[0]) < next_batch - 2]
        for name in outdated:
            del self.files[name]


@dataclass
class Writer:
    file: str
    content: bytearray
    pieces: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, key: str, content: bytes) -> None:
        self.pieces[key] = len(self.content), len(content)
        self.content += content

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Context:
    """Where a task is."""

    home: Home
    epoch: Epoch
    batch: int
    partition: int
    attempt: int
    query: str = "query"
    run_id: str = "run"
    checkpoint: str = "/checkpoint"


@dataclass(frozen=True)
class Timers:
    now_ms: int

    def getCurrentProcessingTimeInMs(self) -> int:
        return self.now_ms

    def getCurrentWatermarkInMs(self) -> int:
        return self.now_ms


@dataclass(frozen=True)
class Expired:
    timer_ms: int

    def getExpiryTimeInMs(self) -> int:
        return self.timer_ms


class Task:
    """Runs the owners of one partition in a batch."""

    def __init__(self, owners: dict[Owner, Held], context: Context) -> None:
        self._owners = owners
        self._context = context
        self._handle = Handle(owners)
        self._timers = Timers(MS_PER_BATCH * context.batch)
        self._reports: list[dict[str, Any]] = []
        self.outputs: list[Output] = []
        # Plain objects: there are thousands of tasks, and a mock takes a millisecond to make.
        reports: Any = SimpleNamespace(add=self._reports.extend)
        self._processor = MovableProcessor(
            CountingProcessor(),
            Operator(),
            ENCODING,
            "ProcessingTime",
            reports,
            StripRows(StructType().add("key", StringType()), ("key",)),
            StripRows(StructType().add("key", StringType()), ("key",)),
        )
        with (
            mock.patch.object(processors, "TaskContext", SimpleNamespace(get=object)),
            mock.patch.object(processors, "BatchContext", lambda name: context),  # noqa: PT008
        ):
            self._processor.init(self._handle)

    def take_rows(self, owner: Owner, count: int) -> None:
        """Spark gives the processor rows of an owner, of which one may be a control row."""
        route, key = self._handle.owner = owner
        given = iter([Row(key, route)] * count)
        self.outputs += self._processor.handleInputRows((route, key), given, self._timers)

    def finish(self) -> Export | None:
        """Timers fire, and the task succeeds."""
        due = [
            (timer_ms, owner)
            for owner, held in self._owners.items()
            if find_partition(owner) == self._context.partition
            for timer_ms in held.timers_ms
            if timer_ms < self._timers.now_ms
        ]
        for timer_ms, owner in sorted(due):
            self._handle.owner = owner
            self.outputs += self._processor.handleExpiredTimer(
                owner, self._timers, Expired(timer_ms)
            )
            self._handle.deleteTimer(timer_ms)
        self._processor.close()
        (report,) = self._reports
        if "file" not in report:
            return None
        return Export(report["batch"], report["partition"], report["file"], report["pieces"])


def find_partition(owner: Owner) -> int:
    """Where Spark sends the rows of an owner."""
    route, key = owner
    return partition_of(route, key, Primitive("string"), PARTITIONS)


@dataclass(frozen=True)
class Luck:
    """What happens to a batch and to what it reports.

    Attributes:
        failures: how often it fails and is run again.
        lost: partitions whose report does not arrive; every one if the driver is started anew.
        doubled: partitions that report another file too.
        first: whether that is the first of the two.
        zombie: whether one more attempt at it, which no one waits for, sees other rows and writes
            its state down after the one that counts.
    """

    failures: int = 0
    lost: frozenset[int] = frozenset()
    doubled: frozenset[int] = frozenset()
    first: bool = False
    zombie: bool = False


GOOD_LUCK = Luck()
NO_REPORT = Luck(lost=frozenset(range(PARTITIONS)))


class Query:
    """A stream that runs batch after batch, and one that nobody disturbs, to compare with.

    Args:
        one_by_one: whether each row is a call of its own, as it is in Spark for a key that does not
            equal itself (NaN).
    """

    def __init__(self, one_by_one: bool = False) -> None:
        self._one_by_one = one_by_one
        self.epoch = Epoch()
        self.batch = 0
        self.records: dict[str, int] = {}
        self._home = Home()
        self._owners: dict[Owner, Held] = {}
        self._exports: list[Export] = []
        self._reported: set[str] = set()
        self._taken: set[tuple[str, int]] = set()
        self._undisturbed: dict[Owner, Held] = {}

    def lose_reports(self) -> None:
        """The driver is started anew."""
        self._exports.clear()

    def plan(self, wish: Wish | None) -> Epoch:
        """The epoch of the next batch, if there is one."""
        return advance_epoch(self.epoch, wish, self._exports, self.batch)

    def advance(self, wish: Wish | None, keys: Sequence[str] = (), luck: Luck = GOOD_LUCK) -> bool:
        """Runs a batch with a record of each of these keys, if there is anything to do.

        Returns:
            Whether there was.
        """
        planned = self.plan(wish)
        self._home.remove_outdated(self.batch)
        if planned is self.epoch and not keys:
            return False
        if planned is not self.epoch:
            self._check_plan(planned, wish)
        # A batch is run with what the offset log says.
        self.epoch = parse_epoch(planned.to_json())
        before = copy.deepcopy(self._owners)
        for attempt in range(luck.failures + 1):
            self._owners = copy.deepcopy(before)
            self._home.taken.clear()
            outputs, exports = _run(
                self._owners, self._home, self.epoch, self.batch, attempt, keys, self._one_by_one
            )
        expected, _ = _run(
            self._undisturbed, Home(), Epoch(), self.batch, 0, keys, self._one_by_one
        )
        assert sorted(outputs) == sorted(expected), "what is shown is what would have been"
        self._report(exports, luck)
        for key in keys:
            self.records[key] = self.records.get(key, 0) + 1
        self._check_owners()
        if luck.zombie:
            rows = [*keys, *keys, "a"]
            _run(before, self._home, self.epoch, self.batch, attempt + 1, rows, self._one_by_one)
        self.batch += 1
        return True

    def _report(self, exports: list[Export], luck: Luck) -> None:
        for export in exports:
            if export.partition in luck.lost:
                continue
            told = [export]
            if export.partition in luck.doubled:
                # Nobody can tell which of the two is what the state store holds.
                other = Export(self.batch, export.partition, "other", dict(export.pieces))
                told.insert(0 if luck.first else 1, other)
            self._exports += told
            self._reported |= {one.file for one in told}

    def _check_plan(self, planned: Epoch, wish: Wish | None) -> None:
        assert planned.number == self.epoch.number + 1
        assert planned.batch == self.batch
        assert 0 not in planned.routes.values()
        moved = {
            key
            for key in {*planned.routes, *self.epoch.routes}
            if planned.route_of(key) != self.epoch.route_of(key)
        }
        assert moved == set(planned.arrivals), "routes change with their state and only so"
        taken = {arrival.piece.file for arrival in planned.arrivals.values()}
        assert taken <= self._reported, "only what was reported is taken in"
        first = wish.effective_batch if wish else None
        assert not moved or first is None or self.batch >= first

    def _check_owners(self) -> None:
        """Every key's state is at one owner, the one that its epoch routes it to."""
        held = {owner: state for owner, state in self._owners.items() if state != Held()}
        expected = {
            (self.epoch.route_of(ENCODING.write((key,))), key): state
            for (_, key), state in self._undisturbed.items()
            if state != Held()
        }
        assert held == expected
        for (_, key), state in held.items():
            assert sum(size for (size,) in state.entries.values()) == self.records[key]
        taken = self._home.taken
        assert len({*taken}) == len(taken), "a piece was taken in twice"
        assert self._taken.isdisjoint(taken), "a piece was taken in again"
        self._taken.update(taken)


def _run(
    owners: dict[Owner, Held],
    home: Home,
    epoch: Epoch,
    batch: int,
    attempt: int,
    keys: Sequence[str],
    one_by_one: bool,
) -> tuple[list[Output], list[Export]]:
    """One attempt at a batch: all of its tasks."""
    epoch = epoch.in_batch(batch)
    control = [(route, ENCODING.read(key)[0]) for key, route in find_owners(epoch)]
    data = [(epoch.route_of(ENCODING.write((key,))), key) for key in keys]
    outputs: list[Output] = []
    exports: list[Export] = []
    for partition in range(PARTITIONS):
        task = Task(owners, Context(home, epoch, batch, partition, attempt))
        for owner in dict.fromkeys((*data, *control)):
            if find_partition(owner) != partition:
                continue
            rows = data.count(owner) + control.count(owner)
            for count in [1] * rows if one_by_one else [rows]:
                task.take_rows(owner, count)
        export = task.finish()
        outputs += task.outputs
        exports += [export] if export else []
    return outputs, exports
