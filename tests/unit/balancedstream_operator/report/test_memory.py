"""The condition that memory is tight, before an executor is killed."""

from __future__ import annotations

import pytest

from balancedstream.core.memory.fitting import find_tightness
from balancedstream.core.memory.use import GIB, ExecutorMemory, Memory, MemoryLimits, StateReads
from balancedstream_operator.api.conditions import MEMORY_TIGHT, Condition
from balancedstream_operator.report.memory import judge_memory

LIMITS = MemoryLimits(1.5 * GIB, 1.0 * GIB)
FULL = Memory((ExecutorMemory("1", 0.9 * GIB, rocksdb_bytes=0.5 * GIB),), LIMITS)
GROWS = Memory(
    (ExecutorMemory("1", 0.5 * GIB, rocksdb_bytes=0.5 * GIB),), LIMITS, growth=GIB / 72_000
)
READS = Memory(FULL.executors, MemoryLimits(), (StateReads("q", 0, 7e-5, 1e-5, 1.5, 4.0, 14.0),))


def judge(memory: Memory, *, owns_pods: bool = True) -> Condition:
    return judge_memory(memory, find_tightness(memory), owns_pods=owns_pods)


@pytest.mark.parametrize(
    ("memory", "reason"), [(FULL, "NearLimit"), (GROWS, "Growing"), (READS, "SlowReads")]
)
def test_each_cause_has_its_reason_its_numbers_and_a_remedy(memory: Memory, reason: str) -> None:
    condition = judge(memory)
    assert (condition.holds, condition.reason) == (True, reason)
    assert MEMORY_TIGHT.find_remedy("True", reason)
    assert "stateStore.rocksdb.maxMemoryUsageMB=" in condition.message


def test_the_sizes_are_those_of_the_spec_or_of_the_application_of_others() -> None:
    assert "spec.executors.memoryOverhead: " in judge(FULL).message
    assert "spark.executor.memoryOverhead=" in judge(FULL, owns_pods=False).message


def test_state_that_fits_and_memory_that_nobody_measured_are_not_the_same() -> None:
    fits = Memory((ExecutorMemory("1", 0.2 * GIB),), LIMITS)
    assert (judge(fits).state, judge(fits).reason) == ("False", "Fits")
    assert (judge(Memory()).state, judge(Memory()).reason) == ("Unknown", "NotMeasured")
