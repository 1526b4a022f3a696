"""Reports another number of state partitions: pure."""

from __future__ import annotations

from collections.abc import Iterator

from balancedstream_operator.api.conditions import (
    PARTITIONS_AS_ASKED,
    REPARTITIONING,
    Condition,
)
from balancedstream_operator.api.status import RepartitionStatus, Status, format_time, summarize
from balancedstream_operator.repartition.steps import Repartition, describe


def judge_repartition(known: Repartition | None, before: Status) -> Iterator[Condition]:
    """Whether it is under way, and whether there are as many partitions as somebody asked for.

    Nothing is said of a stream for which nobody ever asked.

    >>> [c.reason for c in judge_repartition(Repartition(4, 16, "stopping", 0.0), Status())]
    ['Stopping', 'UnderWay']
    """
    if known is None:
        if before.find(REPARTITIONING) is None:
            return
        yield Condition(REPARTITIONING, False, "NotAsked", "nobody asked for other partitions")
        yield Condition(PARTITIONS_AS_ASKED, True, "AsAsked", "spec.partitions is as it was")
        return
    message, reason = describe(known), known.step.capitalize()
    yield Condition(REPARTITIONING, not known.is_over, reason, message)
    if known.step in {"failed", "refused"}:
        yield Condition(PARTITIONS_AS_ASKED, False, reason, message)
    elif known.is_over:
        yield Condition(PARTITIONS_AS_ASKED, True, "AsAsked", message)
    else:
        yield Condition(PARTITIONS_AS_ASKED, None, "UnderWay", message)


def describe_repartition(known: Repartition | None) -> RepartitionStatus | None:
    """The same as a field of the status."""
    if known is None:
        return None
    downtime_s = known.downtime_s
    return RepartitionStatus(
        before=known.before,
        wanted=known.wanted,
        step=known.step.capitalize(),
        time=format_time(known.asked_s),
        downtime_s=None if downtime_s is None else round(downtime_s, 1),
        message=summarize([describe(known)]),
    )


def tell_end(known: Repartition | None, before: RepartitionStatus | None) -> str:
    """What the history says when it is done; empty before, and once it has said so."""
    if known is None or known.step != "done":
        return ""
    began = format_time(known.asked_s)
    told = before is not None and (before.step, before.time) == ("Done", began)
    return "" if told else describe(known)
