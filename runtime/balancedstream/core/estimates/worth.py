"""Whether balancing and scaling would have been worth it, in one sentence with its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from balancedstream.core.estimates.application import HOUR_S, Fleet, QueryEstimate

LEAST_SAVED = 0.05
"""Less of batch time, or of executor-hours, is within the error of an estimate."""

FEW_BATCHES = 20


@dataclass(frozen=True, slots=True)
class Worth:
    """The outcome.

    Attributes:
        balancing: whether some query's batches would have been clearly shorter.
        scaling: whether clearly fewer executor-hours would have been enough, or more were needed;
            None if the log does not tell.
        sentence: the same for a person.
    """

    balancing: bool
    scaling: bool | None
    sentence: str


def judge(queries: Mapping[str, QueryEstimate], fleet: Fleet) -> Worth:
    """Whether it is worth it.

    >>> judge({}, Fleet()).sentence
    'no: no query keeps state on several executors; how many executors it needs cannot be told'
    """
    balancing, balance = _judge_balancing(queries.values(), fleet)
    scaling, scale = _judge_scaling(fleet)
    first, second = (scale, balance) if scaling and not balancing else (balance, scale)
    few = max((q.spread.batches for q in queries.values()), default=0) < FEW_BATCHES
    caution = f"; fewer than {FEW_BATCHES} batches tell little" if few and queries else ""
    answer = "yes" if balancing or scaling else "no"
    return Worth(balancing, scaling, f"{answer}: {first}; {second}{caution}")


def _judge_balancing(queries: Iterable[QueryEstimate], fleet: Fleet) -> tuple[bool, str]:
    counted = [q for q in queries if q.spread.batches]
    if not counted or fleet.most < 2:
        return False, "no query keeps state on several executors"
    best = max(counted, key=lambda query: query.spread.saved)
    saved = best.spread.saved
    if saved < LEAST_SAVED:
        return False, (f"balanced, batches would have been {max(0.0, saved):.0%} shorter at most")
    return True, (
        f"balanced, a batch of {best.query} would have taken {best.spread.balanced_batch_s:.2f} s "
        f"instead of {best.spread.batch_s:.2f} s ({saved:.0%} less)"
    )


def _judge_scaling(fleet: Fleet) -> tuple[bool | None, str]:
    use = fleet.use
    if use.needed is None or not use.judged_s:
        return None, "how many executors it needs cannot be told"
    used, needed = use.judged_s / HOUR_S, use.needed_s / HOUR_S
    saved = 1.0 - use.needed_s / use.judged_s
    if saved >= LEAST_SAVED:
        return True, (
            f"scaled, it would have needed {needed:.3g} executor-hours instead of {used:.3g} "
            f"({saved:.0%} less)"
        )
    if saved <= -LEAST_SAVED:
        return True, (
            f"it had {used:.3g} executor-hours and needed {needed:.3g} to be in time: scaling "
            "would have added executors"
        )
    return False, f"it needed the {used:.3g} executor-hours that it had"
