"""What decisions remember of the ones before, the same embedded in the driver and in Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from balancedstream.core.decisions import Decision
from balancedstream.core.observations import ScaleOut
from balancedstream.core.wire.plan import Plan


@dataclass(frozen=True, slots=True)
class Past:
    """What decisions remember of the ones before.

    Attributes:
        requested: executors that were decided on last; None before the first plan.
        scaled_at_s: when that number last changed, seconds since the Unix epoch; None for never.
        scale_out: what the last added executors should bring; None if none were added.
        planned_after: last finished batch of each query when the last plan was made.
        moved: whether that plan moved anything, so that older batches show loads that are gone.
    """

    requested: int | None = None
    scaled_at_s: float | None = None
    scale_out: ScaleOut | None = None
    planned_after: Mapping[str, int] = field(default_factory=dict)
    moved: bool = False

    def after(
        self, decision: Decision, plan: Plan | None, now_s: float, last_batches: Mapping[str, int]
    ) -> Past:
        """What the next decision remembers.

        Args:
            decision: made with this past; `requested` is what its observation asked for.
            plan: that carries it out; None if there is none.
            now_s: when the plan is made, seconds since the Unix epoch.
            last_batches: last finished batch of each query.

        >>> from balancedstream.core.decisions import decide
        >>> from balancedstream.core.observations import Observation
        >>> from balancedstream.core.policy import Policy
        >>> decision = decide(Observation(10.0, {"a": 1}), Policy())
        >>> Past(2).after(decision, Plan(1, ("a",), {}), 12.0, {"q": 7})
        Past(requested=1, scaled_at_s=12.0, scale_out=None, planned_after={'q': 7}, moved=True)
        """
        found, known = decision.scaling.scale_out, self.scale_out
        # Of executors that were added, it may know by now whether they helped.
        judged = found if found and known and found.at_s == known.at_s else known
        if plan is None:
            return replace(self, scale_out=judged)
        count, before = len(plan.executors), self.requested or 0
        return Past(
            requested=count,
            scaled_at_s=now_s if count != before else self.scaled_at_s,
            scale_out=found or judged if count > before else judged,
            planned_after=dict(last_batches),
            # An executor that leaves hands over its partitions, whatever balancing decided.
            moved=count != before or bool(decision.moving),
        )
