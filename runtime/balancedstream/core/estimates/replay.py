"""Replays the batches of an operator as balancing would have placed them.

Our own design. The placement of each batch follows from the batches before it alone, by the
functions that decide for a stream that runs. It is compared with where the batch's tasks ran.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from balancedstream.core.balance.hotspots import Thresholds, diminish
from balancedstream.core.balance.imbalance import measure_imbalance
from balancedstream.core.balance.loads import measure
from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.policy import Policy
from balancedstream.core.samples import TaskSample
from balancedstream.core.scaling.costs import StageCost


@dataclass(frozen=True, slots=True)
class Comparison:
    """One operator in one batch, as it ran and as it would have run; seconds per core.

    Attributes:
        mean_s: busy time of all partitions over all cores.
        hottest_s: busy time of the hottest executor, as the tasks ran.
        least_s: no placement has less; see `imbalance.find_bound`.
        balanced_s: the same as `hottest_s` where balancing would have placed the partitions.
        lasted_s: time that the operator's tasks take by the model of a stage, as they ran.
        would_last_s: the same as balancing would have placed them, with the restores of moves.
        moves: that balancing would have decided after the batch.
        unsplittable: the partition that alone exceeds an executor's share; None if none does.
    """

    mean_s: float
    hottest_s: float
    least_s: float
    balanced_s: float
    lasted_s: float
    would_last_s: float
    moves: int
    unsplittable: int | None


@dataclass(slots=True)
class Replay:
    """One operator, batch after batch.

    Attributes:
        policy: by which is decided.
        prepared: whether state is loaded ahead of moves, so that no batch waits for a restore.
        placement: where balancing has each partition.
    """

    policy: Policy
    prepared: bool = True
    placement: dict[int, str] = field(default_factory=dict)
    _recent: list[list[TaskSample]] = field(default_factory=list)
    _restoring_s: dict[str, float] = field(default_factory=dict)

    def take(self, tasks: Sequence[TaskSample], executors: Mapping[str, int]) -> Comparison:
        """Compares one batch, then decides for the next one.

        Args:
            tasks: of the operator in the batch, one a partition; not empty.
            executors: live ones and those that ran the tasks, id to cores.

        >>> def run(batch, *executors):
        ...     return [TaskSample("q", 0, p, batch, e, 2.0, 9, 0, float(batch))
        ...             for p, e in enumerate(executors)]
        >>> replay = Replay(Policy())
        >>> first = replay.take(run(1, "a", "a", "a", "b"), {"a": 1, "b": 1})
        >>> first.hottest_s, first.balanced_s, first.least_s, first.moves
        (6.0, 6.0, 4.0, 1)
        >>> replay.take(run(2, "a", "a", "a", "b"), {"a": 1, "b": 1}).balanced_s
        4.0
        """
        work_s = {task.partition: task.work_s for task in tasks}
        ran_on = {task.partition: task.executor for task in tasks}
        here = {p: e for p, e in self.placement.items() if e in executors}
        placed = {partition: here.get(partition, ran_on[partition]) for partition in work_s}
        before = measure_imbalance(work_s, ran_on, executors)
        then = measure_imbalance(work_s, placed, executors)
        cores = sum(executors.values())
        busy_s = sum(work_s.values())
        mean_s = busy_s / cores
        longest = max(work_s.values()) / busy_s if busy_s else 0.0
        even_s = StageCost(1.0, len(work_s), longest).last(busy_s, cores)
        lasted_s = max(even_s, before.imbalance * mean_s)
        would_last_s = max(even_s, self._find_hottest(work_s, placed, executors))
        moves, unsplittable = self._decide(tasks, placed, executors)
        return Comparison(
            mean_s,
            before.imbalance * mean_s,
            before.bound * mean_s,
            then.imbalance * mean_s,
            lasted_s,
            would_last_s,
            moves,
            unsplittable,
        )

    def _find_hottest(
        self, work_s: Mapping[int, float], placed: Mapping[int, str], executors: Mapping[str, int]
    ) -> float:
        busy_s: dict[str, float] = defaultdict(float)
        for partition, executor in placed.items():
            busy_s[executor] += work_s[partition]
        for executor, restore_s in self._restoring_s.items():
            busy_s[executor] += restore_s
        return max(s / executors.get(executor, 1) for executor, s in busy_s.items())

    def _decide(
        self,
        tasks: Sequence[TaskSample],
        placed: Mapping[int, str],
        executors: Mapping[str, int],
    ) -> tuple[int, int | None]:
        self._recent.append(
            [
                replace(t, executor=placed[t.partition], restore_s=0.0, busy_s=t.work_s)
                for t in tasks
            ]
        )
        del self._recent[: -self.policy.window.batches]
        samples = [task for batch in self._recent for task in batch]
        current = {(task.query, task.batch) for task in samples}
        now_s = max(task.finished_s for task in tasks)
        (load,) = measure(samples, executors, self.policy, now_s, current=current).values()
        cost = RestoreCost()
        move_cost_s = (
            {}
            if self.prepared
            else {partition: cost.estimate_s(size) for partition, size in load.state_bytes.items()}
        )
        decision = diminish(
            load.busy_s,
            load.placement,
            executors,
            Thresholds(self.policy.balance.act_above, self.policy.balance.horizon_batches),
            state_bytes=load.state_bytes,
            move_cost_s=move_cost_s,
            scatter=load.scatter,
        )
        self.placement = {**load.placement, **{m.partition: m.target for m in decision.moves}}
        self._restoring_s = defaultdict(float)
        for move in decision.moves:
            self._restoring_s[move.target] += move_cost_s.get(move.partition, 0.0)
        return len(decision.moves), decision.unsplittable
