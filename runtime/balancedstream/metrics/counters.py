"""What has been counted so far: of the application and each query, operator, partition, shuffle."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import get_args

from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.decisions import DecisionKind
from balancedstream.core.memory.use import Memory, StateReads
from balancedstream.core.money import DailyCost, Price, cost_a_day
from balancedstream.core.samples import (
    BatchSample,
    KeySample,
    LossCause,
    ShuffleRecord,
    SlotHolder,
    StageKind,
    StageSample,
    StoreSample,
    TaskSample,
)
from balancedstream.core.wire import series as wire
from balancedstream.metrics.catalogue import BATCH_DURATION_BUCKETS_S
from balancedstream.record.records import PreparationTotals, start_preparation_totals

STAY_FACTOR = 1.25
"""A shown partition gives way only to one a quarter hotter: each change makes new series."""

_HEAT_WEIGHT = 0.2
"""Weight of the latest batch in a partition's heat: one slow task makes no hot partition."""


@dataclass(slots=True)
class Application:
    """The application as a whole; see the help texts in `catalogue`.

    Attributes:
        executors: that take work, id to cores.
        live: how many executors take work; a scale action says so before the next batch does.
        wanted: executors requested; None before the first scale action.
        advised: executors that there should be; None unless scaling only advises.
        memory: of the executors, as of the last batch.
        price: of executors; None without one.
        max_executors: to compare their cost with; 0 without scaling.
        holders: queries that hold slots.
    """

    epoch: int = 0
    moves: int = 0
    moves_settled: int = 0
    preparations: PreparationTotals = field(default_factory=start_preparation_totals)
    key_moves: int = 0
    key_moves_settled: int = 0
    scale_actions: dict[str, int] = field(default_factory=lambda: {"out": 0, "in": 0})
    losses: dict[LossCause, int] = field(
        default_factory=lambda: dict.fromkeys(get_args(LossCause), 0)
    )
    executors: dict[str, int] = field(default_factory=dict)
    live: int = 0
    wanted: int | None = None
    advised: int | None = None
    restore_cost: RestoreCost = field(default_factory=RestoreCost)
    memory: Memory = field(default_factory=Memory)
    price: Price | None = None
    max_executors: int = 0
    holders: tuple[SlotHolder, ...] = ()

    def cost_a_day(self) -> DailyCost | None:
        """What the live executors cost; None without a price."""
        return None if self.price is None else cost_a_day(self.price, self.live, self.max_executors)


@dataclass(slots=True)
class Work:
    """Sums over the tasks of a partition, or of an operator, on one executor or on all."""

    busy_s: float = 0.0
    restore_s: float = 0.0
    records: int = 0

    def add(self, task: TaskSample) -> None:
        """Adds a task."""
        self.busy_s += task.busy_s
        self.restore_s += task.restore_s
        self.records += task.records


@dataclass(slots=True)
class Stores:
    """RocksDB of an operator on one executor; the first two are those of the last batch."""

    memory_bytes: int = 0
    pinned_bytes: int = 0
    reads: int = 0
    read_s: float = 0.0
    hits: int = 0
    misses: int = 0

    def add(self, store: StoreSample) -> None:
        """Adds a batch."""
        self.memory_bytes, self.pinned_bytes = store.memory_bytes, store.pinned_bytes
        self.reads += store.gets
        self.read_s += store.get_s
        self.hits += store.hits
        self.misses += store.misses


@dataclass(slots=True)
class Partition:
    """One state partition; `heat` is its busy seconds per second, smoothed over batches."""

    heat: float
    executor: str = ""
    state_bytes: int = 0
    shown: bool = False
    work: Work = field(default_factory=Work)


