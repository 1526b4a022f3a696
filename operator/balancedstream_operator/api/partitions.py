"""Chooses the number of state partitions of a new stream: pure."""

from __future__ import annotations

from balancedstream.core.sizing import PARTITIONS_PER_EXECUTOR
from balancedstream_operator.api.spec import MAX_PARTITIONS, StreamSpec

PARTITION_CHOICES = (24, 48, 96, 120, 240, 480, 960)
"""Numbers with many divisors, so that many numbers of executors share the partitions evenly."""


def choose_partitions(spec: StreamSpec) -> int:
    """The number of state partitions for a new stream; 0 if the target application chooses it.

    >>> from balancedstream_operator.api.job import Executors
    >>> spec = StreamSpec(Executors(max=4))
    >>> choose_partitions(spec)
    48
    """
    if spec.target_ref:
        return 0
    if spec.partitions is not None:
        return spec.partitions
    least = PARTITIONS_PER_EXECUTOR * spec.executors.max * spec.executors.cores
    return next((n for n in PARTITION_CHOICES if n >= least), min(least, MAX_PARTITIONS))
