"""Whether the state of a stream fits into its executors' memory, and with how much it would: pure.

All of it is our own design. The amounts follow from what was measured: what an executor takes
beside RocksDB stays, whoever runs its partitions; RocksDB's memory goes with the partitions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median_high
from typing import Literal

from balancedstream.core.memory.use import GIB, ExecutorMemory, Memory, StateReads

FULL = 0.9
"""What takes this part of its limit is about to be killed: a batch may need more for a moment."""

SOON_H = 24.0
"""A limit that growing memory reaches within so many hours is told."""

SLOWER = 3.0
"""Reads are slow if one takes so many times the least."""

MIN_MISSES = 0.5
"""Below so many misses a read, the cache is not what makes reads slow."""

MIN_DELAY = 0.2
"""Slow reads that make a batch longer by less than this part are not told."""

STATE_PART = 0.1
"""RocksDB must take this part of an executor's limit, or state is not what fills it."""

WRITE_BUFFERS = 0.25
"""The part of RocksDB's memory that the advice gives to memtables; the rest caches blocks."""

_ROOM = 1.15
"""The advice leaves so much room: with more than `FULL` in use it would be given again."""

_STEP = 64 * 1024**2

Kind = Literal["near", "growing", "reads"]
"""Why memory is tight.

`near`: an executor takes almost all that it may. `growing`: it will soon. `reads`: the cache is too
small for the state, and reads make batches longer.
"""


@dataclass(frozen=True, slots=True)
class Advice:
    """Sizes of an executor that hold the state, in bytes.

    Attributes:
        heap_bytes: of the JVM's heap, as it is; 0 where it is not known.
        overhead_bytes: beside the heap; 0 where nothing limits it.
        rocksdb_bytes: of RocksDB, all stores of an executor together.
    """

    heap_bytes: float
    overhead_bytes: float
    rocksdb_bytes: float

    def write(self, *, as_spec: bool = False) -> str:
        """The settings as a person pastes them.

        Args:
            as_spec: whether the sizes of executors are fields of a BalancedStream's spec, and not
                settings of Spark.

        >>> Advice(1 * GIB, 2 * GIB, GIB / 2).write(as_spec=True)[:75]
        'spec.executors.memory: 1024m, spec.executors.memoryOverhead: 2048m, spark.s'
        """
        prefix, sign = ("spec.executors.", ": ") if as_spec else ("spark.executor.", "=")
        sizes = (("memory", self.heap_bytes), ("memoryOverhead", self.overhead_bytes))
        lines = [f"{prefix}{name}{sign}{_count_mib(size)}m" for name, size in sizes if size]
        store = "spark.sql.streaming.stateStore.rocksdb."
        lines += [
            f"{store}boundedMemoryUsage=true",
            f"{store}maxMemoryUsageMB={_count_mib(self.rocksdb_bytes)}",
            f"{store}writeBufferCacheRatio={WRITE_BUFFERS}",
        ]
        return ", ".join(lines)


@dataclass(frozen=True, slots=True)
class Tightness:
    """Memory that is too small for the state, or soon will be.

    Attributes:
        kind: why.
        said: what was measured, for people.
        of_state: whether the state is what fills it.
        advice: sizes that would hold the state.
        instead: what more executors would do instead, for people; "" if they are dearer.
        query: whose reads are slow; "" if that is not the cause.
    """

    kind: Kind
    said: str
    of_state: bool
    advice: Advice
    instead: str = ""
    query: str = ""

    def advise(self, *, as_spec: bool = False) -> str:
        """What to set, or to do instead; see `Advice.write`."""
        instead = f"; or {self.instead}" if self.instead else ""
        return f"{self.advice.write(as_spec=as_spec)}{instead}"


