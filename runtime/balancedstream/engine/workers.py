"""The Python processes in which Spark runs functions, one task after the other."""

from __future__ import annotations

import gc
from typing import Final

from pyspark import TaskContext

FREEZING_TASKS: Final = frozenset({2, 4, 8, 16, 32, 64})
"""At the beginning of these tasks a worker freezes what it holds: so few, because frozen objects
that become garbage in a cycle are never freed."""


def begin_task() -> None:
    """Keeps what a worker has loaded out of its garbage collections.

    PySpark's daemon (`pyspark.daemon.manager`) has a worker collect garbage after each task, and
    the next one waits. A full collection goes over every object that could be in a cycle. Those of
    pyarrow, pandas and pyspark alone take it 25 ms, and are never garbage.

    When a task begins the worker has just collected, so what is frozen is in use. It is still freed
    by its count of references. Nothing happens outside of tasks, and when a task calls again.
    """
    context = TaskContext.get()
    if context is None or len(_begun) == max(FREEZING_TASKS):
        return
    attempt = context.taskAttemptId()
    if attempt in _begun:
        return
    _begun.add(attempt)
    if len(_begun) in FREEZING_TASKS:
        gc.freeze()


_begun: set[int] = set()
