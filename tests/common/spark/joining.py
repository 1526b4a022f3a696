"""Waits until the engine knows every executor."""

from __future__ import annotations

import time
from typing import Any

from patience import PATIENCE_S

from balancedstream.engine.engine import SparkEngine


def list_executors(context: Any) -> set[str]:
    """The ids of the executors that Spark gives tasks to; `context` is Java's `SparkContext`."""
    ids = context.getExecutorIds()
    return {ids.apply(i) for i in range(ids.size())}


def await_executors(engine: SparkEngine, count: int) -> None:
    """Reads events until the engine knows so many executors, and none besides Spark's."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        known, live = engine.executors().keys(), list_executors(engine._context)
        if len(known) == count and known == live:
            return
        assert time.monotonic() < deadline_s, f"Spark has {live}, the engine knows {set(known)}"
        engine.wait(1.0)
