"""Spark in virtual time: an `Engine` for the driver's real loop."""

from __future__ import annotations

import heapq
import math
import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from balancedstream.core.memory.use import MemoryLimits
from balancedstream.core.samples import BatchSample, SlotHolder
from balancedstream.engine.events import (
    ApplicationEnded,
    BatchFinished,
    BatchPlanned,
    Event,
    ExecutorAdded,
    ExecutorRemoved,
    QueryIdle,
    RowsWaiting,
    StatefulOperator,
)
from balancedstream.loop.ports import Engine
from simulation.model import Batch, Job, run_batch, weigh_partitions
from simulation.traces import Trace

IDLE_S = 10.0
"""How often Spark says that a query waits (`noDataProgressEventInterval`)."""


LOCALITY_WAIT_S = 3.0
"""Spark's default."""

ASKS_EVERY_S = 1.0
"""How often the engine asks a query's sources what waits there."""

BOUND_BATCHES = 3
"""A bound ends that was not renewed for so many batches."""


STARTS = (0.8, 1.2)
"""The shortest and the longest start of an executor, over that of its job."""


@dataclass(frozen=True)
class BatchRun:
    """One batch as it was: when it ran, and which rows it read."""

    start_s: float
    end_s: float
    first_row: float
    last_row: float


@dataclass
class _Bound:
    """How many rows the batches of a query may read."""

    rows: float = math.inf
    rows_before: float = math.inf
    set_at_s: float = -math.inf
    batches: int = 0

    def take(self, start_s: float) -> float:
        """The most rows of the batch that starts then."""
        self.batches += 1
        if self.batches > BOUND_BATCHES:
            self.rows = self.rows_before = math.inf
        return self.rows if self.set_at_s < start_s else self.rows_before


