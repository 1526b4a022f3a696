"""Reports memory that is too small for the state, before an executor is killed: pure."""

from __future__ import annotations

from collections.abc import Mapping

from balancedstream.core.memory.fitting import Kind, Tightness
from balancedstream.core.memory.use import Memory
from balancedstream_operator.api.conditions import MEMORY_TIGHT, Condition

_REASONS: Mapping[Kind, str] = {"near": "NearLimit", "growing": "Growing", "reads": "SlowReads"}


def judge_memory(memory: Memory, tight: Tightness | None, *, owns_pods: bool) -> Condition:
    """Whether memory is tight, and the sizes that would do.

    Args:
        memory: of the executors.
        tight: as `find_tightness` returns it.
        owns_pods: whether the spec sets the executors' sizes, and not another operator's.
    """
    if not memory.executors:
        message = "the driver tells nothing of memory: no batch with state has ended since it began"
        return Condition(MEMORY_TIGHT, None, "NotMeasured", message)
    if tight is None:
        message = "the state fits into the executors' memory"
        return Condition(MEMORY_TIGHT, False, "Fits", message)
    message = f"{tight.said}. These sizes hold it: {tight.advise(as_spec=owns_pods)}"
    return Condition(MEMORY_TIGHT, True, _REASONS[tight.kind], message)
