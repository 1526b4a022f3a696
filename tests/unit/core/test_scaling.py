"""How many executors are needed, and which kind of trouble a stream is in."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from balancedstream.core.loads import OperatorLoad, measure, prune
from balancedstream.core.observations import BatchSample, TaskSample
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.scaling import ScalingDecision, Verdict, decide, required_executors
from balancedstream.errors import InvalidRateError
from hypothesis import given, settings
from hypothesis import strategies as st

ROW_S = 0.001
PARTITIONS = 96


@dataclass
class Stream:
    """A stream in simulated time, its partitions always balanced, scaled by `decide`.

    Rows arrive evenly at `rate`; a batch takes what waits, up to `cap`, and lasts as long as its
    busiest executor plus `overhead_s` of the driver's.
    """

    policy: Policy
    rate: float
    executors: int
    trigger_s: float = 10.0
    overhead_s: float = 0.0
    cap: float = math.inf
    tells_backlog: bool = True
    now_s: float = 0.0
    waiting: float = 0.0
    batch: int = 0
    started_s: float | None = None
    changed_s: float | None = None
    batches: list[BatchSample] = field(default_factory=list)
    tasks: list[TaskSample] = field(default_factory=list)
    changes: list[tuple[float, int, str]] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self._run_batch()
            decision = self._decide()
            if decision.executors != self.executors:
                self.changes.append((self.now_s, decision.executors, decision.reason))
                self.executors = decision.executors
                self.changed_s = self.now_s

    @property
    def oracle(self) -> int:
        """Executors that DS2's rule asks for, told the true rate."""
        return required_executors(
            self.rate, 1 / ROW_S, self.policy.scaling.target_utilization
        )

    @property
    def utilization(self) -> float:
        return self.rate * ROW_S / self.executors

    def _run_batch(self) -> None:
        start_s = self.now_s
        if self.started_s is not None:
            start_s = max(self.now_s, self.started_s + self.trigger_s)
        self.waiting += (start_s - (self.started_s or 0.0)) * self.rate
        rows = min(self.waiting, self.cap)
        self.waiting -= rows
        busy_s = rows * ROW_S / PARTITIONS
        owners = [str(partition % self.executors) for partition in range(PARTITIONS)]
        duration_s = self.overhead_s + busy_s * math.ceil(PARTITIONS / self.executors)
        self.now_s = start_s + duration_s
        self.tasks += [
            TaskSample("q", 0, p, self.batch, owner, busy_s, int(rows / PARTITIONS), 0, self.now_s)
            for p, owner in enumerate(owners)
        ]
        interval_s = None if self.started_s is None else start_s - self.started_s
        self.batches.append(
            BatchSample(
                "q",
                self.batch,
                self.now_s,
                duration_s,
                int(rows),
                interval_s,
                self.waiting if self.tells_backlog else None,
            )
        )
        self.batches = [b for b in self.batches if b.finished_s > self.now_s - 1200]
        self.started_s = start_s
        self.batch += 1

    def _decide(self) -> ScalingDecision:
        live = {str(number): 1 for number in range(self.executors)}
        self.tasks = prune(self.tasks, self.policy.window, self.now_s)
        return decide(
            self.batches,
            measure(self.tasks, live, self.policy.window, self.now_s),
            live,
            self.policy,
            now_s=self.now_s,
            last_change_s=self.changed_s,
        )