@dataclass(slots=True)
class Operator:
    """One stateful operator; `balance` is its last imbalance with its bound."""

    partitions: dict[int, Partition] = field(default_factory=dict)
    work: Work = field(default_factory=Work)
    executors: dict[str, Work] = field(default_factory=dict)
    decisions: Counter[str] = field(
        default_factory=lambda: Counter(dict.fromkeys(get_args(DecisionKind), 0))
    )
    balance: tuple[float, float] | None = None
    under_way: int = 0  # partitions that are not yet on their target
    prepared: bool = False  # whether state is loaded ahead of moves
    preparing: int = 0  # partitions whose target loads their state now
    hot_keys: tuple[KeySample, ...] = ()
    stores: dict[str, Stores] = field(default_factory=dict)  # by executor, if in RocksDB
    reads: StateReads | None = None

    def add(self, task: TaskSample, heat: float) -> None:
        """Adds a task; `heat` is its busy seconds per second."""
        partition = self.partitions.get(task.partition)
        if partition is None:
            partition = self.partitions[task.partition] = Partition(heat)
        partition.heat += _HEAT_WEIGHT * (heat - partition.heat)
        partition.executor = task.executor
        partition.state_bytes = task.state_bytes
        partition.work.add(task)
        self.work.add(task)
        executor = self.executors.get(task.executor)
        if executor is None:
            executor = self.executors[task.executor] = Work()
        executor.add(task)


@dataclass(slots=True)
class Stage:
    """One kind of stage of a query; the first two fields are sums over its batches."""

    tasks: int = 0
    longest_s: float = 0.0
    executor_busy_s: dict[str, float] = field(default_factory=dict)

    def add(self, stage: StageSample) -> None:
        """Adds the stages of a batch."""
        self.tasks += stage.tasks
        self.longest_s += stage.longest_s
        for executor, busy_s in stage.executor_busy_s.items():
            self.executor_busy_s[executor] = self.executor_busy_s.get(executor, 0.0) + busy_s


@dataclass(slots=True)
class Query:
    """One running query.

    Attributes:
        input_rows: of all batches, as are the sums below.
        durations: number of batches in each bucket of the histogram; the last one is +Inf.
        driver_s: seconds without a task, by what the driver does.
        stages: the tasks, by kind of stage.
        ran_on: executors that had tasks in the last batch, also those that take no more work.
        idle_s: when Spark last said that it waits for data; None for never.
        keys_under_way: keys not yet in their target partition; None where no key is balanced.
        last_key_arrival: last batch in which keys arrived; None before the first.
    """

    last: BatchSample | None = None
    input_rows: int = 0
    duration_s: float = 0.0
    durations: list[int] = field(default_factory=lambda: [0] * (len(BATCH_DURATION_BUCKETS_S) + 1))
    driver_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    stages: dict[StageKind, Stage] = field(default_factory=dict)
    ran_on: set[str] = field(default_factory=set)
    idle_s: float | None = None
    task_failures: int = 0
    keys_under_way: int | None = None
    last_key_arrival: int | None = None
    operators: dict[int, Operator] = field(default_factory=dict)

    def add_driver_times(self, batch: BatchSample) -> None:
        """Adds what of a batch was no task."""
        self.driver_s[wire.OFFSETS] += batch.offsets_s
        self.driver_s[wire.PLANNING] += batch.planning_s
        self.driver_s[wire.COMMITS] += batch.commits_s
        self.driver_s[wire.GAPS] += batch.gaps_s


@dataclass(slots=True)
class Shuffle:
    """One cost-aware shuffle.

    Attributes:
        errors: of the estimates and of equal costs, in the last batch that judged them.
        untrusted_batches: those that judged the estimates since these were last trusted.
        batches: by how they were routed.
        estimated_s: load by the estimates, by partition.
        real_s: what the function took, by partition.
    """

    last: ShuffleRecord
    errors: tuple[float, float] | None = None
    untrusted_batches: int = 0
    batches: Counter[str] = field(default_factory=Counter)
    estimated_s: dict[int, float] = field(default_factory=dict)
    real_s: dict[int, float] = field(default_factory=dict)


def choose_shown(partitions: Sequence[Partition], limit: int) -> None:
    """Marks the hottest partitions as shown, `limit` at most, and all others as hidden."""
    chosen = partitions
    if len(partitions) > limit:
        chosen = heapq.nlargest(
            limit,
            partitions,
            key=lambda partition: partition.heat * (STAY_FACTOR if partition.shown else 1.0),
        )
    for partition in partitions:
        partition.shown = False
    for partition in chosen:
        partition.shown = True
