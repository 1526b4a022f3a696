"""What executors take of memory, as decisions get to know it."""

from __future__ import annotations

from dataclasses import dataclass

GIB = float(1 << 30)


@dataclass(frozen=True, slots=True)
class ExecutorMemory:
    """What one executor takes of memory, in bytes.

    Attributes:
        executor: its id.
        heap_bytes: what objects take of the JVM's heap.
        off_heap_bytes: what the JVM itself takes beside it.
        python_bytes: of Python workers; 0 where processes are not measured.
        rocksdb_bytes: of RocksDB: memtables, block caches and indexes.
        resident_bytes: of all processes, RocksDB included; 0 where they are not measured.
        state_bytes: size of the state of its partitions, most of which may be on disk only.

    >>> memory = ExecutorMemory("1", heap_bytes=5.0, rocksdb_bytes=2.0, resident_bytes=9.0)
    >>> memory.used_bytes, memory.other_bytes
    (9.0, 7.0)
    """

    executor: str
    heap_bytes: float = 0.0
    off_heap_bytes: float = 0.0
    python_bytes: float = 0.0
    rocksdb_bytes: float = 0.0
    resident_bytes: float = 0.0
    state_bytes: float = 0.0

    @property
    def used_bytes(self) -> float:
        """What counts against the limit; a lower bound where processes are not measured."""
        known = self.heap_bytes + self.off_heap_bytes + self.python_bytes + self.rocksdb_bytes
        return self.resident_bytes or known

    @property
    def other_bytes(self) -> float:
        """What it takes beside RocksDB, which stays if state goes to other executors."""
        return max(0.0, self.used_bytes - self.rocksdb_bytes)


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """What each executor may take, in bytes; 0 where nothing limits it, or it is not known.

    Attributes:
        executor_bytes: of all its processes; what takes more is killed.
        heap_bytes: of the JVM's heap.
        rocksdb_bytes: of RocksDB (`boundedMemoryUsage`, with `maxMemoryUsageMB`).
    """

    executor_bytes: float = 0.0
    heap_bytes: float = 0.0
    rocksdb_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class StateReads:
    """How the tasks of an operator read their state, on the mean of the last batches.

    Attributes:
        get_s: seconds of a read of one key.
        least_s: the least that it has taken for as many batches, when the state was smaller.
        misses: number of blocks for each read that came from a file, and not from the cache.
        delay_s: seconds by which a batch is longer than if reads took the least.
        batch_s: seconds of a batch.
    """

    query: str
    operator: int
    get_s: float
    least_s: float
    misses: float
    delay_s: float
    batch_s: float


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of an application's executors.

    Attributes:
        executors: the live ones whose memory is known, any order.
        limits: of each.
        reads: of the operators that have read enough to tell.
        growth: bytes per second by which RocksDB's memory grows over all executors, by the last
            hours; None if they are too few.

    >>> Memory((ExecutorMemory("1", rocksdb_bytes=3.0), ExecutorMemory("2"))).rocksdb_bytes
    3.0
    """

    executors: tuple[ExecutorMemory, ...] = ()
    limits: MemoryLimits = MemoryLimits()
    reads: tuple[StateReads, ...] = ()
    growth: float | None = None

    @property
    def rocksdb_bytes(self) -> float:
        """Of RocksDB on all executors."""
        return sum(executor.rocksdb_bytes for executor in self.executors)
