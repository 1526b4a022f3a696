"""Whether the state fits into the executors' memory, and the sizes that hold it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.core.memory.fitting import (
    FULL,
    describe_share,
    find_floor,
    find_hours_left,
    find_room,
    find_tightness,
)
from balancedstream.core.memory.use import (
    GIB,
    ExecutorMemory,
    Memory,
    MemoryLimits,
    StateReads,
)

MIB = GIB / 1024
SIZES = st.floats(0.0, 64.0 * GIB)
LIMITS = MemoryLimits(executor_bytes=1.5 * GIB, heap_bytes=1.0 * GIB)
SLOW = StateReads("q", 0, 72e-6, 12e-6, misses=1.5, delay_s=4.0, batch_s=14.0)


def use(executor: str = "1", rocksdb: float = 0.3, other: float = 0.5) -> ExecutorMemory:
    """An executor, in GiB."""
    rocksdb, other = rocksdb * GIB, other * GIB
    return ExecutorMemory(
        executor, heap_bytes=other, rocksdb_bytes=rocksdb, resident_bytes=rocksdb + other
    )


@st.composite
def memories(draw: st.DrawFn) -> Memory:
    """Anything that may be measured."""
    executors = tuple(
        ExecutorMemory(str(n), *draw(st.tuples(*[SIZES] * 6)))
        for n in range(draw(st.integers(1, 6)))
    )
    limits = MemoryLimits(*(draw(st.just(0.0) | SIZES) for _ in range(3)))
    reads = (SLOW,) if draw(st.booleans()) else ()
    return Memory(executors, limits, reads, draw(st.none() | st.floats(0.0, 1e7)))


@given(memories())
def test_what_is_advised_is_never_less_than_what_is_used(memory: Memory) -> None:
    found = find_tightness(memory)
    if found is None:
        return
    advice = found.advice
    assert advice.rocksdb_bytes >= max(e.rocksdb_bytes for e in memory.executors)
    if memory.limits.executor_bytes:
        size = advice.heap_bytes + advice.overhead_bytes
        assert size >= memory.limits.executor_bytes
        if found.kind != "reads":
            assert size >= max(e.used_bytes for e in memory.executors)
        # What is pasted is rounded up, and never down.
        assert f"memoryOverhead={-int(-advice.overhead_bytes // 1024**2)}m" in advice.write()


@given(memories())
def test_no_fewer_executors_than_the_floor_hold_the_state_within_the_limit(memory: Memory) -> None:
    floor, room = find_floor(memory), find_room(memory)
    if not floor:
        return
    assert room is not None
    if room < 64 * MIB:
        assert floor == len(memory.executors)
        return
    assert memory.rocksdb_bytes / floor <= room * (1 + 1e-6)
    if floor > 1:
        assert memory.rocksdb_bytes / (floor - 1) >= room * (1 - 1e-6)


def test_an_executor_near_its_limit_is_told_with_what_each_part_takes() -> None:
    full = ExecutorMemory("7", 0.6 * GIB, 0.15 * GIB, 0.25 * GIB, 0.35 * GIB, 1.4 * GIB)
    found = find_tightness(Memory((use(), full), LIMITS))
    assert found is not None
    assert (found.kind, found.of_state) == ("near", True)
    assert found.said == (
        "executor 7 takes 1.40 of 1.50 GiB (heap 0.60, RocksDB 0.35, Python 0.25, "
        "other of the JVM 0.15, the rest 0.05)"
    )


def test_growth_is_told_hours_before_the_limit_and_not_before_a_day() -> None:
    # 0.55 GiB are free on each of two executors.
    for hours, kind in ((20.0, "growing"), (30.0, None)):
        growth = 2 * 0.7 * GIB / (hours * 3600)
        memory = Memory((use("1"), use("2")), LIMITS, growth=growth)
        found = find_tightness(memory)
        assert find_hours_left(memory) == pytest.approx(hours)
        assert (found.kind if found else None) == kind
        if found:
            assert "the limit is reached in 20.0 hours" in found.said


def test_where_rocksdb_is_bounded_below_the_limit_growth_reaches_no_limit() -> None:
    bounded = replace(LIMITS, rocksdb_bytes=0.4 * GIB)
    assert find_tightness(Memory((use(),), bounded, growth=1e6)) is None


def test_slow_reads_are_told_only_if_the_cache_is_what_makes_batches_longer() -> None:
    executors = (replace(use(), state_bytes=0.6 * GIB),)
    found = find_tightness(Memory(executors, MemoryLimits(), (SLOW,)))
    assert found is not None
    assert "reads of query q miss the cache 1.5 times each and take 72 µs, 6.0 x" in found.said
    assert "batches are 4.0 s longer" in found.said
    # Its state fits into what the advice leaves for blocks, and nothing says of what limits a pod.
    assert found.advice.rocksdb_bytes * 0.75 >= 0.6 * GIB
    assert "memoryOverhead" not in found.advise()
    for quick in (
        replace(SLOW, get_s=20e-6),
        replace(SLOW, misses=0.2),
        replace(SLOW, delay_s=0.5),
        replace(SLOW, least_s=0.0),
    ):
        assert find_tightness(Memory(executors, MemoryLimits(), (quick,))) is None


def test_more_executors_are_named_where_they_take_less_memory_than_more_for_each() -> None:
    many = [use(str(n), rocksdb=0.43, other=0.93) for n in range(20)]
    found = find_tightness(Memory(tuple(many), LIMITS))
    assert found is not None
    said = "or 1 more executor holds it with 1.5 GiB more in all, instead of 2.5"
    assert found.advise().endswith(said)
    # For one executor, another one is always dearer than a little more memory.
    alone = find_tightness(Memory(tuple(many[:1]), LIMITS))
    assert alone is not None
    assert alone.instead == ""


def test_state_that_is_on_few_executors_needs_no_more_memory_but_a_spread() -> None:
    uneven = (use("1", rocksdb=0.6, other=0.8), use("2", rocksdb=0.1, other=0.8))
    found = find_tightness(Memory(uneven, LIMITS))
    assert found is not None
    assert found.instead.startswith("the 2 executors hold it as they are")


def test_nothing_is_tight_where_nothing_was_measured_or_nothing_limits_it() -> None:
    assert find_tightness(Memory()) is None
    assert find_tightness(Memory((use(rocksdb=50.0),))) is None
    assert (find_floor(Memory()), find_floor(Memory((use(),)))) == (0, 0)


def test_the_share_of_the_state_is_said_beside_the_room_for_it() -> None:
    memory = Memory((use("1", 0.6), use("2", 0.4)), LIMITS)
    assert find_room(memory) == pytest.approx((FULL * 1.5 - 0.5) * GIB)
    assert describe_share(memory, 1) == "state would take 1.00 of 0.85 GiB"
    assert find_floor(memory) == 2


def test_the_advice_names_the_fields_of_a_spec_or_the_settings_of_spark() -> None:
    found = find_tightness(Memory((use(other=1.1),), LIMITS))
    assert found is not None
    said = found.advise(as_spec=True)
    assert "spec.executors.memoryOverhead: " in said
    assert "spark.executor.memory" not in said
    assert "spark.executor.memoryOverhead=" in found.advise()
    for text in (said, found.advise()):
        assert "stateStore.rocksdb.boundedMemoryUsage=true" in text
