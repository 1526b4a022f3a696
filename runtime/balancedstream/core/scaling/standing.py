"""Standing plans: what a driver may do before it hears of its operator again.

Latency-conscious systems prepare a reconfiguration ahead of time, so that nothing has to be agreed
on when it is needed (`papers.md`). To do so for the number of executors is our own design: the
operator, which sees a batch up to half a minute later than the driver, says beforehand how many
executors are enough, and until when.
"""

from __future__ import annotations

import math

from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy
from balancedstream.core.scaling.demand import Demand
from balancedstream.core.scaling.executors import HOLD_S, SCALE_OUT_FACTOR, ScalingDecision
from balancedstream.core.scaling.verdicts import LIMITS
from balancedstream.core.wire.plan import Standing, StandingStep

GROWTH = 1.25
"""Each step has so many times the executors of the step before."""

OTHERWISE = 0.8
"""A plan is made anew for its steps if a limit of one is less than this part of what it was, or if
that is less than this part of what it is now."""


def prepare_standing(
    seen: Observation, scaling: ScalingDecision, policy: Policy
) -> Standing | None:
    """Until when each number of executors is enough, from the one that was decided on.

    The driver is to add none if the policy does not, if there are as many as may be, if more of
    them would not help, if some were removed just now, or if it was decided that more have to wait.

    Args:
        seen: the observation.
        scaling: the decision on it.
        policy: its scaling and admission.

    Returns:
        None if the driver is to do nothing by itself.
    """
    limits, bounds = policy.scaling, policy.admission.mode == "auto"
    if not scaling.demands:
        return None
    count = max(1, scaling.executors)
    most = min(limits.max_executors, SCALE_OUT_FACTOR * count)
    changed_s = -math.inf if seen.last_scaled_s is None else seen.last_scaled_s
    removed = scaling.executors < seen.asked or (
        seen.last_removed and seen.now_s - changed_s < HOLD_S
    )
    cores = sum(seen.executors.values()) / len(seen.executors)

    def prepare(demand: Demand, executors: int) -> StandingStep:
        working = limits.count_working(executors) * cores
        return demand.prepare(executors, executors * cores, working, bounds=bounds)

    # Nobody knows how many rows are too many for a query that has had none.
    demands = [demand for demand in scaling.demands if demand.knows_rows]
    first = [prepare(demand, count) for demand in demands]
    needed = any(
        demand.foreseen.ahead > step.rows_per_s or demand.then_rows > step.waiting_rows
        for demand, step in zip(demands, first, strict=True)
    )
    adds = limits.acts and most > count and scaling.verdict not in LIMITS
    patience_s = seen.start_s + max(demand.objective_s for demand in scaling.demands)
    begins_s = [period.find_begin_s(seen.now_s) for period in policy.schedule.excluded]
    until_s = min((begin_s for begin_s in begins_s if begin_s is not None), default=None)
    if not adds or removed or needed:
        bounded = tuple(step for step in first if step.batch_rows is not None)
        return Standing(seen.asked, patience_s, bounded, until_s) if bounded else None
    sizes = [count]
    while sizes[-1] < most:
        sizes.append(min(most, max(sizes[-1] + 1, math.ceil(GROWTH * sizes[-1]))))
    steps: list[StandingStep] = []
    for demand, step in zip(demands, first, strict=True):
        steps += [step, *(prepare(demand, n) for n in sizes[1:])]
    return Standing(seen.asked, patience_s, tuple(steps), until_s) if steps else None


def says_the_same(standing: Standing | None, before: Standing | None) -> bool:
    """Whether a standing plan is so near to the one in force that it needs no plan of its own.

    >>> from balancedstream.core.wire.plan import StandingStep
    >>> old, near, far = (
    ...     Standing(2, 60.0, (StandingStep("q", 2, rate, 900.0),)) for rate in (100.0, 90.0, 70.0))
    >>> says_the_same(near, old), says_the_same(far, old)
    (True, False)
    """
    if standing is None or before is None:
        return standing == before
    if (standing.asked, standing.until_s) != (before.asked, before.until_s):
        return False
    if len(standing.steps) != len(before.steps):
        return False
    for new, old in zip(standing.steps, before.steps, strict=True):
        if (new.query, new.executors) != (old.query, old.executors):
            return False
        if (new.batch_rows is None) != (old.batch_rows is None):
            return False
        limits = (
            (new.rows_per_s, old.rows_per_s),
            (new.waiting_rows, old.waiting_rows),
            (new.batch_rows or 0.0, old.batch_rows or 0.0),
        )
        if any(min(pair) < OTHERWISE * max(pair) for pair in limits):
            return False
    return True


def describe_standing(standing: Standing) -> str:
    """A standing plan for people.

    >>> from balancedstream.core.wire.plan import StandingStep
    >>> describe_standing(Standing(2, 60.0, (StandingStep("q", 2, 150.0, 4000.0),
    ...                                     StandingStep("q", 3, 230.0, 9000.0))))
    'q: 2 executors up to 150 rows/s and 4,000 waiting rows, beyond that up to 3'
    """
    texts = []
    for query in dict.fromkeys(step.query for step in standing.steps):
        mine = [step for step in standing.steps if step.query == query]
        first, most = mine[0], mine[-1].executors
        parts = []
        if len(mine) > 1:
            parts.append(
                f"{first.executors} executors up to {first.rows_per_s:,.0f} rows/s and "
                f"{first.waiting_rows:,.0f} waiting rows, beyond that up to {most}"
            )
        if first.batch_rows is not None:
            parts.append(f"batches of at most {first.batch_rows:,.0f} rows on {first.executors}")
        texts.append(f"{query}: {', '.join(parts)}")
    return "; ".join(texts)
