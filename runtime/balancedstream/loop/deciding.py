"""Makes plans in the process that realizes them: the planner of the embedded home."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from balancedstream.core.balance.loads import prune
from balancedstream.core.decisions import Decision, DecisionKind, decide, foresee
from balancedstream.core.memory.use import Memory
from balancedstream.core.modes import switch_modes
from balancedstream.core.observations import Observation, PlanInForce
from balancedstream.core.past import Past
from balancedstream.core.periods import find_exclusion, find_floor
from balancedstream.core.planning import leave_out, propose
from balancedstream.core.policy import Mode, Policy
from balancedstream.core.samples import (
    BatchSample,
    KeySample,
    OperatorId,
    SlotHolder,
    StageSample,
    TaskSample,
)
from balancedstream.core.scaling.demand import MIN_BATCHES
from balancedstream.core.scaling.executors import ScalingDecision
from balancedstream.core.scaling.verdicts import LIMITS, Verdict
from balancedstream.core.scaling.workload import find_current
from balancedstream.engine.events import BatchPlanned, RowsWaiting
from balancedstream.loop.admitting import Admission
from balancedstream.loop.baseline import Baseline
from balancedstream.loop.ports import FinishedBatch
from balancedstream.loop.progress import RealizerState
from balancedstream.loop.query_keys import NO_ARRIVAL
from balancedstream.loop.realizing import Realizer, Why
from balancedstream.loop.sights import Sights
from balancedstream.record.journal import Journal
from balancedstream.record.wording import plural

LOOK_BACK_S = 600.0
"""What batches cost, and how many rows came, is known for so long."""

WEIGH_EVERY_S = 0.9
"""All queries are weighed at once, and so not at each batch of each, nor each time that a source is
asked: with twenty queries the driver's Python would have time for nothing else."""

CLOCK_SLACK_S = 5.0
"""What ended later than this from now ended before the clock was set back."""


