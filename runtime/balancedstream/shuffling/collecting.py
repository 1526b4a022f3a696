"""The driver's part: the measurements of a batch's tasks become the next version.

Tasks report as in `workers.reports`, so the version is there when the next batch starts. A task
whose function failed reports nothing.

A batch becomes a version when all of its partitions have reported. If Spark runs only some of them
(`take`, `limit`), nothing is learned; after several such batches, that is logged.

One task may run several partitions, as after `coalesce`. Spark then gives all of them the number of
that task, and only the attempt distinguishes them from another attempt.
"""

from __future__ import annotations

import logging
import pickle
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain, count
from operator import itemgetter
from pathlib import Path

from pyspark import Accumulator, SparkContext

from balancedstream.core.samples import ShuffleRecord
from balancedstream.core.shuffle.costs import LearntCosts, MeasuredCosts, learn_costs
from balancedstream.shuffling.folders import Batch, CostFolder, remove_abandoned
from balancedstream.workers.reports import ReportParam

log = logging.getLogger(__name__)

UNFINISHED_RUNS = 4
"""Number of latest unfinished runs that are kept. A failed one never becomes complete."""

MAX_UNLEARNED_BATCHES = 10
"""After this many batches in a row with missing partitions, it is no accident."""


MAX_COLLECTORS = 100
"""Folders whose newest version stays in memory: each start of a query without a checkpoint of its
own brings a new one. What is forgotten is read from its folder when it reports again."""


@dataclass(frozen=True, slots=True)
class CostReport:
    """The task report of one partition.

    Attributes:
        folder: of the versions.
        shuffle: its name.
        stage: Spark's number of the task's stage: it differs for another action on the batch and
            for a run after a failure.
        batch: micro-batch number.
        task: its number, which is the partition's if each partition is a task.
        attempt: of the task, unique in the application.
        partitions: number of partitions that will report.
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
    ) -> CostReport:
        """Pack the measurements of one partition.

        `place` is the number of the task, its attempt, and the number of partitions.
        """
        data = zlib.compress(pickle.dumps(measured), 1)
        return cls(batch.folder, shuffle, stage, batch.number, *place, data)


@dataclass(slots=True)
class _Run:
    """One run of a batch: one sketch for any number of tasks.

    Attributes:
        measured: of the partitions that have reported.
        attempts: the attempt of each task that has reported.
        loads_s: task, estimated load and real load of each of these partitions.
    """

    measured: MeasuredCosts
    attempts: dict[int, int] = field(default_factory=dict)
    loads_s: list[tuple[int, float, float]] = field(default_factory=list)

    def take(self, report: CostReport, measured: MeasuredCosts) -> None:
        """Add the measurements of a partition; of two attempts, the first one counts."""
        if self.attempts.setdefault(report.task, report.attempt) != report.attempt:
            return
        if self.loads_s:
            self.measured = self.measured.add(measured)
        self.loads_s.append((report.task, measured.estimated_s, measured.real_s))


class Collector:
    """Makes the versions of one folder."""

    def __init__(self, name: str, folder: Path, on_batch: Callable[[ShuffleRecord], None]) -> None:
        self._name = name
        self._folder = CostFolder(folder)
        self._on_batch = on_batch
        self._newest: LearntCosts | None = None
        # By stage.
        self._unfinished: dict[int, _Run] = {}
        # Number of runs since a complete one.
        self._begun = 0
        self._has_warned = False

    def add(self, report: CostReport) -> None:
        """Add a task report; with the last one of a batch, publish a version.

        Each report is added as it arrives, because Spark waits for the last one.
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
        # A batch that runs again, or a second action on it, gives nothing new.
        if self._folder.has_seen(report.batch):
            return
        before = self._folder.newest(report.batch, known=self._newest)
        routed_by = self._folder.find_costs_of(report.batch, newest=before)
        # After a checkpoint was put back, a batch may be pinned to a version that is gone.
        is_judge = routed_by is before
        learnt = learn_costs(before, report.batch, run.measured, is_judge=is_judge)
        self._folder.publish(learnt)
        self._newest = learnt
        by_estimates = routed_by is not None and routed_by.trusted
        if learnt.trusted != (before is not None and before.trusted):
            self._log_change(learnt)
        self._tell(report.batch, run, learnt, by_estimates=by_estimates)

    def _count_begun(self) -> None:
        """Warn once if no run is ever complete."""
        self._begun += 1
        if self._begun > MAX_UNLEARNED_BATCHES and not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: nothing was learned from %d batches in a row, because only some of their "
                "partitions reported. Spark skips the others for take, limit or show, or they "
                "failed.",
                self._name,
                MAX_UNLEARNED_BATCHES,
            )

    def _log_change(self, learnt: LearntCosts) -> None:
        way = "estimated costs" if learnt.trusted else "round robin"
        say = log.info if learnt.trusted else log.warning
        say("%s: %s from batch %d on: %s", self._name, way, learnt.batch + 1, learnt.reason)

    def _tell(self, batch: int, run: _Run, learnt: LearntCosts, *, by_estimates: bool) -> None:
        # Partitions of one task are in the order in which it ran them.
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
    # It comes from our own tasks through Spark.
    unpacked: MeasuredCosts = pickle.loads(zlib.decompress(measured))  # noqa: S301
    return unpacked


class CostReportParam(ReportParam):
    """The task reports of all shuffles; in the driver, each goes to the collector of its folder.

    Several queries may shuffle for functions of the same name by the same key. Each has its own
    folder, and its own name for people: the second one to report is `classify-by-kind (2)`.
    """

    def __init__(self) -> None:
        # The one that was used last is the last one.
        self._collectors: dict[str, tuple[str, Collector]] = {}
        super().__init__(self._collect)

    def _collect(self, report: CostReport) -> None:
        named = self._collectors.pop(report.folder, None)
        if named is None:
            folder = Path(report.folder)
            # Once for each start of a query.
            remove_abandoned(folder)
            if len(self._collectors) == MAX_COLLECTORS:
                del self._collectors[next(iter(self._collectors))]
            name = self._name(report.shuffle)
            named = name, Collector(name, folder, _tell_watchers)
        self._collectors[report.folder] = named
        named[1].add(report)

    def _name(self, shuffle: str) -> str:
        """Number a name that another folder has already; shuffle names have no brackets."""
        taken = {name for name, _ in self._collectors.values()}
        numbered = (f"{shuffle} ({number})" for number in count(2))
        return next(name for name in chain([shuffle], numbered) if name not in taken)


_accumulators: dict[str, Accumulator[tuple[CostReport, ...]]] = {}
_watchers: list[Callable[[ShuffleRecord], None]] = []


def find_accumulator(context: SparkContext) -> Accumulator[tuple[CostReport, ...]]:
    """The accumulator of all shuffles of an application, one because Python never drops any."""
    application = context.applicationId
    if application not in _accumulators:
        _accumulators[application] = context.accumulator((), CostReportParam())
    return _accumulators[application]


def watch(on_batch: Callable[[ShuffleRecord], None]) -> Callable[[], None]:
    """Calls a function with every batch of every shuffle, in the order in which they end.

    Returns:
        A function that ends it.
    """
    _watchers.append(on_batch)
    return lambda: _watchers.remove(on_batch)


def _tell_watchers(batch: ShuffleRecord) -> None:
    for on_batch in list(_watchers):
        on_batch(batch)
