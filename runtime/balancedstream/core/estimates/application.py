"""Sums up an application that ran without balancing, and what balancing would have brought it.

Our own design. Only sums are kept, and what the next decision needs: logs are long.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from balancedstream.core.balance.loads import measure
from balancedstream.core.estimates.needs import find_needed, with_trigger
from balancedstream.core.estimates.replay import Replay
from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy
from balancedstream.core.samples import BatchSample, OperatorId, StageSample, TaskSample
from balancedstream.core.scaling.demand import measure_demands
from balancedstream.core.scaling.limits import find_limit
from balancedstream.core.scaling.verdicts import Verdict

SLOT_S = 300.0
"""How many executors are needed is decided so often, for the highest rate since the last time."""

HOUR_S = 3600.0

_MAX_BATCHES = 60
"""Of each query, so many batches tell what a row costs and how many come."""


_MAX_SILENCE_S = 30 * 24 * HOUR_S
"""If nothing is told for longer, a clock was set."""


@dataclass(slots=True)
class Spread:
    """How even the work with state was, and would have been; sums over batches.

    Attributes:
        batches: how many have rows and state, the first one of a run left out.
        duration_s: seconds of these batches.
        balanced_s: the same if they had been balanced.
        mean_s: busy seconds per core of the tasks with state.
        hottest_s: of the hottest executor in each batch.
        least_s: no placement has less.
        placed_s: of the hottest executor as balancing would have placed partitions.
    """

    batches: int = 0
    duration_s: float = 0.0
    balanced_s: float = 0.0
    mean_s: float = 0.0
    hottest_s: float = 0.0
    least_s: float = 0.0
    placed_s: float = 0.0

    @property
    def imbalance(self) -> float | None:
        """The hottest executor's busy time over the mean; None without work."""
        return self.hottest_s / self.mean_s if self.mean_s else None

    @property
    def bound(self) -> float | None:
        """No placement is more even; None without work."""
        return self.least_s / self.mean_s if self.mean_s else None

    @property
    def balanced_imbalance(self) -> float | None:
        """The imbalance that balancing would have left; None without work."""
        return self.placed_s / self.mean_s if self.mean_s else None

    @property
    def batch_s(self) -> float | None:
        """Mean seconds of a batch; None without one."""
        return self.duration_s / self.batches if self.batches else None

    @property
    def balanced_batch_s(self) -> float | None:
        """Mean seconds of a batch if balanced; None without one."""
        return self.balanced_s / self.batches if self.batches else None

    @property
    def saved(self) -> float:
        """The part of batch time that balancing saves; below 0 if it costs time."""
        return 1.0 - self.balanced_s / self.duration_s if self.duration_s else 0.0


@dataclass(frozen=True, slots=True)
class Limit:
    """What keeps more executors from making batches shorter."""

    verdict: Verdict
    sentence: str


@dataclass(slots=True)
class QueryEstimate:
    """One query.

    Attributes:
        query: what it is called.
        batches: all that were read.
        rows: that they read.
        spread: over the whole log.
        hours: number of the hour since the Unix epoch to the spread in it.
        partitions: operator to the number of its state partitions.
        moves: partitions that balancing would have moved.
        unsplittable: batches in which one partition alone exceeded an executor's share.
        heaviest: that partition, when it was last seen: (operator, partition).
        limit: what was last found to limit its batches; None if executors do.
        unjudged: whether no slot had enough batches to say what limits them.
    """

    query: str
    batches: int = 0
    rows: int = 0
    spread: Spread = field(default_factory=Spread)
    hours: dict[int, Spread] = field(default_factory=lambda: defaultdict(Spread))
    partitions: dict[int, int] = field(default_factory=dict)
    moves: int = 0
    unsplittable: int = 0
    heaviest: tuple[int, int] | None = None
    limit: Limit | None = None
    unjudged: bool = True


@dataclass(slots=True)
class Use:
    """Executors over a time.

    Attributes:
        seconds: of the time.
        used_s: executor-seconds that were there.
        judged_s: executor-seconds of the slots of which the need is known.
        needed_s: executor-seconds that would have been enough in these.
        needed: the most executors that were needed at once; None if no slot tells.
    """

    seconds: float = 0.0
    used_s: float = 0.0
    judged_s: float = 0.0
    needed_s: float = 0.0
    needed: int | None = None

    def add(self, seconds: float, executors: int) -> None:
        """So many executors were there."""
        self.seconds += seconds
        self.used_s += seconds * executors

    def judge(self, seconds: float, used_s: float, needed: int) -> None:
        """So many would have been enough."""
        self.judged_s += used_s
        self.needed_s += seconds * needed
        self.needed = max(self.needed or 0, needed)


