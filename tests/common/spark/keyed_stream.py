"""A balanced query without Spark, whose batches are made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyspark.sql.types import DataType, StringType, StructField, StructType
from scripted import RecordingSpectator

from balancedstream.core.keys.epochs import Epoch, Wish
from balancedstream.core.keys.hotkeys import HotKeySketch
from balancedstream.core.samples import BatchSample
from balancedstream.core.wire.plan import KeyPlacement, Plan
from balancedstream.engine.events import BatchFinished, StatefulOperator
from balancedstream.keyed.control import KeyControl
from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.mailbox import Mailbox
from balancedstream.keyed.storage import Home, Operator, describe_offset
from balancedstream.loop.reassigning import KeyReassigner
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo

PARTITIONS = 6
SHARE = 7
OPERATOR = StatefulOperator((0,), "TransformWithStateInPySpark", PARTITIONS)
DE, FR = '"de"', '"fr"'


class Stream:
    """One balanced query whose batches are made by hand."""

    def __init__(self, folder: Path, *key_types: DataType) -> None:
        self.folder = folder
        self.view = RecordingSpectator()
        self.history = History(RunInfo("test", 0.0, 2, "4.3.0", "3.11"))
        self.exporter = Exporter()
        self.reassigner = KeyReassigner(
            Journal(self.history, self.view, self.exporter, lambda: 0.0)
        )
        context: Any = SimpleNamespace(accumulator=lambda value, param: None)
        types = key_types or (StringType(),)
        fields = [StructField(f"k{at}", of_type) for at, of_type in enumerate(types)]
        encoding = KeyEncoding(StructType(fields))
        self.control = KeyControl(context, Operator(), encoding)
        self.batch = -1
        self.run_id = "r"

    def settling(self) -> set[str]:
        return set(self.reassigner.state().settling)

    def run_batch(self, epoch: Epoch, hot: Mapping[str, tuple[int, float]] | None = None) -> None:
        """A batch with this epoch; hot keys are in a partition for so many seconds."""
        self.batch += 1
        table = Home(str(self.folder), Operator()).write_epoch(epoch)
        offset = json.dumps(describe_offset("keys", table, epoch.number))
        (self.folder / "offsets").mkdir(exist_ok=True)
        (self.folder / "offsets" / str(self.batch)).write_text(f"v1\n{{}}\n{offset}\n")
        for partition in range(PARTITIONS):
            sketch = HotKeySketch(0.01)
            for key, (place, busy_s) in (hot or {}).items():
                if place == partition:
                    sketch.update(key.encode(), busy_s)
            report = {
                "query": "q", "run": self.run_id, "checkpoint": str(self.folder),
                "batch": self.batch, "partition": partition, "attempt": partition,
                "keys": sketch.to_json(),
                "handoffs": 2, "handoff_s": 0.5,
            }  # fmt: skip
            self.control._take(report)
        sample = BatchSample("q", self.batch, 0.0, 1.0, 1)
        event = BatchFinished("q", sample, (), (OPERATOR,), 0, run_id=self.run_id)
        self.reassigner.finish_batch(event)

    def plan(self, *routes: tuple[str, int], effective_batch: int | None = None) -> None:
        named = tuple(KeyPlacement("q", *route) for route in routes)
        plan = Plan(1, (), {}, key_placements=named, effective_batch=effective_batch)
        self.reassigner.check(plan)
        self.reassigner.apply(plan, SHARE, {"q": "two hot keys"})

    def wish(self) -> Wish | None:
        return Mailbox(self.control.folder).read_wish()

    def route(self, key: str, partition: int) -> int:
        return self.control.encoding.find_route(key, partition, PARTITIONS)