def find_tightness(memory: Memory) -> Tightness | None:
    """Why memory is too small for the state, what comes first first; None if it is not.

    >>> use = ExecutorMemory("1", 0.9 * GIB, rocksdb_bytes=0.4 * GIB)
    >>> from balancedstream.core.memory.use import MemoryLimits
    >>> found = find_tightness(Memory((use,), MemoryLimits(1.4 * GIB, 1.0 * GIB)))
    >>> found.said
    'executor 1 takes 1.30 of 1.40 GiB (heap 0.90, RocksDB 0.40)'
    """
    fullest = _find_fullest(memory)
    limit = memory.limits.executor_bytes
    if fullest and limit:
        part = memory.rocksdb_bytes / len(memory.executors)
        of_state = max(part, fullest.rocksdb_bytes) >= STATE_PART * limit
        if fullest.used_bytes >= FULL * limit:
            said = _describe(fullest, limit)
            return Tightness("near", said, of_state, *_advise_growth(memory, fullest))
        hours = find_hours_left(memory)
        if hours is not None and hours <= SOON_H:
            said = (
                f"{_describe(fullest, limit)}; at the growth of the last hours the limit is "
                f"reached in {hours:.1f} hours"
            )
            return Tightness("growing", said, of_state, *_advise_growth(memory, fullest))
    slow = [r for r in memory.reads if is_slow(r)]
    if not slow or not memory.executors:
        return None
    worst = max(slow, key=lambda r: r.delay_s)
    said = (
        f"reads of query {worst.query} miss the cache {worst.misses:.1f} times each and take "
        f"{worst.get_s * 1e6:.0f} µs, {worst.get_s / worst.least_s:.1f} x the least: batches are "
        f"{worst.delay_s:.1f} s longer"
    )
    return Tightness("reads", said, True, *_advise_cache(memory), query=worst.query)


def is_slow(reads: StateReads) -> bool:
    """Whether reads miss the cache so often that batches are longer.

    The hit rate alone does not tell: behind the cache is that of the operating system.

    >>> is_slow(StateReads("q", 0, 72e-6, 12e-6, 1.5, 4.0, 14.0))
    True
    >>> is_slow(StateReads("q", 0, 14e-6, 12e-6, 0.8, 0.1, 4.3))
    False
    """
    return (
        reads.least_s > 0.0
        and reads.get_s >= SLOWER * reads.least_s
        and reads.misses >= MIN_MISSES
        and reads.delay_s >= MIN_DELAY * reads.batch_s
    )


def find_hours_left(memory: Memory) -> float | None:
    """Hours until an executor reaches its limit, as memory has grown; None if it does not grow.

    >>> from balancedstream.core.memory.use import MemoryLimits
    >>> use = ExecutorMemory("1", rocksdb_bytes=1.0 * GIB)
    >>> find_hours_left(Memory((use,), MemoryLimits(2.0 * GIB), growth=GIB / 36_000))
    10.0
    """
    fullest, limits = _find_fullest(memory), memory.limits
    if not fullest or not limits.executor_bytes or not memory.growth:
        return None
    growth = memory.growth / len(memory.executors)
    room = limits.executor_bytes - fullest.used_bytes
    if limits.rocksdb_bytes and limits.rocksdb_bytes - fullest.rocksdb_bytes < room:
        return None
    return max(0.0, room / growth / 3600)


def find_floor(memory: Memory) -> int:
    """The fewest executors that can hold the state; 0 where nothing is known to limit it.

    No number of executors may be enough: then it is as many as there are, because fewer are worse.

    >>> from balancedstream.core.memory.use import MemoryLimits
    >>> use = [ExecutorMemory(e, 1.0 * GIB, rocksdb_bytes=0.8 * GIB) for e in "abc"]
    >>> find_floor(Memory(tuple(use), MemoryLimits(3.0 * GIB)))
    2
    """
    room, total = find_room(memory), memory.rocksdb_bytes
    if room is None or not total:
        return 0
    bound = memory.limits.rocksdb_bytes
    if bound and bound <= room:
        return 0
    if room < _STEP:
        return len(memory.executors)
    return math.ceil(total / room - 1e-9)


def find_room(memory: Memory) -> float | None:
    """Bytes that RocksDB may take on each executor; None where nothing limits them.

    What else an executor takes is the median of all: one that gave state away keeps some of the
    memory, and uses it again.
    """
    if not memory.limits.executor_bytes or not memory.executors:
        return None
    other = median_high(executor.other_bytes for executor in memory.executors)
    return max(0.0, FULL * memory.limits.executor_bytes - other)


