"""Garbage collection in the Python workers in which Spark runs one task after the other."""

from __future__ import annotations

import gc
from typing import Final

from pyspark import TaskContext

FREEZING_TASKS: Final = frozenset({1, 2, 4, 8, 16, 32, 64})
"""Tasks after which a worker freezes the remaining objects: several times, because the first task
does not load everything, and rarely, because frozen objects in a cycle are never freed."""

_ended: list[int] = []
"""Number of tasks that ended in this worker since the first call; empty before."""


def spare_loaded_modules() -> None:
    """Keeps loaded modules out of a worker's garbage collections; called within a task.

    In PySpark's daemon (`pyspark.daemon.manager`) a worker collects garbage after each task, and
    the next task waits. A full collection visits every object that could be in a cycle. About
    70,000 of them belong to pyarrow, pandas and pyspark and are never garbage. They are frozen at
    the end of such a collection, when nothing is left of any task.
    """
    if not _ended and TaskContext.get() is not None:
        _ended.append(0)
        gc.callbacks.append(_freeze_between_tasks)


def _freeze_between_tasks(phase: str, info: dict[str, int]) -> None:
    """Python calls this at the start and end of each collection."""
    is_full = phase == "stop" and info["generation"] == 2
    if not is_full or TaskContext.get() is not None:
        return
    _ended[0] += 1
    if _ended[0] in FREEZING_TASKS:
        gc.freeze()
