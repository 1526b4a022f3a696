"""Makes plans come true: moves partitions in steps, starts executors, drains and retires them.

Both homes share this: embedded, the loop makes the plans itself; in Kubernetes the operator does.
The steps are Megaphone's (`core.migration`). A plan is a wish that is repeated until the tasks run
where it says; that is our own design. A plan from elsewhere may not know every partition. What runs
on an executor that leaves, or is gone, and has no place in the plan, is placed here.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from balancedstream.core.balance.hotspots import Move, place_orphans
from balancedstream.core.balance.migration import (
    RESTORE_CAUTION,
    choose_at_once,
    pays_at_once,
    pays_to_share,
    steps_ahead,
    steps_within,
)
from balancedstream.core.balance.restoring import (
    RestoreCost,
    fit_keys,
    learn_key_cost,
    learn_restore,
    learn_restore_cost,
)
from balancedstream.core.samples import OperatorId, TaskSample
from balancedstream.core.wire.plan import Answer, Plan, Standing, Stood, check_order
from balancedstream.engine.events import BatchFinished
from balancedstream.errors import BalancedStreamError
from balancedstream.loop.migrations import Migrations, make_one_step
from balancedstream.loop.places import Places
from balancedstream.loop.ports import Engine
from balancedstream.loop.progress import RealizerState
from balancedstream.loop.reassigning import KeyReassigner
from balancedstream.record.journal import Journal

IDLE_REPORTS = 6
"""A query that said so many times in a row that it waits for data, every 10 s, may do so for hours:
its partitions keep no executor, because the first batch can load them elsewhere."""

UNSEEN_BATCHES = 3
"""After so many batches without one task that can be measured, none of them will be."""

_UNSEEN = (
    "{}: it keeps state, but none of its tasks is seen, so nothing of it can be measured or moved. "
    "Results are right. If foreachBatch starts Spark's jobs from threads of its own, wrap what "
    "they run in pyspark.inheritable_thread_target"
)

SHARED_BATCHES = 2
"""The batch in which executors were asked for, and one more, are shared with them. Those that take
longer may never come."""


@dataclass(frozen=True)
class Why:
    """The reasons behind a plan, for a person.

    Attributes:
        moves: for the moves of each (query, operator) that is balanced; others follow `scaling`.
        verdict: what the scaling decision found.
        scaling: why the number of executors changes.
        keys: for the keys of each query that go to another state partition.
    """

    moves: Mapping[OperatorId, str]
    verdict: str = "plan"
    scaling: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)


class PausedError(BalancedStreamError):
    """A plan came while nothing is to move; the text says why."""


class Realizer:
    """Realizes one plan after the other on one application.

    Args:
        engine: the application.
        journal: records how every move ends.
    """

    def __init__(self, engine: Engine, journal: Journal) -> None:
        self._engine = engine
        self._journal = journal
        self._plan: Plan | None = None
        self._places: Places | None = None
        self._why = Why({})
        self._refused = ""
        self._restore_cost = RestoreCost()
        self._tasks: dict[OperatorId, dict[int, TaskSample]] = {}
        self._growth: dict[str, float] = {}
        self._spare_s: dict[str, float] = {}
        self._last_batches: dict[str, int] = {}
        self._migrations = Migrations(engine, journal)
        self._count: int | None = None
        self._stood: Stood | None = None
        self._stood_at_s = -math.inf
        self._batches_since_asked = 0
        self._retiring: set[str] = set()
        self._idle_reports: Counter[str] = Counter()
        self._unseen_batches: Counter[str] = Counter()
        self._reassigner = KeyReassigner(journal)
        self._paused = ""

    def pause(self, reason: str) -> None:
        """From now on nothing moves and no executor goes, for this reason; "" ends that."""
        if reason and not self._paused:
            self._migrations.withdraw(reason)
        self._paused = reason

    def state(self) -> RealizerState:
        """The present state, for the next plan."""
        asked, live = self._count, len(self._engine.executors())
        return RealizerState(
            epoch=self._plan.epoch if self._plan else 0,
            requested=None if asked is None or live >= asked else asked,
            restore_cost=self._restore_cost,
            moving=self._migrations.under_way(),
            keys=self._reassigner.state(),
            undecided=frozenset(o for o in self._tasks if not self._migrations.has_due(o)),
            prepared={
                operator: self._migrations.count_preparing(operator)
                for operator in self._tasks
                if self._migrations.prepares(operator)
            },
        )

    def answer(self) -> Answer:
        """The answer to the maker of the plans."""
        return Answer(self._plan.epoch if self._plan else 0, self._refused, stood=self._stood)

    @property
    def standing(self) -> Standing | None:
        """What the plan in force allows without another plan; None for nothing."""
        return None if self._plan is None or self._paused else self._plan.standing

    @property
    def stood_at_s(self) -> float:
        """When it last asked for executors without a plan, seconds since the Unix epoch."""
        return self._stood_at_s

    def stand(self, count: int, reason: str, now_s: float) -> None:
        """Asks for more executors, as the plan in force allows; the next plans may not know yet.

        Args:
            count: of executors that there should be.
            reason: for people.
            now_s: seconds since the Unix epoch.
        """
        live = len(self._engine.executors())
        asked = live if self._count is None else self._count
        if self._plan is None or self._paused or count <= asked:
            return
        self._stood, self._stood_at_s = Stood(count, now_s, reason), now_s
        self._engine.set_executor_count(count + len(self._retiring))
        self._batches_since_asked = 0
        self._count = count
        self._journal.add_scale(asked, live, count, "standing", reason)

    def apply(self, plan: Plan, why: Why) -> None:
        """Begins to realize a plan; moves of an older plan that it drops end.

        A plan with an `effective_batch` takes effect exactly there, or in the next batch if that
        one is over. The answer says why a plan was refused.

        Raises:
            StalePlanError: a newer plan was accepted before.
            PlanConflictError: another plan of this epoch was accepted before.
            InvalidInputError: a key does not belong to its query; the message names it.
            PausedError: nothing is to move now.
        """
        if plan == self._plan:
            return
        try:
            if self._paused:
                raise PausedError(self._paused)
            check_order(plan, self._plan)
            self._reassigner.check(plan)
        except BalancedStreamError as error:
            self._refused = str(error)
            raise
        self._plan, self._why = plan, why
        self._refused = ""
        self._journal.add_epoch(plan.epoch)
        self._size(plan, why)
        self._places = Places(plan, self._engine.executors())
        share = fit_keys(self._restore_cost, plan.budget_s)
        self._reassigner.apply(plan, share, why.keys)
        for operator in self._tasks:
            self._migrate(operator, self._places, why)

    def add_executor(self, executor: str) -> None:
        """Gives an executor that joined what the plan has for one to start."""
        if self._places and self._places.give(executor) and not self._paused:
            for operator in self._tasks:
                self._migrate(operator, self._places, self._why)

    def finish_batch(self, event: BatchFinished) -> None:
        """Notes where a batch's tasks ran: settles moves, and gives up those that are overdue."""
        batch = event.sample.batch
        self._last_batches[event.query] = batch
        self._spare_s[event.query] = (event.sample.trigger_s or 0.0) - event.sample.duration_s
        self._batches_since_asked += 1
        del self._idle_reports[event.query]
        by_operator = {(event.query, n): tasks for n, tasks in event.by_operator().items()}
        for operator, tasks in by_operator.items():
            if not self._migrations.prepares(operator):
                self._restore_cost = learn_restore_cost(
                    self._restore_cost, tasks.values(), self._tasks.get(operator, {})
                )
            self._tasks[operator] = tasks
            for state_bytes, load_s in self._migrations.finish_batch(
                operator, batch, tasks, event.preparations
            ):
                self._restore_cost = learn_restore(self._restore_cost, state_bytes, load_s)
        if event.has_state and not by_operator:
            self._unseen_batches[event.query] += 1
            if self._unseen_batches[event.query] == UNSEEN_BATCHES and not event.merged:
                self._journal.note(_UNSEEN.format(event.query))
        else:
            del self._unseen_batches[event.query]
        for operator in by_operator if not self._paused else ():
            self._hurry(operator)
            self._drain(operator)
        self._reassigner.finish_batch(event)
        self._restore_cost = learn_key_cost(
            self._restore_cost, *self._reassigner.handed_over(event.query)
        )

    def expect(self, growth: Mapping[str, float]) -> None:
        """Notes the busy seconds of the next batch of each query over those of its last one.

        More work makes moves worth their restores that were not in the last batch.
        """
        self._growth |= growth

    def bound(self, query: str, rows: float) -> str:
        """Bounds the rows of a query's next batches; returns why no source takes a bound, or ""."""
        return self._engine.bound(query, rows)

    def watch_sources(self) -> None:
        """Has the application tell what waits at its sources."""
        self._engine.watch_sources(wanted=True)

    def note_idle(self, query: str) -> None:
        """Notes that a query waits for data."""
        self._idle_reports[query] += 1

    def lose_executor(self, executor: str) -> bool:
        """Gives the partitions of an executor that left or was lost to others, whatever the plan.

        Spark would let their tasks wait for the dead executor as long as for a busy one.

        Returns:
            Whether it had any; a drained one has none.
        """
        self._retiring.discard(executor)
        if self._paused:
            return False
        live = self._engine.executors()
        reason = f"executor {executor} is gone"
        lost = False
        for operator, tasks in self._tasks.items():
            orphans = {p for p, task in tasks.items() if task.executor == executor}
            lost = lost or bool(orphans)
            if not live:
                continue
            targets = self._migrations.under_way().get(operator, {})
            under_way = {p: target for p, target in targets.items() if target in live}
            moves = self._place_orphans(operator, under_way)
            urgent = orphans & under_way.keys()
            if not urgent and not moves:
                continue
            last_batch = self._last_batches[operator[0]]
            for move in moves:
                if move.partition in targets:
                    self._journal.drop_move(operator, move.partition, reason)
                self._journal.add_move(operator, move, reason, last_batch)
            # At once, without waiting for their step, for the plan's batch, or for state.
            self._migrations.adopt(operator, urgent, moves, last_batch)
        return lost

    def should_share(self) -> bool:
        """Whether executors that are about to join should take tasks of the batch that runs."""
        live = self._engine.executors()
        missing = (self._count or 0) - len(live)
        if self._paused or missing <= 0 or not live or self._batches_since_asked >= SHARED_BATCHES:
            return False
        tasks = [task for of_operator in self._tasks.values() for task in of_operator.values()]
        return pays_to_share(
            sum(task.work_s for task in tasks),
            sum(self._restore_cost.estimate_s(task.state_bytes) for task in tasks),
            sum(live.values()),
            missing * max(live.values()),
        )

    def end_query(self, query: str) -> None:
        """Ends a query's moves with the query."""
        self._migrations.end_query(query)
        for operator in [operator for operator in self._tasks if operator[0] == query]:
            del self._tasks[operator]
        self._reassigner.end_query(query)
        self._last_batches.pop(query, None)
        del self._idle_reports[query]
        del self._unseen_batches[query]
        self._growth.pop(query, None)
        self._spare_s.pop(query, None)

    def retire_drained(self) -> None:
        """Removes drained executors that no longer run a state partition, or will not soon.

        Nobody knows where a query's partitions are whose batch began before it was watched. Their
        tasks would wait for an executor that left, as long as for a busy one.
        """
        if self._paused:
            return
        unseen = {query for query, n in self._unseen_batches.items() if n < UNSEEN_BATCHES}
        if any(map(self._keeps_executors, unseen)):
            return
        used = {
            task.executor
            for (query, _), tasks in self._tasks.items()
            if self._keeps_executors(query)
            for task in tasks.values()
        }
        for executor in sorted(self._retiring - used):
            self._retiring.discard(executor)
            self._engine.remove_executor(executor)

    def _keeps_executors(self, query: str) -> bool:
        return self._idle_reports[query] < IDLE_REPORTS

    def _size(self, plan: Plan, why: Why) -> None:
        """Asks for executors, or drains surplus ones that the plan does not name.

        An executor that the plan does not name is kept if the count is right: it may have replaced
        a lost one. A plan that only places leaves the number to whoever decides on it.
        """
        if not plan.sizes:
            return
        live = self._engine.executors()
        asked = len(live) if self._count is None else self._count
        count = len(plan.executors)
        if self._stood and plan.standing and plan.standing.asked < self._stood.executors:
            # Its maker did not know of them yet.
            count = max(count, self._stood.executors)
        else:
            self._stood = None
        unnamed = sorted(set(live) - set(plan.executors))
        for executor in unnamed[: max(0, len(live) - count)]:
            self._engine.drain(executor)
            self._retiring.add(executor)
        if count == asked:
            return
        if max(count, asked) > len(live):
            self._engine.set_executor_count(count + len(self._retiring))
            self._batches_since_asked = 0
        self._count = count
        self._journal.add_scale(asked, len(live), count, why.verdict, why.scaling)

    def _migrate(self, operator: OperatorId, places: Places, why: Why) -> None:
        """Begins an operator's moves; moves under way that the plan still wants continue."""
        plan = places.plan
        last_batch = self._last_batches[operator[0]]
        live = self._engine.executors()
        placement = self._list_places(operator)
        left = self._migrations.under_way().get(operator, {})
        wanted = places.owners(operator)
        named = {p: owner for p, owner in wanted.items() if owner in live}
        # A partition goes on to its target if the plan has no place for it, or if it has to leave.
        owners = {
            p: t
            for p, t in left.items()
            if t in live and (p not in wanted or placement.get(p) not in live)
        }
        owners |= named
        owners |= {move.partition: move.target for move in self._place_orphans(operator, owners)}
        moves = [
            Move(partition, placement.get(partition, ""), owner)
            for partition, owner in sorted(owners.items())
            if placement.get(partition) != owner
        ]
        from_batch = self._when(plan, last_batch)
        if from_batch is None and left == {move.partition: move.target for move in moves}:
            return
        coming_batches = self._reassigner.coming_batches(operator[0])
        if from_batch is None and coming_batches:
            # The placement fits the load after the keys have moved, so keys go first.
            from_batch = last_batch + coming_batches
        for partition, target in left.items():
            if owners.get(partition) != target:
                self._journal.drop_move(operator, partition, f"withdrawn by plan {plan.epoch}")
        if not moves and not left:
            return
        for move in moves:
            if left.get(move.partition) != move.target:
                reason = why.moves.get(operator, why.scaling)
                if move.partition not in named:
                    reason = _announce_leaving(move)
                self._journal.add_move(operator, move, reason, last_batch)
        self._begin(operator, moves, plan, from_batch)

    def _drain(self, operator: OperatorId) -> None:
        """Begins moves from executors that leave, if no move of the operator is under way.

        A plan names only what its maker knows, and a move may have been given up.
        """
        if self._plan is None or not self._retiring or operator in self._migrations.under_way():
            return
        moves = self._place_orphans(operator, {})
        for move in moves:
            self._journal.add_move(
                operator, move, _announce_leaving(move), self._last_batches[operator[0]]
            )
        if moves:
            self._begin(operator, moves, self._plan)

    def _place_orphans(self, operator: OperatorId, owners: Mapping[int, str]) -> tuple[Move, ...]:
        """Places the partitions that run on no live executor and have no new one in `owners`."""
        live = self._engine.executors()
        placement = self._list_places(operator) | dict(owners)
        if not live or live.keys() >= set(placement.values()):
            return ()
        return place_orphans(self._list_work_s(operator), placement, live)

    def _begin(
        self,
        operator: OperatorId,
        moves: Sequence[Move],
        plan: Plan,
        from_batch: int | None = None,
    ) -> None:
        """Begins moves in place of those that were under way: in steps, or at once if it pays."""
        if from_batch is None and self._begin_at_once(operator, moves, plan):
            return
        last_batch = self._last_batches[operator[0]]

        def split(left: Sequence[Move]) -> Iterator[tuple[Move, ...]]:
            return self._split(operator, left, plan)

        self._migrations.begin(operator, moves, split, last_batch, from_batch)

    def _hurry(self, operator: OperatorId) -> None:
        """Makes moves at once whose state is not there yet, if the next batch is shorter for it."""
        if self._plan is None or not self._migrations.count_preparing(operator):
            return
        if self._migrations.is_waiting_for_batch(operator):
            return
        placement = self._list_places(operator)
        moves = [
            Move(partition, placement.get(partition, ""), target)
            for partition, target in sorted(self._migrations.under_way()[operator].items())
        ]
        self._begin_at_once(operator, moves, self._plan)

    def _begin_at_once(self, operator: OperatorId, moves: Sequence[Move], plan: Plan) -> bool:
        """Begins moves that would be prepared without that, if it pays; whether it did."""
        if not self._migrations.prepares(operator):
            return False
        pays = pays_at_once(
            moves,
            self._list_work_s(operator),
            self._list_places(operator),
            self._engine.executors(),
            lambda move: self._estimate_restore_s(operator, move),
        )
        if not pays or not self._engine.is_between_batches(operator[0]):
            return False
        last_batch = self._last_batches[operator[0]]
        self._migrations.begin(operator, moves, make_one_step, last_batch, at_once=True)
        return True

    def _when(self, plan: Plan, last_batch: int) -> int | None:
        """The batch that a plan waits for; None if it is due at once."""
        effective = plan.effective_batch
        return effective if effective is not None and effective > last_batch + 1 else None

    def _split(
        self, operator: OperatorId, moves: Sequence[Move], plan: Plan
    ) -> Iterator[tuple[Move, ...]]:
        def load_s(move: Move) -> float:
            return self._estimate_restore_s(operator, move)

        if not self._migrations.prepares(operator):
            at_once = choose_at_once(
                moves,
                self._list_work_s(operator),
                self._list_places(operator),
                self._engine.executors(),
                load_s,
            )
            # Restores in a batch that ends before the next trigger delay no other batch.
            spare_s = self._spare_s.get(operator[0], 0.0) / RESTORE_CAUTION
            budget_s = max(plan.budget_s, spare_s)
            return iter([at_once]) if at_once else steps_within(moves, budget_s, load_s)
        return steps_ahead(
            moves,
            plan.budget_s,
            load_s,
            state_bytes=lambda move: self._size_state(operator, move),
            loading_bytes=self._sum_loading(),
            busy_s=self._list_work_s(operator),
            placement=self._list_places(operator),
            executors=self._engine.executors(),
            begun=self._migrations.list_begun(operator),
        )

    def _list_work_s(self, operator: OperatorId) -> dict[int, float]:
        growth = self._growth.get(operator[0], 1.0)
        return {p: growth * task.work_s for p, task in self._tasks[operator].items()}

    def _list_places(self, operator: OperatorId) -> dict[int, str]:
        return {partition: task.executor for partition, task in self._tasks[operator].items()}

    def _estimate_restore_s(self, operator: OperatorId, move: Move) -> float:
        return self._restore_cost.estimate_s(self._size_state(operator, move))

    def _sum_loading(self) -> dict[str, int]:
        """Size of the state that executors load ahead now, for all operators, by executor."""
        sizes: dict[str, int] = defaultdict(int)
        for operator, move in self._migrations.list_loading():
            sizes[move.target] += self._size_state(operator, move)
        return sizes

    def _size_state(self, operator: OperatorId, move: Move) -> int:
        task = self._tasks[operator].get(move.partition)
        return task.state_bytes if task else 0


def _announce_leaving(move: Move) -> str:
    return f"executor {move.source} takes no more work"
