"""What the listener's rows say of the memory of executors, and of RocksDB in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from balancedstream.core.samples import ProcessSample, StoreSample
from balancedstream.engine.events import StatefulOperator

_NS_PER_S = 1_000_000_000
"""Spark calls the waits of writers milliseconds, and counts nanoseconds
(`RocksDBStateStoreProvider.nativeOpsLatencyMillis` multiplies microseconds by 1000)."""


def sum_stores(
    query: str,
    batch: int,
    rows: Iterable[Sequence[Any]],
    operators: Iterable[StatefulOperator],
) -> tuple[StoreSample, ...]:
    """One sample per operator and executor; operators that share their tasks count as one.

    A sample that cannot be reckoned with is left out: loads are known without it.
    """
    leads = {i: o.id for o in operators for i in o.ids}
    sums: dict[tuple[int, str], list[int]] = {}
    for operator, executor, *values in rows:
        place = (leads[operator], executor)
        sums[place] = [a + b for a, b in zip(sums.get(place, [0] * 7), values, strict=True)]
    found = (
        StoreSample(
            query,
            operator,
            batch,
            executor,
            memory_bytes=memory,
            pinned_bytes=pinned,
            gets=gets,
            get_s=get_ms / 1000,
            hits=hits,
            misses=misses,
            stall_s=stall_ns / _NS_PER_S,
        )
        for (operator, executor), (
            memory,
            pinned,
            gets,
            get_ms,
            hits,
            misses,
            stall_ns,
        ) in sorted(sums.items())
    )
    return tuple(sample for sample in found if sample.is_sound())


def read_processes(rows: Iterable[Sequence[Any]]) -> tuple[ProcessSample, ...]:
    """One sample per executor, but for those that cannot be reckoned with."""
    found = (
        ProcessSample(executor, heap, off_heap, python, jvm + python + other)
        for executor, heap, off_heap, jvm, python, other in rows
    )
    return tuple(sample for sample in found if sample.is_sound())
