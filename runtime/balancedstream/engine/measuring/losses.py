"""Why an executor was lost, from what Spark says of its end."""

from __future__ import annotations

import re

from balancedstream.core.samples import LossCause

_EXIT_CODE = re.compile(r"(?:code|status):? (\d+)", re.IGNORECASE)

_HEAP_FULL = 52
"""With it a JVM of Spark ends itself after an OutOfMemoryError (`SparkExitCode.OOM`)."""

_WANTED = (
    "decommission",
    "killed by driver",
    "deleted by a user or the framework",
    "imminent node shutdown",
)
"""Somebody let it go: Spark, a drain of its node, or whoever deleted its pod."""

_OVER_LIMIT = ("OOMKilled", "memory limits")
"""Of Kubernetes, and of YARN ("exceeding physical memory limits")."""


def find_loss(reason: str) -> LossCause | None:
    """What an executor was lost by; None if somebody wanted it to go.

    Args:
        reason: of `SparkListenerExecutorRemoved`, as `ExecutorPodsLifecycleManager` and
            `TaskSchedulerImpl` word it.

    >>> find_loss("The executor with id 3 exited with exit code 52.")
    'heap'
    >>> find_loss("Executor heartbeat timed out after 130000 ms")
    'silence'
    """
    lowered = reason.lower()
    if any(words in lowered for words in _WANTED):
        return None
    if any(words in reason for words in _OVER_LIMIT):
        return "memory"
    code = _EXIT_CODE.search(reason)
    # A node that lacks something evicts pods, with any code.
    if code is None or "brief reason: Evicted" in reason:
        return "silence"
    return "heap" if int(code[1]) == _HEAP_FULL else "exit"
