"""How the memory of executors came to be what it is: the growth of hours, and the reads of before.

An embedded driver and one in Kubernetes keep the same history; the operator gets its outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter

from balancedstream.core.memory.use import ExecutorMemory, Memory, MemoryLimits, StateReads
from balancedstream.core.samples import (
    BatchSample,
    OperatorId,
    ProcessSample,
    StoreSample,
    TaskSample,
)

LOOK_BACK_S = 6 * 3600.0
"""The growth of memory is that of so long."""

MIN_SPAN_S = 1800.0
"""Nothing is said of growth before so long was seen: memtables and caches fill up first."""

_POINT_S = 60.0
_MIN_POINTS = 10

RECENT_BATCHES = 5
MIN_GETS = 5_000
"""Fewer reads in the recent batches do not tell what one takes: Spark counts milliseconds."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The reads of one batch, over all executors."""

    gets: int
    get_s: float
    misses: int
    stall_s: float
    cores: float
    batch_s: float


@dataclass(frozen=True, slots=True)
class FinishedReads:
    """A batch, as this history takes it in.

    Attributes:
        sample: the batch as a whole.
        tasks: one per operator and state partition.
        stores: one per operator and executor, in the order of operators.
        processes: one per executor.
        executors: live ones, id to cores.
    """

    sample: BatchSample
    tasks: Sequence[TaskSample]
    stores: Sequence[StoreSample]
    processes: Sequence[ProcessSample]
    executors: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MemoryHistory:
    """What is remembered of memory.

    Attributes:
        points: RocksDB's memory over all executors, (seconds since the Unix epoch, bytes), oldest
            first, one a minute.
        stores: of each operator in its last batch.
        state_bytes: size of the state of each operator in its last batch, by executor.
        processes: what each executor's processes took last.
        readings: of each operator in its recent batches, oldest first.
        least_s: of each operator, the least that a read has taken over as many batches.
    """

    points: tuple[tuple[float, float], ...] = ()
    stores: Mapping[OperatorId, Sequence[StoreSample]] = field(default_factory=dict)
    state_bytes: Mapping[OperatorId, Mapping[str, int]] = field(default_factory=dict)
    processes: Mapping[str, ProcessSample] = field(default_factory=dict)
    readings: Mapping[OperatorId, tuple[_Reading, ...]] = field(default_factory=dict)
    least_s: Mapping[OperatorId, float] = field(default_factory=dict)

    def after(self, batch: FinishedReads) -> MemoryHistory:
        """What is remembered after one more batch.

        >>> batch = BatchSample("q", 1, 60.0, 2.0, 9)
        >>> stores = [StoreSample("q", 0, 1, "a", memory_bytes=64, gets=9_000, get_s=0.9)]
        >>> history = MemoryHistory().after(FinishedReads(batch, [], stores, [], {"a": 2}))
        >>> memory = history.measure({"a": 2}, MemoryLimits())
        >>> memory.executors[0].rocksdb_bytes, round(memory.reads[0].get_s, 6)
        (64.0, 0.0001)
        """
        stores, sizes = {**self.stores}, {**self.state_bytes}
        readings, least_s = {**self.readings}, {**self.least_s}
        for number, found in groupby(batch.stores, attrgetter("operator")):
            operator, mine = (batch.sample.query, number), tuple(found)
            stores[operator] = mine
            sizes[operator] = _sum_state(batch.tasks, number)
            before = readings.get(operator, ())
            kept = (*before, _read(batch, mine))[-RECENT_BATCHES:]
            readings[operator] = kept
            now_s = _find_get_s(kept)
            # The first ones are slow, because nothing is in a cache yet.
            if now_s is not None and len(kept) == RECENT_BATCHES:
                least_s[operator] = min(now_s, least_s.get(operator, now_s))
        heard = {p.executor: p.fill_in(self.processes.get(p.executor)) for p in batch.processes}
        processes = {**self.processes, **heard}
        history = replace(
            self,
            stores=stores,
            state_bytes=sizes,
            processes={e: p for e, p in processes.items() if e in batch.executors},
            readings=readings,
            least_s=least_s,
        )
        return history._add_point(batch.sample.finished_s)

    def end_query(self, query: str) -> MemoryHistory:
        """Without what is known of a query that ended."""
        kept = [operator for operator in self.stores if operator[0] != query]
        return replace(
            self,
            stores={o: self.stores[o] for o in kept},
            state_bytes={o: self.state_bytes[o] for o in kept},
            readings={o: self.readings[o] for o in kept},
            least_s={o: s for o, s in self.least_s.items() if o[0] != query},
            # What is left has grown in another way.
            points=self.points if len(kept) == len(self.stores) else (),
        )

    def measure(self, executors: Iterable[str], limits: MemoryLimits) -> Memory:
        """The memory of these executors now."""
        rocksdb: Counter[str] = Counter()
        for stores in self.stores.values():
            for store in stores:
                rocksdb[store.executor] += store.memory_bytes
        state: Counter[str] = Counter()
        for sizes in self.state_bytes.values():
            state.update(sizes)
        if limits.rocksdb_bytes:
            # Not every Spark divides the cache that all stores share: each would count all of it.
            most = int(limits.rocksdb_bytes)
            rocksdb = Counter({executor: min(size, most) for executor, size in rocksdb.items()})
        found = [self._sum_up(e, rocksdb[e], state[e]) for e in executors]
        known = tuple(e for e in found if e.used_bytes or e.state_bytes)
        reads = (self._summarize(operator) for operator in sorted(self.readings))
        return Memory(known, limits, tuple(r for r in reads if r), find_growth(self.points))

    def _sum_up(self, executor: str, rocksdb_bytes: int, state_bytes: int) -> ExecutorMemory:
        process = self.processes.get(executor, ProcessSample(executor, 0, 0))
        return ExecutorMemory(
            executor,
            heap_bytes=float(process.heap_bytes),
            off_heap_bytes=float(process.off_heap_bytes),
            python_bytes=float(process.python_bytes),
            rocksdb_bytes=float(rocksdb_bytes),
            resident_bytes=float(process.resident_bytes),
            state_bytes=float(state_bytes),
        )

    def _summarize(self, operator: OperatorId) -> StateReads | None:
        readings = self.readings[operator]
        get_s = _find_get_s(readings)
        if get_s is None:
            return None
        least_s = min(get_s, self.least_s.get(operator, get_s))
        gets = sum(r.gets for r in readings)
        count = len(readings)
        delays = ((r.get_s - r.gets * least_s + r.stall_s) / r.cores for r in readings)
        return StateReads(
            *operator,
            get_s=get_s,
            least_s=least_s,
            misses=sum(r.misses for r in readings) / gets,
            delay_s=max(0.0, sum(delays) / count),
            batch_s=sum(r.batch_s for r in readings) / count,
        )

    def _add_point(self, now_s: float) -> MemoryHistory:
        if not self.stores or (self.points and 0 <= now_s - self.points[-1][0] < _POINT_S):
            return self
        total = sum(s.memory_bytes for stores in self.stores.values() for s in stores)
        kept = (p for p in self.points if now_s - LOOK_BACK_S <= p[0] < now_s)
        return replace(self, points=(*kept, (now_s, float(total))))


