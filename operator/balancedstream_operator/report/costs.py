"""Reports whether the estimates of cost-aware shuffles hold: pure."""

from __future__ import annotations

from collections.abc import Sequence

from balancedstream_operator.api.conditions import COSTS_TRUSTED, Condition
from balancedstream_operator.observe.measurement import ShuffleSample

DISTRUSTED_BATCHES = 10
"""Estimates that were untrusted for this many batches in a row do not improve by themselves."""

COSTS_DIFFER = 0.2
"""Error of equal costs, as a fraction of the total cost, above which estimates would help."""

COSTS_STILL_DIFFER = 0.1
"""The same once CostsTrusted is False, so that an error that fluctuates makes only one event."""


def judge_costs(shuffles: Sequence[ShuffleSample], *, distrusted: bool) -> Condition:
    """Whether the estimates of all shuffles hold, or have been off for too long.

    A shuffle that starts, or whose costs have changed, uses round robin while it learns. A shuffle
    whose rows cost much the same rightly stays with round robin. The thresholds are our own design.

    `distrusted` tells whether the last pass reported them as off.

    >>> judge_costs([ShuffleSample("label-by-kind", False, 12, 0.6, 0.5)], distrusted=False).holds
    False
    >>> judge_costs([ShuffleSample("label-by-kind", False, 3, 0.6, 0.5)], distrusted=False).reason
    'Learning'
    """
    if not shuffles:
        message = "no batch has gone through a cost-aware shuffle"
        return Condition(COSTS_TRUSTED, None, "NoShuffle", message)
    least = COSTS_STILL_DIFFER if distrusted else COSTS_DIFFER
    ranked = sorted(shuffles, key=lambda s: -(s.equal_error or 0.0))
    waiting = [s for s in ranked if not s.trusted]
    judged = [s for s in waiting if s.untrusted_batches >= DISTRUSTED_BATCHES]
    missed = [s for s in judged if (s.equal_error or 0.0) > least]
    learning = [s for s in waiting if s.untrusted_batches < DISTRUSTED_BATCHES]
    trusted = [s for s in ranked if s.trusted]
    if missed:
        shuffle = missed[0]
        return Condition(
            COSTS_TRUSTED,
            False,
            "EstimatesOff",
            f"{_name_first(missed)}: {_describe_errors(shuffle)}, and {shuffle.untrusted_batches} "
            "batches in a row did not trust them. Its rows go round robin meanwhile: none is lost, "
            "duplicated or changed, but a batch waits for the partition with the most expensive "
            "rows. Choose a cost key that predicts costs better, and make sure that the function "
            "works while it reads its input (docs/shuffle.md)",
        )
    if learning:
        message = (
            f"{_name_first(learning)}: {_describe_errors(learning[0])}; rows go round robin while "
            f"the shuffle learns costs ({learning[0].untrusted_batches} batches have checked them; "
            f"after {DISTRUSTED_BATCHES} the operator judges the estimates)"
        )
        return Condition(COSTS_TRUSTED, None, "Learning", message)
    if trusted:
        message = (
            f"{_name_first(trusted)}: {_describe_errors(trusted[0])}; rows are routed by estimates"
        )
        return Condition(COSTS_TRUSTED, True, "EstimatesHold", message)
    message = (
        f"{_name_first(judged)}: {_describe_errors(judged[0])}; rows cost much the same, and round "
        "robin spreads them just as well"
    )
    return Condition(COSTS_TRUSTED, None, "CostsAlike", message)


def _name_first(shuffles: Sequence[ShuffleSample]) -> str:
    others = f" (and {len(shuffles) - 1} more)" if len(shuffles) > 1 else ""
    return f"shuffle {shuffles[0].shuffle}{others}"


def _describe_errors(shuffle: ShuffleSample) -> str:
    if shuffle.error is None or shuffle.equal_error is None:
        return "no batch has checked the estimates since the driver started"
    return (
        f"the estimates were off by {100 * shuffle.error:.0f} %, "
        f"equal costs would be off by {100 * shuffle.equal_error:.0f} %"
    )
