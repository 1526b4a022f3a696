"""Whether a stream is as its spec wants it, on its way there, or stuck: pure.

kubectl, Helm, Flux and Argo CD read conditions by the rules of kstatus: `Ready` is what they wait
for, `Reconciling` says that waiting helps, and `Stalled` that it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from balancedstream_operator.drivers import DriverState


@dataclass(frozen=True, slots=True)
class Readiness:
    """The three conditions; of `reconciling` and `stalled` one holds at most.

    Attributes:
        ready: whether the driver of this generation of the spec is up, and its batches end.
        reconciling: whether the stream gets ready by itself.
        stalled: whether it does not without a person.
        reason: in one CamelCase word.
        message: for people.
    """

    ready: bool
    reconciling: bool
    stalled: bool
    reason: str
    message: str


def judge_readiness(
    invalid: str, refusal: str, driver: DriverState | None, running: Mapping[str, str]
) -> Readiness:
    """How ready a stream is.

    Args:
        invalid: why the spec is not accepted; empty if it is.
        refusal: why the API server refused an object of the stream; empty if it took all.
        driver: its state; None if it was not looked at.
        running: the condition Running.

    >>> judge_readiness("", "", None, {"status": "True", "reason": "Idle", "message": ""}).ready
    True
    """
    if invalid:
        return Readiness(False, False, True, "InvalidSpec", invalid)
    if refusal:
        return Readiness(False, False, True, "Refused", refusal)
    reason, message = running["reason"], running["message"]
    if driver is not None and driver.phase == "Suspended":
        return Readiness(False, False, False, "Suspended", message)
    if driver is not None and not driver.settled:
        waits = "the StatefulSet of the driver has not been acted on yet"
        return Readiness(False, True, False, "Applying", waits)
    if running["status"] == "True":
        return Readiness(True, False, False, reason, message)
    stalled = reason == "NoProgress" or (driver is not None and driver.phase == "Failing")
    return Readiness(False, not stalled, stalled, reason, message)
