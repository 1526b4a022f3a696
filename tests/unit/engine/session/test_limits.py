"""What each executor may take of memory, by Spark's settings."""

from __future__ import annotations

import pytest

from balancedstream.core.memory.use import MemoryLimits
from balancedstream.engine.session.limits import BOUND_MB, BOUNDED, find_memory_limits

KUBERNETES = {"spark.master": "k8s://https://10.0.0.1"}
MIB = 1 << 20


@pytest.mark.parametrize(
    ("settings", "limit_mib"),
    [
        ({}, 1024 + 384),
        ({"spark.executor.memory": "8g"}, 8192 + 819),
        ({"spark.executor.memory": "8g", "spark.kubernetes.memoryOverheadFactor": "0.4"}, 11468),
        ({"spark.executor.memoryOverhead": "512"}, 1536),
        ({"spark.executor.memoryOverhead": "1g", "spark.executor.pyspark.memory": "256m"}, 2304),
        ({"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "1048576"}, 1409),
        ({"spark.memory.offHeap.size": "1g"}, 1408),
    ],
)
def test_a_pod_may_take_heap_overhead_python_and_off_heap(
    settings: dict[str, str], limit_mib: int
) -> None:
    limits = find_memory_limits({**KUBERNETES, **settings})
    assert limits.executor_bytes == limit_mib * MIB


def test_only_a_bound_that_is_on_bounds_rocksdb() -> None:
    assert find_memory_limits({BOUNDED: "true", BOUND_MB: "64"}).rocksdb_bytes == 64 * MIB
    assert find_memory_limits({BOUNDED: "true"}).rocksdb_bytes == 500 * MIB
    assert find_memory_limits({BOUND_MB: "64"}).rocksdb_bytes == 0


def test_where_nothing_kills_an_executor_nothing_limits_it_but_its_heap() -> None:
    limits = find_memory_limits({"spark.master": "spark://h:7077", "spark.executor.memory": "2g"})
    assert limits == MemoryLimits(heap_bytes=2048 * MIB)


def test_a_size_that_nobody_can_read_is_no_limit() -> None:
    assert find_memory_limits({**KUBERNETES, "spark.executor.memory": "much"}) == MemoryLimits()
