"""Reports whether a stream matches its spec, is on its way there, or stuck: pure.

kubectl, Helm, Flux and Argo CD read conditions by the rules of kstatus: `Ready` is what they wait
for, `Reconciling` says that waiting helps, and `Stalled` that it does not. At most one of these two
holds.
"""

from __future__ import annotations

from balancedstream_operator.api.conditions import READY, RECONCILING, STALLED, Condition
from balancedstream_operator.api.status import UNMEASURED
from balancedstream_operator.reconcile.outcome import PassOutcome


def judge_readiness(outcome: PassOutcome, running: Condition) -> tuple[Condition, ...]:
    """Ready, Reconciling and Stalled, which share their reason.

    >>> from balancedstream_operator.api.conditions import RUNNING
    >>> from balancedstream_operator.api.resource import Stream
    >>> outcome = PassOutcome(Stream("shop", "clicks", "1"))
    >>> [c.holds for c in judge_readiness(outcome, Condition(RUNNING, True, "Idle", ""))]
    [True, False, False]
    """
    if outcome.invalid:
        return _stuck("InvalidSpec", outcome.invalid)
    if outcome.refusal:
        judge = on_its_way if outcome.waits else _stuck
        return judge("Refused", outcome.refusal)
    reason, message, driver = running.reason, running.message, outcome.driver
    if driver is not None and driver.phase == "Suspended":
        return _sum_up("Suspended", message, ready=False)
    if driver is not None and not driver.settled:
        return on_its_way("Applying", "the StatefulSet of the driver has not been acted on yet")
    if running.holds:
        return _sum_up(reason, message, ready=True)
    if reason == UNMEASURED:
        return on_its_way(reason, message, ready=None)
    fails = driver is not None and driver.phase == "Failing" and not driver.retries
    judge = _stuck if reason == "NoProgress" or fails else on_its_way
    return judge(reason, message)


def on_its_way(reason: str, message: str, *, ready: bool | None = False) -> tuple[Condition, ...]:
    """The stream gets ready by itself; `ready` is None where it may be already."""
    return _sum_up(reason, message, ready=ready, reconciling=True)


def _stuck(reason: str, message: str) -> tuple[Condition, ...]:
    """The stream does not get ready without a person."""
    return _sum_up(reason, message, ready=False, stalled=True)


def _sum_up(
    reason: str,
    message: str,
    *,
    ready: bool | None,
    reconciling: bool = False,
    stalled: bool = False,
) -> tuple[Condition, ...]:
    held = ((READY, ready), (RECONCILING, reconciling), (STALLED, stalled))
    return tuple(Condition(kind, holds, reason, message) for kind, holds in held)
