"""The driver's part: what the tasks of a batch have measured becomes the next version.

Tasks report as `task_reports` tells, so when the next batch begins, the version is there. A task
whose function failed reports nothing.

A batch becomes a version when all its partitions have reported. Where Spark runs only some of them
(`take`, `limit`), nothing is learnt.
"""

from __future__ import annotations

import logging
import pickle
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark import Accumulator, SparkContext

from balancedstream.core.costs import LearntCosts, MeasuredCosts, learn_costs
from balancedstream.history import ShuffleRecord
from balancedstream.shuffling.folders import BatchCosts, CostFolder
from balancedstream.task_reports import ReportParam

log = logging.getLogger(__name__)

UNFINISHED_RUNS = 4
"""Runs of a batch that are kept: those that reported last. A failed one is never whole."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one task has measured, as it travels to the driver.

    Attributes:
        folder: of the versions.
        shuffle: its name.
        plan: which DataFrame it is of: what was begun and failed reports beside what came after it.
        batch: number of the batch.
        partition: that the task ran.
        partitions: how many will report.
        measured: compressed `MeasuredCosts`; a sketch is mostly empty.
    """

    folder: str
    shuffle: str
    plan: str
    batch: int
    partition: int
    partitions: int
    measured: bytes

    @classmethod
    def of(
        cls,
        costs: BatchCosts,
        shuffle: str,
        plan: str,
        place: tuple[int, int],
        measured: MeasuredCosts,
    ) -> Report:
        """Pack what was measured.

        Args:
            costs: what the task knows of its batch.
            shuffle: its name.
            plan: which DataFrame it is of.
            place: which partition of how many.
            measured: by the task.
        """
        data = zlib.compress(pickle.dumps(measured), 1)
        return cls(costs.folder, shuffle, plan, costs.batch, *place, data)


@dataclass(slots=True)
class _Run:
    """What is known of one run of a batch: the same memory whatever the number of tasks.

    Attributes:
        measured: by those that have reported.
        loads_s: of each partition that has reported: estimated, real.
    """

    measured: MeasuredCosts
    loads_s: dict[int, tuple[float, float]] = field(default_factory=dict)


class Collector:
    """Makes versions of one folder.

    Args:
        name: of the shuffle, for people.
        folder: of the versions.
        on_batch: is told of each batch that was learnt from.
    """

    def __init__(self, name: str, folder: Path, on_batch: Callable[[ShuffleRecord], None]) -> None:
        self._name = name
        self._folder = CostFolder(folder)
        self._on_batch = on_batch
        self._newest: LearntCosts | None = None
        # By plan and batch.
        self._unfinished: dict[tuple[str, int], _Run] = {}

    def add(self, report: Report) -> None:
        """Take a task's report; with the last one of a batch, publish a version.

        Each is taken in as it comes, for Spark waits for the last one.
        """
        place = report.plan, report.batch
        measured = _unpack(report.measured)
        run = self._unfinished.pop(place, None)
        if run is None:
            run = _Run(measured)
        elif report.partition not in run.loads_s:
            run.measured = run.measured.add(measured)
        # Of two attempts the first one counts.
        run.loads_s.setdefault(report.partition, (measured.estimated_s, measured.real_s))
        if len(run.loads_s) < report.partitions:
            self._unfinished[place] = run
            if len(self._unfinished) > UNFINISHED_RUNS:
                del self._unfinished[next(iter(self._unfinished))]
            return
        # A batch that is run again, or a second action on it, teaches nothing new.
        if self._folder.has_seen(report.batch):
            return
        before = self._folder.newest(report.batch, known=self._newest)
        learnt = learn_costs(before, report.batch, run.measured)
        self._folder.publish(learnt)
        self._newest = learnt
        self._tell(report.batch, run.loads_s, run.measured.sketch.records, before, learnt)

    def _tell(
        self,
        batch: int,
        loads_s: dict[int, tuple[float, float]],
        records: int,
        before: LearntCosts | None,
        learnt: LearntCosts,
    ) -> None:
        was_trusted = before is not None and before.trusted
        if learnt.trusted != was_trusted:
            way = "estimated costs" if learnt.trusted else "round robin"
            say = log.info if learnt.trusted else log.warning
            say("%s: %s from batch %d on: %s", self._name, way, batch + 1, learnt.reason)
        estimated_s, real_s = zip(*(loads_s[each] for each in sorted(loads_s)), strict=True)
        self._on_batch(
            ShuffleRecord(
                at_s=time.time(),
                shuffle=self._name,
                batch=batch,
                records=records,
                by_estimates=was_trusted,
                estimated_s=estimated_s,
                real_s=real_s,
                error=learnt.error,
                equal_error=learnt.equal_error,
                trusted=learnt.trusted,
                reason=learnt.reason,
            )
        )


def _unpack(measured: bytes) -> MeasuredCosts:
    # It comes from our own tasks, through Spark.
    unpacked: MeasuredCosts = pickle.loads(zlib.decompress(measured))  # noqa: S301
    return unpacked


class Reports(ReportParam):
    """The reports of all shuffles; in the driver, each goes to the collector of its folder.

    Queries may shuffle with functions of one name by one key. Each has a folder, and a name that it
    is shown by: the second that reports is `classify-by-kind (2)`.
    """

    def __init__(self) -> None:
        self._collectors: dict[str, Collector] = {}
        self._named: Counter[str] = Counter()
        super().__init__(self._collect)

    def _collect(self, report: Report) -> None:
        collector = self._collectors.get(report.folder)
        if collector is None:
            name = self._name(report.shuffle)
            collector = Collector(name, Path(report.folder), _tell_watchers)
            self._collectors[report.folder] = collector
        collector.add(report)

    def _name(self, shuffle: str) -> str:
        """Number what another folder is called already; no name of a shuffle has brackets."""
        self._named[shuffle] += 1
        number = self._named[shuffle]
        return shuffle if number == 1 else f"{shuffle} ({number})"


_accumulators: dict[str, Accumulator[tuple[Report, ...]]] = {}
_watchers: list[Callable[[ShuffleRecord], None]] = []


def find_accumulator(context: SparkContext) -> Accumulator[tuple[Report, ...]]:
    """The accumulator of all shuffles of an application: Python keeps every one for ever."""
    application = context.applicationId
    if application not in _accumulators:
        _accumulators[application] = context.accumulator((), Reports())
    return _accumulators[application]


def watch(on_batch: Callable[[ShuffleRecord], None]) -> Callable[[], None]:
    """Have every batch of every shuffle told, in the order in which they end.

    Returns:
        Ends it.
    """
    _watchers.append(on_batch)
    return lambda: _watchers.remove(on_batch)


def _tell_watchers(batch: ShuffleRecord) -> None:
    for on_batch in list(_watchers):
        on_batch(batch)
