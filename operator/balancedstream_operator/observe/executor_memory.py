"""Reads from the newest scrape what executors take of memory: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from balancedstream.core.memory.use import ExecutorMemory, Memory, MemoryLimits, StateReads
from balancedstream.core.samples import OperatorId
from balancedstream.core.wire import series as wire
from balancedstream_operator.observe.series import Series

_Found = Mapping[str, Sequence[Series]]


def read_memory(current: _Found, executors: Mapping[str, int]) -> Memory:
    """The memory of these executors, as the driver measured it; nothing for an older release.

    Args:
        current: series by name, each with its sample of the newest scrape.
        executors: live ones.
    """
    parts: dict[str, dict[str, float]] = {}
    for series in current.get(wire.EXECUTOR_MEMORY, ()):
        of_executor = parts.setdefault(series.labels[wire.EXECUTOR], {})
        of_executor[series.labels[wire.PART]] = series.samples[-1][1]
    limits = {
        series.labels[wire.PART]: series.samples[-1][1]
        for series in current.get(wire.EXECUTOR_MEMORY_LIMIT, ())
    }
    growth = current.get(wire.STATE_MEMORY_GROWTH, ())
    return Memory(
        tuple(_read(e, parts[e]) for e in executors if e in parts),
        MemoryLimits(
            limits.get(wire.WHOLE, 0.0), limits.get(wire.HEAP, 0.0), limits.get(wire.ROCKSDB, 0.0)
        ),
        tuple(_read_reads(current)),
        growth[0].samples[-1][1] if growth else None,
    )


def _read(executor: str, parts: Mapping[str, float]) -> ExecutorMemory:
    return ExecutorMemory(
        executor,
        heap_bytes=parts.get(wire.HEAP, 0.0),
        off_heap_bytes=parts.get(wire.OFF_HEAP, 0.0),
        python_bytes=parts.get(wire.PYTHON, 0.0),
        rocksdb_bytes=parts.get(wire.ROCKSDB, 0.0),
        resident_bytes=parts.get(wire.RESIDENT, 0.0),
        state_bytes=parts.get(wire.STATE, 0.0),
    )


_READS = (
    wire.STATE_READ,
    wire.STATE_READ_LEAST,
    wire.STATE_READ_MISSES,
    wire.STATE_READ_DELAY,
    wire.STATE_READ_BATCH,
)


def _read_reads(current: _Found) -> list[StateReads]:
    found: dict[OperatorId, dict[str, float]] = {}
    for metric in _READS:
        for series in current.get(metric, ()):
            operator = series.labels[wire.QUERY], int(series.labels[wire.OPERATOR])
            found.setdefault(operator, {})[metric] = series.samples[-1][1]
    return [
        StateReads(*operator, *(values[metric] for metric in _READS))
        for operator, values in sorted(found.items())
        if len(values) == len(_READS)
    ]
