"""Spark in virtual time with what goes wrong: executors that are lost, refused, slow, or late."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from simulation.spark import VirtualSpark

from balancedstream.engine.events import (
    ApplicationEnded,
    BatchFinished,
    Event,
    ExecutorAdded,
    ExecutorRemoved,
    Preparation,
)
from balancedstream_operator.resource import Manifest
from world.api_model import stream_pod

if TYPE_CHECKING:
    from world.worlds import World

BACKLOG_S = 400.0
"""Rows that wait, and need so many seconds, are a backlog; by default 300 s hold a removal."""

RETRY_S = 10.0
"""Between two attempts at pods that the quota refused."""


class Application(VirtualSpark):
    """One life of the job: a driver's process starts it from the checkpoint, and it ends with it.

    Attributes:
        at_start: executors that it asks for until somebody wants another number.
        killed: whether the driver's process has ended.
    """

    def __init__(self, world: World, chance: random.Random, executors: int) -> None:
        checkpoint = world.checkpoint
        super().__init__(
            world.job,
            world.trace,
            chance.randrange(2**32),
            0,
            world.now_s,
            list(checkpoint.batches),
        )
        self._world = world
        self._calls, self._numbers = world.calls, world.numbers
        self._read = checkpoint.read
        self._lost: list[tuple[str, str]] = []
        self._before: dict[int, str] = {}
        self._wanted: dict[int, str] = {}
        self._loads: dict[int, Preparation] = {}
        self._is_waiting = False
        self.target = 0
        self.at_start = executors
        self.killed = False
        self._waiting_rows = 0.0
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
        if self._cores:
            event = super().wait(timeout_s)
            if isinstance(event, BatchFinished):
                self._commit(event)
            return event
        if self._is_joined_before(self._calls[0][0]):
            self._advance(self._coming.pop(0))
            return ExecutorAdded(self._add_executor(), 1)
        self._world.call_next(self)
        return None

    def can_prepare(self) -> bool:
        """Whether moves load state ahead in this schedule."""
        return self._world.schedule.prepares

    def prepare(
        self,
        query: str,
        operator: int,
        targets: Mapping[int, str],
        *,
        from_batch: int | None = None,
    ) -> None:
        """Loads begin; those that are not asked for any more end."""
        self._loads = {
            partition: before
            if (before := self._loads.get(partition)) and before.executor == target
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
        self._wanted = dict(targets)

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
        if self._pending is not None and isinstance(self._pending[1], BatchFinished):
            self.batches.pop()
            self._read = self._world.checkpoint.read
            self._placement = dict(self._before)
        self._pending = None
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

    def _run_batch(self, start_s: float, rows: float) -> tuple[float, Event]:
        self._before = dict(self._placement)
        self._follow_loads()
        waits = {p for p, load in self._loads.items() if load.state in {"loading", "loaded"}}
        self._targets = {p: e for p, e in self._wanted.items() if p not in waits}
        end_s, event = super()._run_batch(start_s, rows)
        if isinstance(event, BatchFinished):
            # Rows of a trace are no whole numbers; those of a source are.
            backlog = max(0.0, round(event.sample.backlog_rows or 0.0))
            sample = replace(event.sample, backlog_rows=backlog)
            event = replace(event, sample=sample, preparations=tuple(self._loads.values()))
        return end_s, event

    def _follow_loads(self) -> None:
        """Each load gets one step further with a batch, or fails."""
        failures = self._world.weather.preparation_failures
        for partition, load in list(self._loads.items()):
            if load.executor not in self._cores or self.chance.random() < failures:
                self._loads[partition] = replace(load, state="failed", failure="interrupted")
            elif load.state == "loading":
                self._loads[partition] = replace(load, state="loaded", load_s=0.5)
            elif load.state == "loaded":
                self._loads[partition] = replace(load, state="due", hand_over_s=0.1)

    def _commit(self, event: BatchFinished) -> None:
        checkpoint = self._world.checkpoint
        checkpoint.read = self._read
        checkpoint.batches = list(self.batches)
        self._waiting_rows = event.sample.backlog_rows or 0.0
        if self.drain_s(len(self.executors())) <= BACKLOG_S:
            self._behind_since_s = None
        elif self._behind_since_s is None:
            self._behind_since_s = self.now_s

    @property
    def behind_s(self) -> float:
        """For how long more rows have waited than the executors work off in time."""
        return 0.0 if self._behind_since_s is None else self.now_s - self._behind_since_s

    def drain_s(self, executors: int) -> float:
        """How long so many executors work off the rows that waited after the last batch."""
        rate = self.trace.mean_rate(max(0.0, self.now_s - 60.0), 60.0)
        spare = executors - rate * self.job.row_s
        return self._waiting_rows * self.job.row_s / max(spare, 0.01)
