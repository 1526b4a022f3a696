"""Whether a stream is as its spec wants it, on its way there, or stuck: pure.

kubectl, Helm, Flux and Argo CD read conditions by the rules of kstatus: `Ready` is what they wait
for, `Reconciling` says that waiting helps, and `Stalled` that it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from balancedstream_operator.api.status import UNMEASURED
from balancedstream_operator.reconcile.outcome import PassOutcome


@dataclass(frozen=True, slots=True)
class Readiness:
    """The three conditions; of `reconciling` and `stalled` one holds at most.

    Attributes:
        ready: whether the driver of this generation of the spec is up, and its batches end; None
            if that is not known any more.
        reconciling: whether the stream gets ready by itself.
        stalled: whether it does not without a person.
        reason: in one CamelCase word.
        message: for people.
    """

    ready: bool | None
    reconciling: bool
    stalled: bool
    reason: str
    message: str


def judge_readiness(outcome: PassOutcome, running: Mapping[str, str]) -> Readiness:
    """How ready a stream is.

    Args:
        outcome: of the pass.
        running: the condition Running.

    >>> from balancedstream_operator.api.resource import Stream
    >>> outcome = PassOutcome(Stream("shop", "clicks", "1"))
    >>> judge_readiness(outcome, {"status": "True", "reason": "Idle", "message": ""}).ready
    True
    """
    if outcome.invalid:
        return Readiness(False, False, True, "InvalidSpec", outcome.invalid)
    if outcome.refusal:
        return Readiness(False, outcome.waits, not outcome.waits, "Refused", outcome.refusal)
    reason, message, driver = running["reason"], running["message"], outcome.driver
    if driver is not None and driver.phase == "Suspended":
        return Readiness(False, False, False, "Suspended", message)
    if driver is not None and not driver.settled:
        waits = "the StatefulSet of the driver has not been acted on yet"
        return Readiness(False, True, False, "Applying", waits)
    if running["status"] == "True":
        return Readiness(True, False, False, reason, message)
    if reason == UNMEASURED:
        return Readiness(None, True, False, reason, message)
    fails = driver is not None and driver.phase == "Failing" and not driver.retries
    stalled = reason == "NoProgress" or fails
    return Readiness(False, not stalled, stalled, reason, message)