@dataclass
class VirtualSpark(Engine):
    """Runs a job on a trace; every call of `wait` is the next thing that happens.

    Executors that are asked for come after `job.start_s`; those that are removed leave between two
    batches. A state partition without a live executor is placed at random, as Spark does. A bound
    on the rows of a batch holds for batches that start later than it was set.

    Attributes:
        now_s: the virtual clock.
        batches: all batches so far.
        executor_s: executor-seconds so far, from the request of an executor to its end.
        asks_every_s: how often sources are asked for `RowsWaiting`; 0 if nobody listens.
        over: set when the run is over, or its loop has failed.
        failure: of the loop; None for none.
    """

    own_wait = ""
    memory_limits = MemoryLimits()

    job: Job
    trace: Trace
    seed: int
    executors_at_start: int
    now_s: float = 0.0
    batches: list[BatchRun] = field(default_factory=list)
    executor_s: float = 0.0
    asks_every_s: float = 0.0

    def __post_init__(self) -> None:
        self.over = threading.Event()
        self.failure: Exception | None = None
        self.chance = random.Random(self.seed)
        self._cores: dict[str, int] = {}
        self._draining: set[str] = set()
        self._leaving: list[str] = []
        self._coming: list[float] = []
        self._next_id = 0
        self._placement: dict[int, str] = {}
        self._targets: dict[int, str] = {}
        self._read = 0.0
        self._locality_wait_s = LOCALITY_WAIT_S
        self._last_start_s: float | None = None
        self._pending: deque[tuple[float, Event]] = deque()
        self._asks_s = math.inf
        self._bounds: dict[str, _Bound] = defaultdict(_Bound)
        self._numbers = count()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        for _ in range(self.executors_at_start):
            self._add_executor()

    def wait(self, timeout_s: float) -> Event | None:
        """The next event, or None after a call of `call_at`; the clock stands at its time.

        Raises:
            Exception: the loop failed before; it ends if it fails again and again.
        """
        if self.failure is not None:
            raise self.failure
        self._asks_s = max(self._asks_s, self.now_s)
        start_s = self._find_start_s()
        if not self._pending and not self._is_interrupted_before(start_s):
            self._pending.extend(self._plan_next(start_s))
        event_s = self._pending[0][0] if self._pending else math.inf
        next_s = min(event_s, self._find_call_s(), self._find_join_s(), self._asks_s)
        self._advance(next_s)
        if self._find_call_s() == next_s:
            heapq.heappop(self._calls)[2]()
            return None
        if self._find_join_s() == next_s:
            self._coming.pop(0)
            return ExecutorAdded(self._add_executor(), 1)
        if event_s > next_s:
            self._asks_s += self.asks_every_s
            return RowsWaiting(self.query, next_s, self.backlog_rows)
        _, event = self._pending.popleft()
        if isinstance(event, BatchPlanned) and self.asks_every_s and self._asks_s == math.inf:
            self._asks_s = next_s + self.asks_every_s
        if isinstance(event, ApplicationEnded):
            self.over.set()
        return event

    def call_at(self, time_s: float, act: Callable[[], None]) -> None:
        """Has something done at a time of the virtual clock."""
        heapq.heappush(self._calls, (time_s, next(self._numbers), act))

    def executors(self) -> dict[str, int]:
        """Executors that take work."""
        return {e: c for e, c in self._cores.items() if e not in self._draining}

    @property
    def query(self) -> str:
        """The query whose batch runs or comes next."""
        return "q"

    @property
    def asked(self) -> int:
        """Executors that run or come, without those that leave."""
        return len(self.executors()) + len(self._coming)

    @property
    def leaving(self) -> int:
        """Executors that run until the end of the batch, and take no more work."""
        return len(self._draining)

    @property
    def backlog_rows(self) -> float:
        """Rows that have arrived and were not read yet."""
        return self.trace.count_until(self.now_s) - self._read

    def place(
        self,
        query: str,
        operator: int,
        targets: Mapping[int, str],
        *,
        from_batch: int | None = None,
    ) -> None:
        """Partitions run there from the next batch on."""
        self._targets = dict(targets)

    def set_warm_up(self, *, wanted: bool) -> None:
        """Executors start warm here."""

    def can_prepare(self) -> bool:
        """No: what this simulates was calibrated with moves that load in the batch."""
        return False

    def prepare(
        self,
        query: str,
        operator: int,
        targets: Mapping[int, str],
        *,
        partners: Mapping[int, int] | None = None,
        from_batch: int | None = None,
    ) -> None:
        """Is not called."""

    def list_holders(self) -> tuple[SlotHolder, ...]:
        """There is none."""
        return ()

    def give_locality_wait_back(self) -> None:
        """Is not called."""

    def is_between_batches(self, query: str) -> bool:
        """Nobody asks where nothing can be prepared."""
        return True

    def set_locality_wait_s(self, wait_s: float, *, at_once: bool = False) -> None:
        """From the next batch on, in any case."""
        self._locality_wait_s = wait_s

    def set_executor_count(self, count: int) -> bool:
        """Executors that are missing come later; requests that are not needed any more end."""
        while len(self._cores) + len(self._coming) < count:
            self._coming.append(self.now_s + self.job.start_s * self.chance.uniform(*STARTS))
        self._coming.sort()
        while self._coming and len(self._cores) + len(self._coming) > count:
            self._coming.pop()
        return True

    def watch_sources(self, *, wanted: bool) -> None:
        """Asks them each second; planned batches are told in any case."""
        self.asks_every_s = ASKS_EVERY_S if wanted else 0.0
        if not wanted:
            self._asks_s = math.inf

    def bound(self, query: str, rows: float | None) -> str:
        """Bounds batches that start later: the next one may be planned already where this ends."""
        bound = self._bounds[query]
        if self.now_s > bound.set_at_s:
            bound.rows_before, bound.set_at_s = bound.rows, self.now_s
        bound.rows = math.inf if rows is None else max(1.0, rows)
        bound.batches = 0
        return ""

    def drain(self, executor: str) -> None:
        """Takes an executor out of `executors()`."""
        self._draining.add(executor)

    def remove_executor(self, executor: str) -> None:
        """It leaves before the next batch."""
        self._draining.add(executor)
        self._leaving.append(executor)

    def find_checkpoints(self) -> tuple[str, ...]:
        """That of its query, once it has committed a batch."""
        return (f"/checkpoints/clicks/{self.query}",) if self.batches else ()

    def end_queries(self) -> bool:
        """Nobody asks for that here."""
        return False

    def close(self) -> None:
        """Nothing is left."""

    def is_connection_lost(self, error: Exception) -> bool:
        """Keeps what the loop fails with, and ends the run; nothing is lost here."""
        self.failure = error
        self.over.set()
        return False

    def _plan_next(self, start_s: float) -> Iterator[tuple[float, Event]]:
        """What happens next, and when: an executor leaves, a batch runs, a query waits."""
        if self._leaving:
            executor = self._leaving.pop(0)
            self._advance(self.now_s)
            del self._cores[executor]
            self._draining.discard(executor)
            yield self.now_s, ExecutorRemoved(executor, "retired")
            return
        if self.now_s >= self.trace.length_s:
            yield self.now_s, ApplicationEnded()
            return
        waiting = self.trace.count_until(start_s) - self._read
        if waiting < 1 or not self._cores:
            yield start_s + IDLE_S, QueryIdle(self.query)
            return
        rows = min(waiting, self.job.max_rows, self._bounds[self.query].take(start_s))
        number, trigger_s = len(self.batches), self.job.trigger_s or None
        finished = self._run_batch(start_s, rows)
        yield start_s, BatchPlanned(self.query, number, start_s, rows, waiting - rows, trigger_s)
        yield finished

    def _find_start_s(self) -> float:
        """When the next batch starts, if there are rows."""
        if self._last_start_s is None or not self.job.trigger_s:
            return self.now_s
        return max(self.now_s, self._last_start_s + self.job.trigger_s)

    def _is_interrupted_before(self, time_s: float) -> bool:
        """Whether something happens that the batch which starts then must know of."""
        if self._leaving:
            return False  # Executors leave at once.
        return min(self._find_call_s(), self._find_join_s()) <= time_s or self._asks_s < time_s

    def _find_call_s(self) -> float:
        return self._calls[0][0] if self._calls else math.inf

    def _find_join_s(self) -> float:
        return self._coming[0] if self._coming else math.inf

    def _run_batch(self, start_s: float, rows: float) -> tuple[float, Event]:
        number = len(self.batches)
        executors = dict(self._cores)
        live = sorted(self.executors() or executors)
        placement: dict[int, str] = {}
        for partition in range(self.job.partitions):
            wanted = self._targets.get(partition, self._placement.get(partition, ""))
            if wanted not in executors:
                wanted = self.chance.choice(live)
            placement[partition] = wanted
        hot_set = sum(start_s >= shift_s for shift_s in self.trace.shifts_s)
        weights = weigh_partitions(self.job, 1000 * self.seed + hot_set)
        batch = Batch(
            number,
            rows,
            start_s,
            executors,
            placement,
            self._placement,
            weights,
            self._locality_wait_s,
        )
        times = run_batch(self.job, batch, self.chance)
        ran_on = {task.partition: task.executor for task in times.tasks}
        moves = sum(self._placement.get(p, e) != e for p, e in ran_on.items())
        self._placement = ran_on
        end_s = start_s + times.duration_s
        first_row, self._read = self._read, self._read + rows
        interval_s = None if self._last_start_s is None else start_s - self._last_start_s
        self._last_start_s = start_s
        self.batches.append(BatchRun(start_s, end_s, first_row, self._read))
        sample = BatchSample(
            "q",
            number,
            end_s,
            times.duration_s,
            int(rows),
            interval_s,
            self.trace.count_until(start_s) - self._read,
            self.job.trigger_s or None,
            gaps_s=self.job.driver_s,
        )
        operator = StatefulOperator((0,), "StateStoreSave", self.job.partitions)
        operators = (operator,) if self.job.partitions else ()
        return end_s, BatchFinished("q", sample, times.tasks, operators, moves, True, times.stages)

    def _add_executor(self) -> str:
        executor = f"e{self._next_id}"
        self._next_id += 1
        self._cores[executor] = 1
        return executor

    def _advance(self, to_s: float) -> None:
        """Moves the clock; executors cost from the moment they are asked for."""
        self.executor_s += (len(self._cores) + len(self._coming)) * (to_s - self.now_s)
        self.now_s = to_s
