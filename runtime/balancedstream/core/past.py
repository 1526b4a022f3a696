"""What decisions remember of the ones before, the same embedded in the driver and in Kubernetes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from balancedstream.core.decisions import Decision
from balancedstream.core.observations import (
    MAX_DELAY_S,
    MAX_ROOM,
    MIN_DELAY_S,
    MIN_ROOM,
    START_S,
    Observation,
    ScaleOut,
)
from balancedstream.core.scaling.executors import INEFFECTIVE_HOLD_S, ScalingDecision
from balancedstream.core.scaling.verdicts import Verdict
from balancedstream.core.wire.plan import Plan

MAX_START_S = 600.0
"""Executors that came later say more of a full cluster than of a start."""

REGRET_S = 240.0
"""If executors are added so soon after some were removed, that was too early."""

_MORE_ROOM = 0.1
_LEARNS = 0.3
_FORGETS = 0.8


@dataclass(frozen=True, slots=True)
class Past:
    """What decisions remember of the ones before.

    Attributes:
        requested: executors that were decided on last; None before the first plan.
        scaled_at_s: when that number last changed, seconds since the Unix epoch; None for never.
        scale_outs: what the last executors that were added for each query should bring.
        planned_after: last finished batch of each query when the last plan was made.
        moved: whether that plan moved anything, so that older batches show loads that are gone.
        removed: whether the last change of the number removed executors.
        promised: rows per second of each query for which those that stayed were to be enough;
            empty if the last change of the number removed none for that reason.
        delay_s: seconds of which the highest need keeps executors; twice as long after a removal
            that was regretted because more rows came, and a fifth shorter after one that was not.
        room: executors that stay meet the objective also at so many times that need; more after a
            removal that was regretted although no more rows came, less after one that was not.
        start_s: seconds from the request of executors until they take work, by the last starts.
        starting: whether executors that were added are not all there.
    """

    requested: int | None = None
    scaled_at_s: float | None = None
    scale_outs: tuple[ScaleOut, ...] = ()
    planned_after: Mapping[str, int] = field(default_factory=dict)
    moved: bool = False
    removed: bool = False
    promised: Mapping[str, float] = field(default_factory=dict)
    delay_s: float = MIN_DELAY_S
    room: float = MIN_ROOM
    start_s: float = START_S
    starting: bool = False

    def recall(self, observation: Observation) -> Observation:
        """An observation with what is remembered of changes of the number of executors.

        >>> Past(scaled_at_s=5.0, start_s=31.0).recall(Observation(10.0, {"a": 1})).start_s
        31.0
        """
        return replace(
            observation,
            last_scaled_s=self.scaled_at_s,
            last_removed=self.removed,
            scale_in_delay_s=self.delay_s,
            room=self.room,
            start_s=self.start_s,
            scale_outs=self.scale_outs,
        )

    def after(
        self,
        decision: Decision,
        plan: Plan | None,
        now_s: float,
        last_batches: Mapping[str, int],
        *,
        joined: bool = True,
    ) -> Past:
        """What the next decision remembers.

        Args:
            decision: made with this past; `requested` is what its observation asked for.
            plan: that carries it out; None if there is none.
            now_s: when the plan is made, seconds since the Unix epoch.
            last_batches: last finished batch of each query.
            joined: whether all executors that were asked for are there.

        >>> from balancedstream.core.decisions import decide
        >>> from balancedstream.core.observations import Observation
        >>> from balancedstream.core.policy import Policy
        >>> decision = decide(Observation(10.0, {"a": 1}), Policy())
        >>> past = Past(2).after(decision, Plan(1, ("a",), {}), 12.0, {"q": 7})
        >>> past.requested, past.scaled_at_s, past.removed
        (1, 12.0, True)
        """
        scale_outs = {known.query: known for known in self.scale_outs}
        # Of executors that were added, it may know by now whether they helped.
        scale_outs |= {known.query: known for known in decision.scaling.judged}
        passed_s = math.inf if self.scaled_at_s is None else max(0.0, now_s - self.scaled_at_s)
        past = replace(self, scale_outs=tuple(scale_outs.values()))
        if self.starting and joined:
            start_s = self.start_s + _LEARNS * (passed_s - self.start_s)
            past = replace(past, starting=False, start_s=min(start_s, MAX_START_S))
        if plan is None:
            return past
        count, before = len(plan.executors), self.requested or 0
        made = decision.scaling.scale_out if count > before else None
        if made is not None:
            recent = (s for s in scale_outs.values() if now_s - s.at_s < INEFFECTIVE_HOLD_S)
            others = (known for known in recent if known.query != made.query)
            past = replace(past, scale_outs=(*others, made))
        changed = count != before
        # A floor that begins, or memory, tells nothing of whether those that stayed were enough.
        teaches = count < before or decision.scaling.verdict is Verdict.CAPACITY
        if self.removed and changed and teaches:
            past = past._learn(decision.scaling, added=count > before, passed_s=passed_s)
        return replace(
            past,
            requested=count,
            scaled_at_s=now_s if changed else past.scaled_at_s,
            planned_after=dict(last_batches),
            # An executor that leaves hands over its partitions, whatever balancing decided.
            moved=changed or bool(decision.moving),
            removed=count < before if changed else past.removed,
            promised=dict(decision.scaling.enough_for) if changed else past.promised,
            starting=count > before or (past.starting and not changed),
        )

    def set_back(self, now_s: float) -> Past:
        """With nothing that is still to come, after the clock was set back.

        >>> Past(scaled_at_s=90.0).set_back(50.0).scaled_at_s
        50.0
        """
        scaled_at_s = self.scaled_at_s
        if scaled_at_s is not None:
            scaled_at_s = min(scaled_at_s, now_s)
        scale_outs = tuple(replace(s, at_s=min(s.at_s, now_s)) for s in self.scale_outs)
        return replace(self, scale_outs=scale_outs, scaled_at_s=scaled_at_s)

    def stand(self, executors: int, at_s: float) -> Past:
        """With executors that a driver added by itself, under a standing plan.

        >>> Past(2, removed=True).stand(4, 9.0).removed
        False
        """
        return replace(self, requested=executors, scaled_at_s=at_s, removed=False, starting=True)

    def regret(self, before: Past, decision: ScalingDecision) -> Past:
        """With what executors that a driver added by itself teach about the removal before.

        Args:
            before: what was remembered before they were added.
            decision: the first one after it.
        """
        if not before.removed or before.scaled_at_s is None or self.scaled_at_s is None:
            return self
        passed_s = max(0.0, self.scaled_at_s - before.scaled_at_s)
        learnt = before._learn(decision, added=True, passed_s=passed_s)
        return replace(self, delay_s=learnt.delay_s, room=learnt.room)

    def _learn(self, decision: ScalingDecision, *, added: bool, passed_s: float) -> Past:
        """With what a change of the number teaches about the removal before it."""
        rates = {demand.query: demand.foreseen.rate for demand in decision.demands}
        kept = all(rates.get(q, math.inf) <= rate for q, rate in self.promised.items())
        if added and self.promised and kept:
            return replace(self, room=min(MAX_ROOM, self.room + _MORE_ROOM))
        if added and passed_s < REGRET_S:
            return replace(self, delay_s=min(MAX_DELAY_S, 2.0 * self.delay_s))
        return replace(
            self,
            delay_s=max(MIN_DELAY_S, _FORGETS * self.delay_s),
            room=max(MIN_ROOM, 1.0 + _FORGETS * (self.room - 1.0)),
        )
