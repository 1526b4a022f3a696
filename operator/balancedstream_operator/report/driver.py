"""What the status says of the driver, whether or not the stream is measured: pure."""

from __future__ import annotations

from balancedstream_operator.api.annotations import RESTART_ANNOTATION
from balancedstream_operator.api.conditions import DRIVER_OUTDATED, SUSPENDED, Condition
from balancedstream_operator.driver.state import DriverState


def judge_suspension(driver: DriverState) -> Condition:
    """Whether the stream is suspended."""
    if driver.phase == "Suspended":
        return Condition(SUSPENDED, True, "Suspended", driver.message)
    return Condition(SUSPENDED, False, "Active", "spec.suspend is false")


def judge_age(driver: DriverState) -> Condition:
    """Whether a new driver would be made in another way, and when it is."""
    reason, message = "Current", "a new driver would be made in the same way"
    if driver.waits_for:
        reason = "WaitsForTurn"
        message = f"its driver is replaced after that of {driver.waits_for}: one at a time"
    elif driver.outdated:
        reason = "OlderTemplate"
        message = (
            "a new driver would be made in another way, because the release of the operator or "
            "driver.evictable changed since; it runs on, and is replaced with the next change of "
            "the spec that needs a new one, or by kubectl annotate bst NAME --overwrite "
            f'{RESTART_ANNOTATION}="$(date)"'
        )
    return Condition(DRIVER_OUTDATED, driver.outdated, reason, message)