def describe_share(memory: Memory, executors: int) -> str:
    """What the state would take on each of so many executors, of what it may; for people.

    >>> from balancedstream.core.memory.use import MemoryLimits
    >>> use = [ExecutorMemory(e, 1.1 * GIB, rocksdb_bytes=0.95 * GIB) for e in "ab"]
    >>> describe_share(Memory(tuple(use), MemoryLimits(3.0 * GIB)), 1)
    'state would take 1.90 of 1.60 GiB'
    """
    share = memory.rocksdb_bytes / max(1, executors) / GIB
    return f"state would take {share:.2f} of {(find_room(memory) or 0.0) / GIB:.2f} GiB"


def _find_fullest(memory: Memory) -> ExecutorMemory | None:
    return max(memory.executors, key=lambda e: e.used_bytes, default=None)


def _describe(executor: ExecutorMemory, limit: float) -> str:
    """What each part takes."""
    parts = [
        ("heap", executor.heap_bytes),
        ("RocksDB", executor.rocksdb_bytes),
        ("Python", executor.python_bytes),
        ("other of the JVM", executor.off_heap_bytes),
    ]
    rest = executor.used_bytes - sum(size for _, size in parts)
    named = [*parts, ("the rest", max(0.0, rest))]
    said = ", ".join(f"{name} {size / GIB:.2f}" for name, size in named if size >= 0.005 * GIB)
    return (
        f"executor {executor.executor} takes {executor.used_bytes / GIB:.2f} of "
        f"{limit / GIB:.2f} GiB ({said})"
    )


def _advise_growth(memory: Memory, fullest: ExecutorMemory) -> tuple[Advice, str]:
    """Sizes for what the fullest executor takes, and grows by; and what executors would do."""
    growth = (memory.growth or 0.0) * SOON_H * 3600
    each = growth / len(memory.executors)
    rocksdb = max(1.0, *(e.rocksdb_bytes + each for e in memory.executors))
    advice = _size(memory, rocksdb, fullest.used_bytes + each)
    return advice, _compare(memory, memory.rocksdb_bytes + growth, advice)


def _advise_cache(memory: Memory) -> tuple[Advice, str]:
    """Sizes with which the state of the executor with the most is in the cache."""
    cached = {
        e: max(e.state_bytes / (1 - WRITE_BUFFERS), e.rocksdb_bytes) for e in memory.executors
    }
    rocksdb = max(1.0, *cached.values())
    advice = _size(memory, rocksdb, max(e.other_bytes for e in memory.executors) + rocksdb)
    return advice, _compare(memory, sum(cached.values()), advice)


def _size(memory: Memory, rocksdb: float, used: float) -> Advice:
    """The sizes of an executor with so much memory in use."""
    limits = memory.limits
    rocksdb = _round_up(rocksdb)
    if not limits.executor_bytes:
        return Advice(limits.heap_bytes, 0.0, rocksdb)
    wanted = max(_ROOM * used, limits.executor_bytes)
    # The heap may yet fill up.
    beside = max(max(0.0, e.other_bytes - e.heap_bytes) for e in memory.executors)
    overhead = _round_up(max(wanted - limits.heap_bytes, rocksdb + beside))
    return Advice(limits.heap_bytes, overhead, rocksdb)


def _compare(memory: Memory, rocksdb: float, advice: Advice) -> str:
    """What more executors would take of memory, if that is less than more for each; else ""."""
    count, room, limits = len(memory.executors), find_room(memory) or 0.0, memory.limits
    if limits.rocksdb_bytes:
        room = min(room, limits.rocksdb_bytes)
    if room < _STEP:
        return ""
    added = math.ceil(rocksdb / room - 1e-9) - count
    more = advice.heap_bytes + advice.overhead_bytes - limits.executor_bytes
    dear, cheap = more * count / GIB, added * limits.executor_bytes / GIB
    if cheap >= dear:
        return ""
    if added <= 0:
        return f"the {count} executors hold it as they are, if its partitions are spread evenly"
    noun = "executor holds" if added == 1 else "executors hold"
    return f"{added} more {noun} it with {cheap:.1f} GiB more in all, instead of {dear:.1f}"


def _round_up(size: float) -> float:
    return math.ceil(size / _STEP - 1e-9) * float(_STEP)


def _count_mib(size: float) -> int:
    return math.ceil(size / 1024**2 - 1e-9)