class Decider:
    """Decides on the measurements of the last batches, after each; of many queries, once a second.

    Args:
        realizer: gets the plans.
        policy: all knobs.
        journal: records each decision.
        record: called with each observation that led to a plan, for `explain`.
        baseline_batches: batches to measure of each query before the first plan.
    """

    def __init__(
        self,
        realizer: Realizer,
        policy: Policy,
        journal: Journal,
        record: Callable[[Observation], None] | None = None,
        baseline_batches: int = 0,
    ) -> None:
        self._realizer = realizer
        self._admission = Admission(realizer, journal, policy.admission.mode)
        self._policy = policy
        self._journal = journal
        self._record = record
        self._baseline = Baseline(baseline_batches)
        self._tasks: list[TaskSample] = []
        self._keys: list[KeySample] = []
        self._stages: list[StageSample] = []
        self._batches: deque[BatchSample] = deque()
        self._sights = Sights()
        self._warm: set[str] = set()
        self._past = Past()
        self._idle_s: dict[str, float] = {}
        self._foreseen_s = -math.inf
        self._decided_s = -math.inf
        self._decided_for = self._foreseen_for = ""
        # Whether a batch ended that no decision has taken in.
        self._is_due = False
        # Operators that were measured since the last decision.
        self._measured: set[OperatorId] = set()
        # Executors that a look wanted since a batch ended: if they may not come, asking again and
        # again changes nothing.
        self._wanted = 0
        self._memory = Memory()
        self._paused = ""
        self._holders: tuple[SlotHolder, ...] = ()

    def look_for_plans(self, executors: Mapping[str, int], now_s: float) -> None:
        """Decides on batches that ended just after a decision."""
        if self._is_due and executors and not _is_lately(self._decided_s, now_s):
            self._decide(self._realizer.state(), executors, now_s)

    def finish_batch(self, batch: FinishedBatch) -> None:
        """Adds a batch to the measurements; then decides, if there are executors to decide for."""
        event, state = batch.event, self._realizer.state()
        query, self._wanted = event.query, 0
        self._batches.append(event.sample)
        self._memory = batch.memory
        self._sights.finish_batch(event.sample)
        # The first batch measures the start of Python workers, not the load.
        if query in self._warm:
            self._tasks.extend(event.tasks)
            self._stages.extend(event.stages)
        self._warm.add(query)
        self._keys.extend(state.keys.samples.get(query, ()))
        immovable = state.keys.immovable.get(query, frozenset())
        self._keys = [k for k in self._keys if k.query != query or k.key not in immovable]
        self._forget_before(query, state.keys.last_arrivals.get(query, NO_ARRIVAL))
        self._prune(batch.now_s)
        if self._baseline.finish_batch(event):
            self._journal.note(
                f"baseline: {plural(self._baseline.batches, 'batch')} measured without a change; "
                "balancing begins"
            )
        if not batch.executors:
            return
        if query not in state.keys.settling:
            self._measured |= {(query, operator.id) for operator in event.operators}
        self._is_due = _is_lately(self._decided_s, batch.now_s) and self._decided_for != query
        if not self._is_due:
            self._decided_for = query
            self._decide(state, batch.executors, batch.now_s)

    def note_idle(self, query: str, executors: Mapping[str, int], now_s: float) -> None:
        """A query waits for data; then decides, for fewer executors may do."""
        self._idle_s[query] = now_s
        self._prune(now_s)
        if executors:
            self._decide(self._realizer.state(), executors, now_s)

    def pause(self, reason: str) -> None:
        """From now on decisions only say what they would do, for this reason; "" ends that."""
        self._paused = reason

    def note_holders(self, holders: Sequence[SlotHolder]) -> None:
        """Decides from now on around these queries, which hold slots."""
        self._holders = tuple(holders)

    def note_executors(self, executors: Mapping[str, int], now_s: float) -> None:
        """When all executors that were asked for are there, decides what each one gets.

        At the end of the batch that runs it can hold; a long one leaves time to prepare it. Moves
        that are still being prepared were decided for fewer executors, and are decided anew.
        """
        state = self._realizer.state()
        if state.requested is None and self._tasks:
            moving = {o: moves for o, moves in state.moving.items() if o not in state.undecided}
            self._decide(replace(state, moving=moving), executors, now_s)

    def see(
        self, event: BatchPlanned | RowsWaiting, executors: Mapping[str, int], now_s: float
    ) -> None:
        """Decides before a batch ends, if what was seen needs more executors."""
        if not self._sights.see(event, now_s) or not executors:
            return
        lately = _is_lately(self._foreseen_s, now_s)
        if lately and (isinstance(event, RowsWaiting) or event.query != self._foreseen_for):
            if isinstance(event, BatchPlanned):
                self._admission.see(event)
            return
        self._foreseen_s, self._foreseen_for = now_s, event.query
        state = self._realizer.state()
        observation = self._observe(state, executors, now_s)
        scaling = foresee(observation, self._policy)
        self._realizer.expect(scaling.growth)
        if scaling.executors > max(observation.asked, self._wanted):
            self._wanted = scaling.executors
            self._decide(state, executors, now_s)
        elif isinstance(event, BatchPlanned):
            self._admit(scaling)
            self._admission.see(event)

    def _admit(self, scaling: ScalingDecision) -> None:
        if self._policy.admission.mode != "off" and not self._why_not_yet():
            self._admission.admit(scaling.bounds)

    def end_application(self) -> None:
        """Does nothing: there is nobody to tell."""

    def end_query(self, query: str) -> None:
        """Forgets a query that is over."""
        self._warm.discard(query)
        self._baseline.end_query(query)
        self._tasks = [t for t in self._tasks if t.query != query]
        self._keys = [k for k in self._keys if k.query != query]
        self._stages = [s for s in self._stages if s.query != query]
        self._batches = deque(b for b in self._batches if b.query != query)
        self._sights.end_query(query)
        self._idle_s.pop(query, None)
        self._admission.end_query(query)

    def _decide(self, state: RealizerState, executors: Mapping[str, int], now_s: float) -> None:
        """Decides on the present measurements; realizes a plan that changes something.

        Args:
            state: how far the plan in force is.
            executors: live executors, id to cores.
            now_s: seconds since the Unix epoch.
        """
        self._decided_s, self._is_due = now_s, False
        # The other operators have nothing new to report.
        measured, self._measured = self._measured, set()
        observation = self._observe(state, executors, now_s)
        past = replace(self._past, requested=observation.asked)
        decision = decide(observation, self._policy)
        plan = propose(state.epoch + 1, observation, decision, self._policy.migration)
        decision = leave_out(decision, plan)
        last_batches = {batch.query: batch.batch for batch in self._batches}
        joined = state.requested is None
        self._past = past.after(decision, plan, now_s, last_batches, joined=joined)
        self._admit(decision.scaling)
        self._realizer.expect(decision.scaling.growth)
        advice = self._decide_freely(observation, decision)
        for operator in sorted(measured & decision.balance.keys() - state.moving.keys()):
            self._report_balance(operator, decision, advice)
        self._report_scaling(advice.scaling, observation.asked)
        if plan is None:
            return
        scaling = decision.scaling
        why = Why(
            {operator: b.reason for operator, b in decision.balance.items() if b.moves},
            str(scaling.verdict),
            scaling.reason,
            {
                query: a.describe_reason(self._journal.name_key)
                for (query, _), a in decision.keys.items()
                if a.moves
            },
        )
        self._realizer.apply(plan, why)
        if self._record:
            self._record(observation)

    def _observe(
        self, state: RealizerState, executors: Mapping[str, int], now_s: float
    ) -> Observation:
        schedule = self._policy.schedule
        floor, floor_why = find_floor(schedule.floors, now_s)
        observation = Observation(
            now_s=now_s,
            executors=executors,
            tasks=tuple(self._tasks),
            batches=tuple(self._batches),
            restore_cost=state.restore_cost,
            requested=state.requested,
            keys=tuple(self._keys),
            stages=tuple(self._stages),
            idle_s=dict(self._idle_s),
            prepared=tuple(state.prepared),
            excluded=find_exclusion(schedule.excluded, now_s),
            floor=floor,
            floor_why=floor_why,
            in_force=PlanInForce(
                under_way=state.moving,
                settling=frozenset(state.keys.settling),
                key_placements=state.keys.placements,
                waits=self._why_not_yet(),
            ),
            sightings=self._sights.all,
            bounded=self._admission.bounded,
            holders=self._holders,
            memory=self._memory,
        )
        return self._past.recall(observation)

    def _decide_freely(self, observation: Observation, decision: Decision) -> Decision:
        """What would be decided if the policy acted and nothing had to wait."""
        policy = switch_modes(switch_modes(self._policy, "advise", "auto"), "off", "auto")
        if policy == self._policy and not observation.in_force.waits:
            return decision
        free = replace(observation, in_force=replace(observation.in_force, waits=""))
        return decide(free, policy)

    def _forget_before(self, query: str, batch: int) -> None:
        """Drops measurements from before keys changed their partition: loads differ since then."""
        if batch == NO_ARRIVAL:
            return
        self._tasks = [t for t in self._tasks if t.query != query or t.batch >= batch]
        self._keys = [k for k in self._keys if k.query != query or k.batch >= batch]

    def _forget_future(self, now_s: float) -> None:
        """Drops what has times that are still to come: it would count as the newest until then."""
        latest_s = now_s + CLOCK_SLACK_S
        known_s = (*(batch.finished_s for batch in self._batches), *self._idle_s.values())
        if max((*known_s, self._past.scaled_at_s or -math.inf), default=-math.inf) <= latest_s:
            return
        self._tasks = [task for task in self._tasks if task.finished_s <= latest_s]
        self._stages = [stage for stage in self._stages if stage.finished_s <= latest_s]
        self._batches = deque(b for b in self._batches if b.finished_s <= latest_s)
        self._sights = Sights()
        self._idle_s = {query: min(at_s, now_s) for query, at_s in self._idle_s.items()}
        self._past = self._past.set_back(now_s)
        self._journal.note(
            "the clock of the driver was set back: what was measured before is left out"
        )

    def _prune(self, now_s: float) -> None:
        self._forget_future(now_s)
        current = find_current(self._batches, now_s, self._idle_s)
        self._tasks = prune(self._tasks, self._policy, now_s, current)
        if self._keys:
            measured = {(task.query, task.batch) for task in self._tasks}
            self._keys = [key for key in self._keys if (key.query, key.batch) in measured]
        horizon_s = now_s - max(self._policy.scaling.window_s, LOOK_BACK_S)
        kept: deque[BatchSample] = deque()
        newest: Counter[str] = Counter()
        for batch in reversed(self._batches):
            newest[batch.query] += 1
            # A query with a slow trigger is measured on its last batches, however old they are.
            if batch.finished_s >= horizon_s or newest[batch.query] <= MIN_BATCHES + 1:
                kept.appendleft(batch)
        self._batches = kept
        of = {(batch.query, batch.batch) for batch in kept}
        self._stages = [stage for stage in self._stages if (stage.query, stage.batch) in of]

    def _report_balance(self, operator: OperatorId, decision: Decision, advice: Decision) -> None:
        """Reports what happens to an operator, or else what would if nothing were in the way."""
        mode, waits = self._policy.balance.mode, self._why_not_yet()
        told, kind = decision, self._name_act("move", mode)
        if not decision.list_moves(operator) and (mode != "auto" or waits):
            told = advice
        balance, keys = told.balance[operator], told.keys.get(operator)
        reason = told.describe_reason(operator, self._journal.name_key)
        if told.list_moves(operator):
            kind = "move" if told is decision else kind
        elif operator in told.held:
            kind = "hold"
        elif balance.unsplittable is not None or (keys and keys.unsplittable):
            kind = "limited"
        else:
            kind = "none"
        if told is not decision and mode != "auto":
            reason = f"{mode}: {reason}"
        elif told is not decision and waits:
            reason = f"{waits}; moves begin after that ({reason})"
        self._journal.add_balance(
            operator, kind, reason, decision.imbalance[operator], len(balance.moves)
        )

    def _report_scaling(self, scaling: ScalingDecision, asked: int) -> None:
        policy = self._policy.scaling
        if policy.max_executors == 0 or policy.mode == "off":
            return
        waits = self._why_not_yet()
        kind: DecisionKind = "limited" if scaling.verdict in LIMITS else "none"
        if scaling.executors != asked:
            kind = self._name_act("scale", policy.mode)
        reason = f"{scaling.verdict}: {scaling.reason}"
        if scaling.verdict is Verdict.MEMORY_BOUND and scaling.tight is not None:
            reason = f"{reason}. These sizes hold it: {scaling.tight.advise()}"
        if policy.mode == "advise":
            reason = f"advise: {reason}"
        elif waits:
            reason = f"{waits}; scaling begins after that ({reason})"
        self._journal.add_scaling(
            kind, reason, advised=scaling.executors if policy.mode == "advise" else None
        )

    def _name_act(self, act: DecisionKind, mode: Mode) -> DecisionKind:
        """What a decision with a cause to act comes to."""
        if mode == "advise":
            return "advise"
        return "hold" if mode == "off" or self._why_not_yet() else act

    def _why_not_yet(self) -> str:
        """Why nothing is to change now; empty if it may."""
        return self._paused or self._baseline.describe_missing()


def _is_lately(at_s: float, now_s: float) -> bool:
    """Whether all queries were weighed so lately that they need not be again."""
    return 0.0 <= now_s - at_s < WEIGH_EVERY_S