@dataclass(slots=True)
class Fleet:
    """What became of the executors.

    Attributes:
        first_s: when the first batch ended, in seconds since the Unix epoch; None before.
        added: executors that joined after that.
        removed: executors that somebody let go after that.
        lost: executors that were lost after that.
        fewest: at once, after that; None before.
        most: at once, after that.
        cores: of one executor, as the last one had.
        use: over the whole time.
        hours: number of the hour since the Unix epoch to the use in it.
    """

    first_s: float | None = None
    added: int = 0
    removed: int = 0
    lost: int = 0
    fewest: int | None = None
    most: int = 0
    cores: int = 1
    use: Use = field(default_factory=Use)
    hours: dict[int, Use] = field(default_factory=lambda: defaultdict(Use))


@dataclass(slots=True)
class _Recent:
    """What the next decision needs of a query."""

    batches: deque[BatchSample] = field(default_factory=lambda: deque(maxlen=_MAX_BATCHES))
    stages: deque[tuple[StageSample, ...]] = field(
        default_factory=lambda: deque(maxlen=_MAX_BATCHES)
    )
    tasks: deque[tuple[TaskSample, ...]] = field(default_factory=deque)


@dataclass(slots=True)
class Application:
    """One application, from its executors and batches in the order in which they happened.

    Attributes:
        policy: by which balancing and scaling would have decided.
        prepared: whether state is loaded ahead of moves, see `Replay`.
        queries: by what they are called.
        fleet: its executors.
        executors: live ones, id to cores.

    >>> application = Application(Policy())
    >>> for executor in ("a", "b"):
    ...     application.add_executor(executor, 1, at_s=0.0)
    >>> for n in range(1, 4):
    ...     at_s = 10.0 * n
    ...     tasks = [TaskSample("q", 0, p, n, e, 2.0, 9, 0, at_s) for p, e in enumerate("aaab")]
    ...     application.take(BatchSample("q", n, at_s, 7.0, 36, 10.0), tasks, (), new_run=n == 1)
    >>> spread = application.queries["q"].spread
    >>> spread.batch_s, spread.balanced_batch_s, spread.imbalance
    (7.0, 5.7, 1.5)
    """

    policy: Policy
    prepared: bool = True
    queries: dict[str, QueryEstimate] = field(default_factory=dict)
    fleet: Fleet = field(default_factory=Fleet)
    executors: dict[str, int] = field(default_factory=dict)
    _replays: dict[OperatorId, Replay] = field(default_factory=dict)
    _recent: dict[str, _Recent] = field(default_factory=lambda: defaultdict(_Recent))
    _idle_s: dict[str, float] = field(default_factory=dict)
    _cores_of: dict[str, int] = field(default_factory=dict)
    _at_s: float = -math.inf
    _slot_s: float = 0.0
    _slot_used_s: float = 0.0
    _last_batch_s: float = -math.inf
    _slot_has_news: bool = False

    def add_executor(self, executor: str, cores: int, at_s: float) -> None:
        """An executor joined."""
        self._pass(at_s)
        self.fleet.added += self.fleet.first_s is not None and executor not in self.executors
        self.executors[executor] = self.fleet.cores = self._cores_of[executor] = max(1, cores)
        self._count()

    def remove_executor(self, executor: str, at_s: float, *, lost: bool) -> None:
        """An executor left."""
        self._pass(at_s)
        if self.executors.pop(executor, None) is not None and self.fleet.first_s is not None:
            self.fleet.removed += not lost
            self.fleet.lost += lost
        self._count()

    def take(
        self,
        batch: BatchSample,
        tasks: Sequence[TaskSample],
        stages: Sequence[StageSample],
        *,
        new_run: bool = False,
    ) -> None:
        """A batch ended.

        Args:
            batch: as a whole.
            tasks: that ran state partitions.
            stages: all of its tasks by kind of stage.
            new_run: whether it is the first one of a run of its query, which starts what is cold.
        """
        self._pass(batch.finished_s)
        if self.fleet.first_s is None:
            self.fleet.first_s = batch.finished_s
        # A log that begins in the middle of an application does not tell that all of them joined.
        seen = {task.executor for task in tasks}.union(*(stage.executor_busy_s for stage in stages))
        for executor in seen - self._cores_of.keys():
            self.executors[executor] = self._cores_of[executor] = self.fleet.cores
        query = self.queries.setdefault(batch.query, QueryEstimate(batch.query))
        query.batches += 1
        query.rows += batch.input_rows
        self._compare(query, batch, tasks, new_run)
        recent = self._recent[batch.query]
        recent.batches.append(batch)
        recent.stages.append(tuple(stages))
        recent.tasks.append(tuple(tasks))
        while len(recent.tasks) > self.policy.window.batches:
            recent.tasks.popleft()
        self._last_batch_s, self._slot_has_news = batch.finished_s, True
        self._count()

    def wait(self, query: str, at_s: float) -> None:
        """A query waits for data."""
        self._pass(at_s)
        self._idle_s[query] = self._last_batch_s = at_s
        self._slot_has_news = True

    def end_query(self, query: str) -> None:
        """A query ended: what it demands ends, too."""
        self._judge_slot()
        self._recent.pop(query, None)
        self._idle_s.pop(query, None)

    def end(self, at_s: float) -> None:
        """The application, or the log, ended."""
        self._pass(at_s)
        self._judge_slot()

    def _compare(
        self,
        query: QueryEstimate,
        batch: BatchSample,
        tasks: Sequence[TaskSample],
        new_run: bool,
    ) -> None:
        by_operator: dict[int, list[TaskSample]] = defaultdict(list)
        for task in tasks:
            by_operator[task.operator].append(task)
        executors = {
            e: self._cores_of[e] for e in self.executors.keys() | {t.executor for t in tasks}
        }
        found = []
        for operator, own in by_operator.items():
            key = batch.query, operator
            if new_run or key not in self._replays:
                self._replays[key] = Replay(self.policy, self.prepared)
            comparison = self._replays[key].take(own, executors)
            query.partitions[operator] = len(own)
            query.moves += comparison.moves
            if comparison.unsplittable is not None:
                query.unsplittable += 1
                query.heaviest = operator, comparison.unsplittable
            found.append(comparison)
        if new_run or not found or batch.input_rows <= 0:
            return
        lasted_s = sum(c.lasted_s for c in found)
        would_s = sum(c.would_last_s for c in found)
        # Tasks cannot save more than the time in which tasks ran.
        saved_s = min(lasted_s - would_s, max(0.0, batch.duration_s - batch.driver_s))
        for spread in (query.spread, query.hours[int(batch.finished_s // HOUR_S)]):
            spread.batches += 1
            spread.duration_s += batch.duration_s
            spread.balanced_s += batch.duration_s - saved_s
            spread.mean_s += sum(c.mean_s for c in found)
            spread.hottest_s += sum(c.hottest_s for c in found)
            spread.least_s += sum(c.least_s for c in found)
            spread.placed_s += sum(c.balanced_s for c in found)

    def _pass(self, at_s: float) -> None:
        """Time passes; it never goes back, as a clock may that is set, nor jumps far ahead."""
        if not math.isfinite(self._at_s) or at_s > self._at_s + _MAX_SILENCE_S:
            self._at_s = self._slot_s = at_s
        while at_s > self._at_s:
            hour = int(self._at_s // HOUR_S)
            until_s = min(at_s, (hour + 1) * HOUR_S, self._slot_s + SLOT_S)
            if not self.executors and self.fleet.first_s is None:
                until_s = at_s
                self._slot_s = at_s
            passed_s = until_s - self._at_s
            for use in (self.fleet.use, self.fleet.hours[hour]):
                use.add(passed_s, len(self.executors))
            self._slot_used_s += passed_s * len(self.executors)
            self._at_s = until_s
            if until_s >= self._slot_s + SLOT_S:
                self._judge_slot()

    def _judge_slot(self) -> None:
        """Says how many executors the time since the last slot needed, and what limits batches."""
        begun_s, seconds = self._slot_s, self._at_s - self._slot_s
        used_s, news = self._slot_used_s, self._slot_has_news
        self._slot_s, self._slot_used_s, self._slot_has_news = self._at_s, 0.0, False
        if not news or not self.executors:
            return
        recent = list(self._recent.values())
        seen = Observation(
            self._last_batch_s,
            self.executors,
            tasks=tuple(task for r in recent for batch in r.tasks for task in batch),
            batches=tuple(batch for r in recent for batch in with_trigger(list(r.batches))),
            stages=tuple(stage for r in recent for batch in r.stages for stage in batch),
            idle_s=self._idle_s,
        )
        current = {(r.batches[-1].query, r.batches[-1].batch) for r in recent if r.batches}
        loads = measure(seen.tasks, self.executors, self.policy, seen.now_s, current=current)
        load = measure_demands(seen, loads, self.policy.scaling, current)
        for demand in load.demands:
            query = self.queries[demand.query]
            limit = find_limit(demand, sum(self.executors.values()), loads)
            query.limit = None if limit is None else Limit(*limit)
            query.unjudged = False
        needed = None if load.unmeasured else find_needed(load.demands, self.executors, begun_s)
        if needed is not None and seconds > 0.0:
            self.fleet.use.judge(seconds, used_s, needed)
            self.fleet.hours[int(begun_s // HOUR_S)].judge(seconds, used_s, needed)

    def _count(self) -> None:
        if self.fleet.first_s is not None:
            count = len(self.executors)
            self.fleet.most = max(self.fleet.most, count)
            self.fleet.fewest = (
                count if self.fleet.fewest is None else min(self.fleet.fewest, count)
            )
