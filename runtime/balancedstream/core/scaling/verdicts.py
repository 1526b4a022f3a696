"""What the load of a stream shows about its executors."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What the load shows; status and logs show the values of the members."""

    STEADY = "steady"
    """Nothing is wrong, or too little to act on."""

    CAPACITY = "capacity"
    """All executors are hot: more executors help."""

    SURPLUS = "surplus"
    """Fewer executors are enough."""

    SKEW = "skew"
    """One executor is hot: balancing helps, more executors do not."""

    UNSPLITTABLE = "unsplittable"
    """One partition alone fills an executor: neither helps."""

    SOURCE_BOUND = "source-bound"
    """The source has too few splits, or a long one, or gives too few rows: neither helps."""

    PARTITION_BOUND = "partition-bound"
    """There are fewer state or shuffle partitions than cores: neither helps."""

    DRIVER_BOUND = "driver-bound"
    """Most of a batch is no task: neither helps."""

    SLOTS = "slots"
    """A query in Real-Time Mode needs more slots at once than there are: executors help."""
    MEMORY_BOUND = "memory-bound"
    """The state is about to have no room, or reads miss the cache: memory helps, cores do not."""

    HOLD = "hold"
    """Too little is known to change anything, or the last change is too recent."""


LIMITS = frozenset(
    {
        Verdict.UNSPLITTABLE,
        Verdict.SOURCE_BOUND,
        Verdict.PARTITION_BOUND,
        Verdict.DRIVER_BOUND,
        Verdict.SLOTS,
        Verdict.MEMORY_BOUND,
    }
)
"""The verdicts that name something which a person has to change, if executors that the policy
allows do not."""
