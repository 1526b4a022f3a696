"""Reports executors that failed, and what helps: pure."""

from __future__ import annotations

from collections.abc import Mapping

from balancedstream.core.samples import LossCause
from balancedstream_operator.api.conditions import EXECUTORS_LOST, Condition
from balancedstream_operator.observe.measurement import Measurement

_MANY = 2
"""One executor may be lost with its node; none should ever lack memory."""

_WORDS: Mapping[LossCause, tuple[str, str, int]] = {
    "memory": (
        "OutOfMemory",
        "killed, because its container used more memory than it may: raise "
        "executors.memoryOverhead, where Python and RocksDB have theirs",
        1,
    ),
    "heap": ("HeapFull", "ended by an OutOfMemoryError: raise executors.memory", 1),
    "exit": ("ExecutorsExit", "ended by themselves: the driver's log says how", _MANY),
    "silence": (
        "ExecutorsSilent",
        "silent: see their nodes, and the network",
        _MANY,
    ),
}
"""For each cause: reason, meaning with advice, and the least number of losses to report."""


def judge_losses(measurement: Measurement) -> Condition:
    """Whether executors were lost lately, and why."""
    if not measurement.losses:
        message = "the driver's release does not count lost executors"
        return Condition(EXECUTORS_LOST, None, "NotMeasured", message)
    found = [
        (reason, f"{measurement.losses[cause]} {words}")
        for cause, (reason, words, least) in _WORDS.items()
        if measurement.losses.get(cause, 0) >= least
    ]
    if not found:
        message = "no executor was lost lately"
        return Condition(EXECUTORS_LOST, False, "NoneLost", message)
    lost = "; ".join(words for _, words in found)
    message = f"executors that were lost in the last minutes: {lost}. Their tasks run again"
    return Condition(EXECUTORS_LOST, True, found[0][0], message)
