"""What each executor may take of memory, by Spark's settings."""

from __future__ import annotations

from collections.abc import Mapping

from balancedstream.core.memory.use import MemoryLimits
from balancedstream.core.sizing import parse_mib

BOUNDED = "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage"
BOUND_MB = "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB"

_MIB = 1024.0**2
_DEFAULT_BOUND_MB = "500"
_MIN_OVERHEAD = "384m"
_FACTORS = ("spark.executor.memoryOverheadFactor", "spark.kubernetes.memoryOverheadFactor")
_KILLS = ("k8s://", "yarn")
"""Cluster managers that end an executor which takes more than its share."""


def find_memory_limits(settings: Mapping[str, str]) -> MemoryLimits:
    """The limits of an executor, as `ResourceProfile` and the cluster manager reckon them.

    Args:
        settings: of the application, `spark.master` included.

    >>> find_memory_limits({"spark.master": "yarn"}).executor_bytes / 2**20
    1408.0
    >>> find_memory_limits({"spark.master": "local[2]"}).executor_bytes
    0.0
    """
    try:
        heap_mib = parse_mib(settings.get("spark.executor.memory", "1g"))
        bound_mib = float(settings.get(BOUND_MB, _DEFAULT_BOUND_MB))
        limit_mib = heap_mib + _count_beside_mib(settings, heap_mib)
    except ValueError:
        # Spark refuses what it cannot read; what it takes in another form has no limit here.
        return MemoryLimits()
    return MemoryLimits(
        limit_mib * _MIB if settings.get("spark.master", "").startswith(_KILLS) else 0.0,
        heap_mib * _MIB,
        bound_mib * _MIB if _is_true(settings.get(BOUNDED)) else 0.0,
    )


def _count_beside_mib(settings: Mapping[str, str], heap_mib: int) -> float:
    """MiB beside the heap."""
    factor = next((settings[key] for key in _FACTORS if key in settings), "0.1")
    least_mib = parse_mib(settings.get("spark.executor.minMemoryOverhead", _MIN_OVERHEAD))
    given = settings.get("spark.executor.memoryOverhead")
    overhead_mib = parse_mib(given) if given else max(int(float(factor) * heap_mib), least_mib)
    python_mib = parse_mib(settings.get("spark.executor.pyspark.memory", "0"))
    size = settings.get("spark.memory.offHeap.size", "0").strip()
    # Spark reads this size in bytes if it has no unit.
    size = f"{size}b" if size.isdecimal() else size
    off_heap = _is_true(settings.get("spark.memory.offHeap.enabled"))
    return overhead_mib + python_mib + (parse_mib(size) if off_heap else 0)


def _is_true(value: str | None) -> bool:
    return (value or "").strip().lower() == "true"
