"""The stages of the batches that run, as an event log tells of them.

As `BatchStages.java` reads them from Spark's listeners.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from balancedstream.engine.measuring.stages import StageRow
from balancedstream.estimate.plans import BatchId

_NEVER_MS = 1 << 62


@dataclass(slots=True)
class Stage:
    """A stage that runs, or ran in a batch that runs; times in milliseconds.

    Attributes:
        batch: that it is of; None as long as nobody knows.
        job: that began it.
        tasks: how many it has.
        partitions: of its last RDD; a job may run only some of them.
        merged_into: the fewest partitions that a `coalesce` leaves; infinite without one.
        reads_shuffle: whether other stages come before it.
        stateful: whether a task of it ran a state partition.
    """

    batch: BatchId | None
    job: int
    tasks: int
    partitions: int
    merged_into: float
    reads_shuffle: bool
    stateful: bool = False
    longest_ms: int = 0
    first_ms: int = _NEVER_MS
    last_ms: int = 0
    busy_ms: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add_task(self, event: Mapping[str, Any]) -> int:
        """Adds a task that ended well; returns its run time in milliseconds."""
        info, metrics = event["Task Info"], event["Task Metrics"]
        busy_ms: int = metrics["Executor Run Time"] + metrics["Executor Deserialize Time"]
        self.busy_ms[info["Executor ID"]] += busy_ms
        self.longest_ms = max(self.longest_ms, busy_ms)
        self.first_ms = min(self.first_ms, info["Launch Time"])
        self.last_ms = max(self.last_ms, info["Finish Time"])
        return busy_ms

    def to_row(self) -> StageRow:
        """As the engine sums stages up."""
        kind = "stateful" if self.stateful else "sink" if self.reads_shuffle else "source"
        return StageRow(
            kind,  # type: ignore[arg-type]  # mypy takes the choice for any text
            self.tasks,
            self.longest_ms,
            self.first_ms,
            self.last_ms,
            self.busy_ms,
        )


@dataclass(slots=True)
class Stages:
    """The stages of the batches that run."""

    _by_id: dict[int, Stage] = field(default_factory=dict)
    _begun: dict[str, int] = field(default_factory=dict)

    def begin(self, batch: BatchId) -> None:
        """A batch runs, maybe without a job yet."""
        self._begun[batch.run_id] = batch.number

    def start_job(self, event: Mapping[str, Any], batch: BatchId | None) -> None:
        """Notes the stages of a job; one that does not say its batch may be of any that runs."""
        if batch is None and not self._begun:
            return
        for info in event["Stage Infos"]:
            known = self._by_id.get(info["Stage ID"])
            # One whose output several jobs read is in each of them.
            if known is not None and (batch is None or _is_same_run(known.batch, batch)):
                continue
            rdds = info["RDD Info"]
            merged = [r["Number of Partitions"] for r in rdds if r["Name"] == "CoalescedRDD"]
            self._by_id[info["Stage ID"]] = Stage(
                batch,
                event["Job ID"],
                info["Number of Tasks"],
                rdds[0]["Number of Partitions"],
                min(merged, default=math.inf),
                bool(info["Parent IDs"]),
            )

    def submit(self, info: Mapping[str, Any]) -> None:
        """From here on the tasks of a stage wait for a core: that is no time of the driver's."""
        stage = self._by_id.get(info["Stage ID"])
        if stage is not None and "Submission Time" in info:
            stage.first_ms = min(stage.first_ms, info["Submission Time"])

    def find(self, stage: int) -> Stage | None:
        """The stage with this id; None if it belongs to no batch that runs."""
        return self._by_id.get(stage)

    def claim(self, stage: Stage, batch: BatchId) -> None:
        """The job of a stage is one of this batch."""
        for other in self._by_id.values():
            if other.batch is None and other.job == stage.job:
                other.batch = batch

    def end_job(self, job: int) -> None:
        """A job ended; it is of no batch if none of its tasks has said so."""
        gone = [i for i, s in self._by_id.items() if s.batch is None and s.job == job]
        for stage in gone:
            del self._by_id[stage]

    def list_rows(self, batch: BatchId) -> list[StageRow]:
        """The stages of a batch that ran; those whose output was there already did not."""
        return [s.to_row() for s in self._by_id.values() if s.batch == batch and s.busy_ms]

    def forget(self, run_id: str, last_batch: float) -> None:
        """Forgets the stages of a run up to a batch."""
        if run_id in self._begun and self._begun[run_id] <= last_batch:
            del self._begun[run_id]
        gone = [
            i
            for i, s in self._by_id.items()
            if s.batch is not None and s.batch.run_id == run_id and s.batch.number <= last_batch
        ]
        for stage in gone:
            del self._by_id[stage]


def _is_same_run(known: BatchId | None, batch: BatchId) -> bool:
    return known is not None and known.run_id == batch.run_id
