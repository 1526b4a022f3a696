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
from dataclasses import dataclass
from pathlib import Path

from pyspark import Accumulator, SparkContext

from balancedstream.core.costs import LearntCosts, TaskCosts, learn_costs
from balancedstream.history import ShuffleRecord
from balancedstream.shuffling.folders import BatchCosts, CostFolder
from balancedstream.task_reports import ReportParam

log = logging.getLogger(__name__)

UNFINISHED_RUNS = 4
"""Runs of a batch whose reports are kept: those that reported last. A failed one is never whole."""


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
        task: compressed `TaskCosts`; a sketch is mostly empty.
    """

    folder: str
    shuffle: str
    plan: str
    batch: int
    partition: int
    partitions: int
    task: bytes

    @classmethod
    def of(
        cls, costs: BatchCosts, shuffle: str, plan: str, partitions: int, task: TaskCosts
    ) -> Report:
        """Pack what was measured."""
        data = zlib.compress(pickle.dumps(task), 1)
        return cls(costs.folder, shuffle, plan, costs.batch, task.partition, partitions, data)


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
        # By plan and batch: what each partition's task has measured, compressed.
        self._unfinished: dict[tuple[str, int], dict[int, bytes]] = {}

    def add(self, report: Report) -> None:
        """Take a task's report; with the last one of a batch, publish a version."""
        run = report.plan, report.batch
        reported = self._unfinished.pop(run, {})
        reported[report.partition] = report.task
        if len(reported) < report.partitions:
            self._unfinished[run] = reported
            if len(self._unfinished) > UNFINISHED_RUNS:
                del self._unfinished[next(iter(self._unfinished))]
            return
        # A batch that is run again, or a second action on it, teaches nothing new.
        if self._folder.has_seen(report.batch):
            return
        before = self._folder.newest(report.batch, known=self._newest)
        tasks = [_unpack(reported[partition]) for partition in sorted(reported)]
        learnt = learn_costs(before, report.batch, tasks)
        self._folder.publish(learnt)
        self._newest = learnt
        self._tell(report, tasks, before, learnt)

    def _tell(
        self,
        report: Report,
        tasks: list[TaskCosts],
        before: LearntCosts | None,
        learnt: LearntCosts,
    ) -> None:
        was_trusted = before is not None and before.trusted
        if learnt.trusted != was_trusted:
            way = "estimated costs" if learnt.trusted else "round robin"
            say = log.info if learnt.trusted else log.warning
            say("%s: %s from batch %d on: %s", self._name, way, learnt.batch + 1, learnt.reason)
        self._on_batch(
            ShuffleRecord(
                at_s=time.time(),
                shuffle=self._name,
                batch=report.batch,
                records=sum(task.sketch.records for task in tasks),
                by_estimates=was_trusted,
                estimated_s=tuple(task.estimated_s for task in tasks),
                real_s=tuple(task.real_s for task in tasks),
                error=learnt.error,
                equal_error=learnt.equal_error,
                trusted=learnt.trusted,
                reason=learnt.reason,
            )
        )


def _unpack(task: bytes) -> TaskCosts:
    # It comes from our own tasks, through Spark.
    unpacked: TaskCosts = pickle.loads(zlib.decompress(task))  # noqa: S301
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
