"""The Python processes in which Spark runs functions, one task after the other."""

from __future__ import annotations

import gc
from typing import Final

from pyspark import TaskContext

FREEZING_TASKS: Final = frozenset({1, 2, 4, 8, 16, 32, 64})
"""Tasks of a worker after which it freezes what is left: again and again, for not all is loaded in
the first one, and seldom, for what is frozen and becomes garbage in a cycle is never freed."""

_ended: list[int] = []
"""How many tasks this worker has ended since it is watched; empty before."""


def spare_loaded_modules() -> None:
    """Keeps what a worker has loaded out of its garbage collections; called within a task.

    PySpark's daemon (`pyspark.daemon.manager`) has a worker collect garbage after each task, and
    its next one waits. A full collection goes over every object that could be in a cycle; those of
    pyarrow, pandas and pyspark alone are some 70,000, and never garbage. So they are frozen at the
    end of such a collection, when no task and nothing of one is left.
    """
    if not _ended and TaskContext.get() is not None:
        _ended.append(0)
        gc.callbacks.append(_freeze_between_tasks)


def _freeze_between_tasks(phase: str, info: dict[str, int]) -> None:
    """What Python calls at the beginning and end of each collection."""
    is_full = phase == "stop" and info["generation"] == 2
    if not is_full or TaskContext.get() is not None:
        return
    _ended[0] += 1
    if _ended[0] in FREEZING_TASKS:
        gc.freeze()
