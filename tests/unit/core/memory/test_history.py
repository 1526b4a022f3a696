"""What is remembered of the memory of executors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from balancedstream.core.memory.history import (
    LOOK_BACK_S,
    FinishedReads,
    MemoryHistory,
    find_growth,
)
from balancedstream.core.memory.use import MemoryLimits
from balancedstream.core.samples import BatchSample, ProcessSample, StoreSample, TaskSample

NO_LIMITS = MemoryLimits()
EXECUTORS = {"a": 2, "b": 2}


def finish(
    number: int,
    memory: dict[str, int],
    *,
    query: str = "q",
    gets: int = 10_000,
    get_s: float = 0.1,
    misses: int = 0,
    processes: tuple[ProcessSample, ...] = (),
) -> FinishedReads:
    """A batch a minute; each executor reads alike."""
    sample = BatchSample(query, number, 60.0 * number, 10.0, 100)
    stores = [
        StoreSample(query, 0, number, e, size, gets=gets, get_s=get_s, misses=misses)
        for e, size in memory.items()
    ]
    tasks = [
        TaskSample(query, 0, p, number, e, 1.0, 5, 2 * size, 60.0 * number)
        for p, (e, size) in enumerate(memory.items())
    ]
    return FinishedReads(sample, tasks, stores, processes, EXECUTORS)


def test_an_executor_has_what_the_last_batches_of_all_queries_left_on_it() -> None:
    history = MemoryHistory().after(finish(1, {"a": 100, "b": 50}))
    history = history.after(finish(1, {"a": 7}, query="other"))
    # Its partition moves from a to b.
    history = history.after(finish(2, {"b": 160}))
    process = ProcessSample("b", 30, 20, 10, 900)
    history = history.after(finish(2, {"a": 8}, query="other", processes=(process,)))
    a, b = history.measure(EXECUTORS, NO_LIMITS).executors
    assert (a.rocksdb_bytes, a.state_bytes, a.used_bytes) == (8, 16, 8)
    assert (b.rocksdb_bytes, b.state_bytes, b.used_bytes, b.other_bytes) == (160, 320, 900, 740)
    (a,) = history.end_query("q").measure(["a"], NO_LIMITS).executors
    assert a.rocksdb_bytes == 8


def test_a_heartbeat_that_could_not_measure_processes_leaves_what_is_known_of_them() -> None:
    measured, ended = ProcessSample("a", 30, 20, 10, 900), ProcessSample("a", 40, 20)
    history = MemoryHistory()
    # The first one may be without, too.
    for number, heard in enumerate((ended, measured, ended)):
        history = history.after(finish(number, {"a": 5}, processes=(heard,)))
    (a,) = history.measure(["a"], NO_LIMITS).executors
    assert (a.heap_bytes, a.python_bytes, a.used_bytes) == (40, 10, 900)
    # Another executor with that name would start anew.
    history = history.after(replace(finish(4, {"b": 5}), executors={"b": 2}))
    history = history.after(finish(5, {"a": 5}, processes=(ended,)))
    (a,) = history.measure(["a"], NO_LIMITS).executors
    assert (a.python_bytes, a.used_bytes) == (0, 65)


def test_what_all_stores_of_an_executor_share_is_counted_once() -> None:
    history = MemoryHistory().after(finish(1, {"a": 900}))
    (a,) = history.measure(["a"], MemoryLimits(rocksdb_bytes=500.0)).executors
    assert a.rocksdb_bytes == 500


def test_reads_are_compared_with_the_least_that_they_took() -> None:
    history = MemoryHistory()
    for number in range(10):
        history = history.after(finish(number, {"a": 1, "b": 1}))
    (reads,) = history.measure(EXECUTORS, NO_LIMITS).reads
    assert (reads.get_s, reads.least_s) == pytest.approx((1e-5, 1e-5))
    assert reads.delay_s == pytest.approx(0.0)
    for number in range(10, 15):
        history = history.after(finish(number, {"a": 1, "b": 1}, get_s=0.7, misses=15_000))
    (reads,) = history.measure(EXECUTORS, NO_LIMITS).reads
    assert (reads.get_s, reads.least_s) == pytest.approx((7e-5, 1e-5))
    assert reads.misses == pytest.approx(1.5)
    # 2 x 0.6 s more on 4 cores.
    assert reads.delay_s == pytest.approx(0.3)


def test_few_reads_do_not_tell_what_one_takes() -> None:
    history = MemoryHistory()
    for number in range(6):
        history = history.after(finish(number, {"a": 1}, gets=100))
    assert history.measure(["a"], NO_LIMITS).reads == ()


def test_memory_that_fills_up_and_stays_does_not_grow() -> None:
    full = [(60.0 * n, min(1e9, 4e7 * n)) for n in range(120)]
    assert find_growth(full) == pytest.approx(0.0, abs=1.0)
    grows = [(60.0 * n, 1e8 + 6e5 * n) for n in range(120)]
    assert find_growth(grows) == pytest.approx(1e4)
    assert find_growth(grows[:20]) is None
    assert find_growth([(t, 2e9 - v) for t, v in grows]) == 0.0


def test_growth_is_that_of_the_last_hours_whatever_was_before() -> None:
    history, minutes = MemoryHistory(), int(2 * LOOK_BACK_S / 60)
    for number in range(minutes):
        size = max(0, number - minutes // 3) * 6_000
        history = history.after(finish(number, {"a": size}))
    assert history.measure(["a"], NO_LIMITS).growth == pytest.approx(100.0, rel=0.01)
    assert history.points[0][0] >= history.points[-1][0] - LOOK_BACK_S
    # What is left of the memory grows in another way.
    assert history.end_query("q").measure(["a"], NO_LIMITS).growth is None