def find_growth(points: Sequence[tuple[float, float]]) -> float | None:
    """Bytes per second by which memory grows; 0 if it does not, None if too little was seen.

    What fills up grows less and less, so it is the lesser of two: of the whole time, and of its
    later half.

    >>> find_growth([(60.0 * n, 1000.0 * n) for n in range(40)])
    16.666...
    >>> find_growth([(60.0 * n, 5.0) for n in range(40)]), find_growth([(0.0, 1.0), (9e9, 2.0)])
    (0.0, None)
    """
    if len(points) < _MIN_POINTS or points[-1][0] - points[0][0] < MIN_SPAN_S:
        return None
    middle_s = (points[0][0] + points[-1][0]) / 2
    later = [point for point in points if point[0] >= middle_s]
    if len(later) < _MIN_POINTS // 2:
        return None
    return max(0.0, min(_find_slope(points), _find_slope(later)))


def _find_slope(points: Sequence[tuple[float, float]]) -> float:
    """Least squares."""
    count = len(points)
    mean_s = sum(time_s for time_s, _ in points) / count
    mean = sum(value for _, value in points) / count
    spread = sum((time_s - mean_s) ** 2 for time_s, _ in points)
    common = sum((time_s - mean_s) * (value - mean) for time_s, value in points)
    return common / spread if spread else 0.0


def _sum_state(tasks: Iterable[TaskSample], operator: int) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for task in tasks:
        if task.operator == operator:
            sizes[task.executor] = sizes.get(task.executor, 0) + task.state_bytes
    return sizes


def _read(batch: FinishedReads, stores: Sequence[StoreSample]) -> _Reading:
    cores = sum(batch.executors.get(s.executor, 1) for s in stores)
    return _Reading(
        gets=sum(s.gets for s in stores),
        get_s=sum(s.get_s for s in stores),
        misses=sum(s.misses for s in stores),
        stall_s=sum(s.stall_s for s in stores),
        cores=float(max(1, cores)),
        batch_s=batch.sample.duration_s,
    )


def _find_get_s(readings: Sequence[_Reading]) -> float | None:
    """Seconds of a read; None if there were too few to tell."""
    gets = sum(r.gets for r in readings)
    return sum(r.get_s for r in readings) / gets if gets >= MIN_GETS else None
