"""What the tests of moves share whose state is loaded ahead, by an engine without a controller."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished

Start = Callable[..., StreamingQuery]
Batches = Callable[[str], BatchFinished]
Place = tuple[int, int]
"""An operator and one of its partitions."""

MAX_BATCHES = 40


def others(engine: SparkEngine, seen: BatchFinished) -> dict[Place, str]:
    """Another executor for each partition of each operator."""
    live = sorted(engine.executors())
    return {
        (t.operator, t.partition): live[(live.index(t.executor) + 1) % len(live)]
        for t in seen.tasks
    }


def move(engine: SparkEngine, query: str, targets: dict[Place, str]) -> None:
    for operator in {operator for operator, _ in targets}:
        of_operator = {p: e for (o, p), e in targets.items() if o == operator}
        engine.prepare(query, operator, of_operator)
        engine.place(query, operator, of_operator)


def find_files(state: Path, last_version: int) -> list[Path]:
    """All of the state that was there at a version, beside what says how it is laid out."""
    files = [file for file in state.glob("[0-9]*/*") if file.name[0].isdigit()]
    return [file for file in files if int(re.split(r"[._]", file.name)[0]) <= last_version]
