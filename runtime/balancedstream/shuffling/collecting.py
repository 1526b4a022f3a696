"""The driver's part: what the tasks of a batch have measured becomes the next version.

Tasks report as `task_reports` tells, so when the next batch begins, the version is there. A task
whose function failed reports nothing.

A batch becomes a version when all its partitions have reported. Where Spark runs only some of them
(`take`, `limit`), nothing is learnt; that is logged once it has been so for a while.

Several partitions may be run by one task, as after `coalesce`. Spark then calls all of them by that
task's number, so what tells them from another attempt is the attempt.
"""

from __future__ import annotations

import logging
import pickle
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

from pyspark import Accumulator, SparkContext

from balancedstream.core.costs import LearntCosts, MeasuredCosts, learn_costs
from balancedstream.core.observations import ShuffleRecord
from balancedstream.shuffling.folders import Batch, CostFolder
from balancedstream.workers.reports import ReportParam

log = logging.getLogger(__name__)

UNFINISHED_RUNS = 4
"""Runs of a batch that are kept: those that reported last. A failed one is never whole."""

UNLEARNT_BATCHES = 10
"""So many in a row of which only some partitions have reported are no accident."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured of one partition, as it travels to the driver.

    Attributes:
        folder: of the versions.
        shuffle: its name.
        stage: that the task is of, as Spark numbers them: another action on the batch has another
            one, and so has what is run after a failure.
        batch: number of the batch.
        task: its number; the partition's own where each is a task.
        attempt: of the task, which no other task of the application has.
        partitions: how many will report.
        measured: compressed `MeasuredCosts`; a sketch is mostly empty.
    """

    folder: str
    shuffle: str
    stage: int
    batch: int
    task: int
    attempt: int
    partitions: int
    measured: bytes

    @classmethod
    def of(
        cls,
        batch: Batch,
        shuffle: str,
        stage: int,
        place: tuple[int, int, int],
        measured: MeasuredCosts,
    ) -> Report:
        """Pack what was measured.

        Args:
            batch: that the task is of.
            shuffle: its name.
            stage: of the task.
            place: which task, in which attempt, and how many partitions there are.
            measured: of one partition.
        """
        data = zlib.compress(pickle.dumps(measured), 1)
        return cls(batch.folder, shuffle, stage, batch.number, *place, data)


@dataclass(slots=True)
class _Run:
    """What is known of one run of a batch: one sketch, whatever the number of tasks.

    Attributes:
        measured: of the partitions that have reported.
        attempts: which attempt of each task it was that has reported.
        loads_s: of each of these partitions: its task, estimated, real.
    """

    measured: MeasuredCosts
    attempts: dict[int, int] = field(default_factory=dict)
    loads_s: list[tuple[int, float, float]] = field(default_factory=list)

    def take(self, report: Report, measured: MeasuredCosts) -> None:
        """Take in what was measured of a partition; of two attempts the first one counts."""
        if self.attempts.setdefault(report.task, report.attempt) != report.attempt:
            return
        if self.loads_s:
            self.measured = self.measured.add(measured)
        self.loads_s.append((report.task, measured.estimated_s, measured.real_s))


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
        # By stage.
        self._unfinished: dict[int, _Run] = {}
        # Since one was whole.
        self._begun = 0
        self._has_warned = False

    def add(self, report: Report) -> None:
        """Take a report; with the last one of a batch, publish a version.

        Each is taken in as it comes, for Spark waits for the last one.
        """
        measured = _unpack(report.measured)
        run = self._unfinished.pop(report.stage, None)
        if run is None:
            run = _Run(measured)
            self._count_begun()
        run.take(report, measured)
        if len(run.loads_s) < report.partitions:
            self._unfinished[report.stage] = run
            if len(self._unfinished) > UNFINISHED_RUNS:
                del self._unfinished[next(iter(self._unfinished))]
            return
        self._begun = 0
        # A batch that is run again, or a second action on it, teaches nothing new.
        if self._folder.has_seen(report.batch):
            return
        before = self._folder.newest(report.batch, known=self._newest)
        routed_by = self._folder.find_costs_of(report.batch, newest=before)
        # After a checkpoint was put back, a batch may be pinned to what is forgotten by now.
        is_judge = routed_by is before
        learnt = learn_costs(before, report.batch, run.measured, is_judge=is_judge)
        self._folder.publish(learnt)
        self._newest = learnt
        by_estimates = routed_by is not None and routed_by.trusted
        if learnt.trusted != (before is not None and before.trusted):
            self._log_change(learnt)
        self._tell(report.batch, run, learnt, by_estimates=by_estimates)

    def _count_begun(self) -> None:
        """Say it once where run after run is never whole."""
        self._begun += 1
        if self._begun > UNLEARNT_BATCHES and not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: nothing was learnt from %d batches in a row, for only some of their "
                "partitions have reported. Spark leaves out the others for take, limit or show, or "
                "they have failed.",
                self._name,
                UNLEARNT_BATCHES,
            )

    def _log_change(self, learnt: LearntCosts) -> None:
        way = "estimated costs" if learnt.trusted else "round robin"
        say = log.info if learnt.trusted else log.warning
        say("%s: %s from batch %d on: %s", self._name, way, learnt.batch + 1, learnt.reason)

    def _tell(self, batch: int, run: _Run, learnt: LearntCosts, *, by_estimates: bool) -> None:
        # Partitions that one task has run are in the order in which it has run them.
        loads_s = sorted(run.loads_s, key=itemgetter(0))
        _, estimated_s, real_s = zip(*loads_s, strict=True)
        self._on_batch(
            ShuffleRecord(
                at_s=time.time(),
                shuffle=self._name,
                batch=batch,
                records=run.measured.sketch.records,
                by_estimates=by_estimates,
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
