"""Spark in virtual time with what goes wrong: executors that are lost, refused, slow, or late."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from simulation.spark import BatchRun, VirtualSpark

from balancedstream.engine.events import (
    ApplicationEnded,
    BatchFinished,
    Event,
    ExecutorAdded,
    ExecutorRemoved,
    Preparation,
    QueryIdle,
)
from balancedstream_operator.api.resource import Manifest
from world.api_model import stream_pod

if TYPE_CHECKING:
    from world.worlds import World

BACKLOG_S = 400.0
"""Rows that wait, and need so many seconds, are a backlog; by default 300 s hold a removal."""

RETRY_S = 10.0
"""Between two attempts at pods that the quota refused."""


@dataclass
class _Query:
    """A query in one life of the job.

    Attributes:
        read: rows that it has read.
        batches: that it has finished, or that runs.
        placement: state partition to the executor that ran it last.
        last_start_s: when its last batch started.
        idle_s: until when it has said that it waits for data.
        before: the placement before the batch that runs.
        wanted: state partition to the executor that is to run it.
        loads: of the state of partitions that are to move.
        waiting_rows: after the last batch.
    """

    read: float
    batches: list[BatchRun]
    placement: dict[int, str] = field(default_factory=dict)
    last_start_s: float | None = None
    idle_s: float = 0.0
    before: dict[int, str] = field(default_factory=dict)
    wanted: dict[int, str] = field(default_factory=dict)
    loads: dict[int, Preparation] = field(default_factory=dict)
    waiting_rows: float = 0.0


class Application(VirtualSpark):
    """One life of the job: a driver's process starts it from the checkpoint, and it ends with it.

    Batches of several queries run one after the other, as Spark's FIFO scheduler has it where all
    tasks find work; what the base class knows is of the query whose turn it is.

    Attributes:
        at_start: executors that it asks for until somebody wants another number.
        ends: whether no batch begins any more.
        killed: whether the driver's process has ended.
    """

    def __init__(self, world: World, chance: random.Random, executors: int) -> None:
        super().__init__(world.job, world.trace, chance.randrange(2**32), 0, world.now_s)
        self._world = world
        self._calls, self._numbers = world.calls, world.numbers
        self._queries = {
            name: _Query(progress.read, list(progress.batches))
            for name, progress in world.checkpoints.items()
        }
        self._turn = next(iter(self._queries))
        self._read, self.batches = self._query.read, self._query.batches
        self._lost: list[tuple[str, str]] = []
        self._is_waiting = False
        self.target = 0
        self.at_start = executors
        self.ends = False
        self.killed = False
        self.watch_sources(wanted=True)
        self._behind_since_s: float | None = None
        self.set_executor_count(executors)

    def wait(self, timeout_s: float) -> Event | None:
        """As its base class, with losses, and with batches that wait for the first executor."""
        if self.failure is not None:
            raise self.failure
        if self.killed:
            self.over.set()
            return ApplicationEnded()
        if self._lost:
            executor, reason = self._lost.pop(0)
            return ExecutorRemoved(executor, reason)
        if self._cores and not (self.ends and not self._pending):
            event = super().wait(timeout_s)
            if isinstance(event, BatchFinished):
                self._commit(event)
            return event
        if self._find_join_s() <= self._calls[0][0]:
            self._advance(self._coming.pop(0))
            return ExecutorAdded(self._add_executor(), 1)
        self._world.call_next(self)
        return None

    @property
    def query(self) -> str:
        """The query whose turn it is."""
        return self._turn

    def find_checkpoints(self) -> tuple[str, ...]:
        """Those of all queries, once each has committed a batch."""
        known = self._world.checkpoints
        if not all(progress.batches for progress in known.values()):
            return ()
        return tuple(f"/checkpoints/clicks/{query}" for query in sorted(known))

    def end_queries(self) -> bool:
        """The batch that runs is the last one of any query, for their batches take turns."""
        self.ends = True
        return not self._pending

    def can_prepare(self) -> bool:
        """Whether moves load state ahead in this schedule."""
        return self._world.schedule.prepares

    def prepare(
        self,
        query: str,
        operator: int,
        targets: Mapping[int, str],
        *,
        partners: Mapping[int, int] | None = None,
        from_batch: int | None = None,
    ) -> None:
        """Loads begin; those that are not asked for any more end."""
        known = self._queries[query].loads
        self._queries[query].loads = {
            partition: before
            if (before := known.get(partition)) and before.executor == target
            else Preparation(operator, partition, target, "loading")
            for partition, target in targets.items()
        }

    def place(
        self,
        query: str,
        operator: int,
        targets: Mapping[int, str],
        *,
        from_batch: int | None = None,
    ) -> None:
        """Partitions run there once their state is loaded, or need not be."""
        self._queries[query].wanted = dict(targets)

    def set_executor_count(self, count: int) -> bool:
        """Executors that are missing come later, as far as the quota allows."""
        self.target = count
        self._world.oracles.check_request(self)
        self._request()
        return True

    def remove_executor(self, executor: str) -> None:
        """It leaves before the next batch, and is not replaced."""
        if executor in self._cores and executor not in self._leaving:
            super().remove_executor(executor)
            self.target = max(0, self.target - 1)

    def lose_executor(self, reason: str) -> None:
        """An executor is gone, in the middle of a batch; Spark runs its tasks again elsewhere."""
        if not self._cores:
            return
        executor = self.chance.choice(sorted(self._cores))
        del self._cores[executor]
        self._draining.discard(executor)
        if executor in self._leaving:
            self._leaving.remove(executor)
        if self._pending and isinstance(self._pending[-1][1], BatchFinished):
            self.batches.pop()
            self._read = self._world.checkpoints[self._turn].read
            self._placement = dict(self._query.before)
        self._pending.clear()
        self._lost.append((executor, reason))
        self._request()

    @property
    def draining(self) -> list[str]:
        """Executors that take no more work, and are still there."""
        return sorted(self._draining)

    def list_pods(self) -> list[Manifest]:
        """The executors' pods."""
        name = self._world.stream.name
        running = [stream_pod(f"{name}-exec-{e}", name, "Running") for e in sorted(self._cores)]
        return running + [
            stream_pod(f"{name}-exec-new-{n}", name, "Pending", "0/3 nodes fit")
            for n in range(len(self._coming))
        ]

    def _request(self) -> None:
        """What Spark's allocator of pods does, again and again."""
        if self.killed:
            return
        while self._coming and len(self._cores) + len(self._coming) > self.target:
            self._coming.pop()
        weather = self._world.weather
        there = len(self._cores) + len(self._coming)
        for _ in range(min(self.target, weather.quota) - there):
            start_s = self.job.start_s * self.chance.uniform(0.8, 1.2) * weather.slow_start
            self._coming.append(self.now_s + start_s)
        self._coming.sort()
        if len(self._cores) + len(self._coming) < self.target and not self._is_waiting:
            self._is_waiting = True
            self._world.call_in(RETRY_S, self._request_again)

    def _request_again(self) -> None:
        self._is_waiting = False
        self._request()

    @property
    def _query(self) -> _Query:
        return self._queries[self._turn]

    def _find_start_s(self) -> float:
        """When the next batch of any query starts, if there are rows; it is that query's turn."""
        if not self._pending and len(self._queries) > 1:
            self._keep()
            self._turn = min(self._queries, key=self._rank)
            query = self._query
            self._read, self.batches = query.read, query.batches
            self._placement, self._last_start_s = query.placement, query.last_start_s
        return super()._find_start_s()

    def _keep(self) -> None:
        """Notes how far the query is whose turn it was."""
        query = self._query
        query.read, query.batches = self._read, self.batches
        query.placement, query.last_start_s = self._placement, self._last_start_s

    def _rank(self, name: str) -> tuple[bool, float]:
        """Of the queries that have rows, the one that has waited longest comes first."""
        query = self._queries[name]
        due_s = self._find_due_s(query)
        waiting = self.trace.count_until(max(self.now_s, due_s)) - query.read
        return waiting < 1, max(due_s, query.idle_s)

    def _find_due_s(self, query: _Query) -> float:
        """When a query's next batch would start if it had the executors to itself."""
        if not query.batches or query.last_start_s is None:
            return 0.0
        return max(query.batches[-1].end_s, query.last_start_s + self.job.trigger_s)

    def _plan_next(self, start_s: float) -> Iterator[tuple[float, Event]]:
        for at_s, event in super()._plan_next(start_s):
            if isinstance(event, QueryIdle):
                self._query.idle_s = at_s
            yield at_s, event

    def _run_batch(self, start_s: float, rows: float) -> tuple[float, Event]:
        query = self._query
        query.before = dict(self._placement)
        self._follow_loads(query)
        waits = {p for p, load in query.loads.items() if load.state in {"loading", "loaded"}}
        self._targets = {p: e for p, e in query.wanted.items() if p not in waits}
        end_s, event = super()._run_batch(start_s, rows)
        if isinstance(event, BatchFinished):
            event = self._name(event, tuple(query.loads.values()))
        return end_s, event

    def _name(self, event: BatchFinished, loads: tuple[Preparation, ...]) -> BatchFinished:
        """A batch of the query whose turn it is."""
        name, sample = self._turn, event.sample
        # Rows of a trace are no whole numbers; those of a source are.
        backlog = max(0.0, round(sample.backlog_rows or 0.0))
        return replace(
            event,
            query=name,
            sample=replace(sample, query=name, backlog_rows=backlog),
            tasks=tuple(replace(task, query=name) for task in event.tasks),
            stages=tuple(replace(stage, query=name) for stage in event.stages),
            preparations=loads,
        )

    def _follow_loads(self, query: _Query) -> None:
        """Each load gets one step further with a batch, or fails."""
        failures = self._world.weather.preparation_failures
        for partition, load in list(query.loads.items()):
            if load.executor not in self._cores or self.chance.random() < failures:
                query.loads[partition] = replace(load, state="failed", failure="interrupted")
            elif load.state == "loading":
                query.loads[partition] = replace(load, state="loaded", load_s=0.5)
            elif load.state == "loaded":
                query.loads[partition] = replace(load, state="due", hand_over_s=0.1)

    def _commit(self, event: BatchFinished) -> None:
        progress = self._world.checkpoints[event.query]
        progress.read, progress.batches = self._read, list(self.batches)
        self._world.jobs.commit_batch()
        self._query.waiting_rows = event.sample.backlog_rows or 0.0
        if self.drain_s(len(self.executors())) <= BACKLOG_S:
            self._behind_since_s = None
        elif self._behind_since_s is None:
            self._behind_since_s = self.now_s

    @property
    def behind_s(self) -> float:
        """For how long more rows have waited than the executors work off in time."""
        return 0.0 if self._behind_since_s is None else self.now_s - self._behind_since_s

    def drain_s(self, executors: int) -> float:
        """How long so many executors work off the rows that waited after the last batches."""
        rate = self.trace.mean_rate(max(0.0, self.now_s - 60.0), 60.0) * len(self._queries)
        spare = executors - rate * self.job.row_s
        rows = sum(query.waiting_rows for query in self._queries.values())
        return rows * self.job.row_s / max(spare, 0.01)
