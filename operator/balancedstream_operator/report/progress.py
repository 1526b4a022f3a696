"""Whether the driver of a stream runs as its spec wants it, and its batches finish: pure."""

from __future__ import annotations

from balancedstream_operator.api.annotations import RESTART_ANNOTATION
from balancedstream_operator.api.conditions import (
    DRIVER_OUTDATED,
    METRICS_AVAILABLE,
    RUNNING,
    SUSPENDED,
    Condition,
)
from balancedstream_operator.api.status import UNMEASURED, Status, format_time
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.observe.measurement import Measurement

IDLE_AFTER_S = 600.0
"""A query whose last batch is older than this is reported as idle, or as hung where rows wait."""

BELIEVED_S = 600.0
"""So long after the last measurement, it is not believed any more that batches end."""

HUNG_BATCHES = 3.0
"""It does not hang before it has taken so many times as long as any of its batches did."""

NO_BATCH = "NoBatchYet"
"""The reason of the condition Running until the first batch of a driver has ended."""


def judge_progress(measurement: Measurement) -> Condition:
    """Whether the batches of a stream that is measured end.

    Args:
        measurement: of the pass; the last batch may be older than all that is looked back at.
    """
    if not measurement.finished_s and measurement.idle_s:
        message = "no batch has finished since the driver started, because there has been no input"
        return Condition(RUNNING, True, "Idle", message)
    if not measurement.finished_s:
        message = "no batch has finished since the driver started; the first one can take long"
        return Condition(RUNNING, None, NO_BATCH, message)
    ages_s = {query: measurement.scraped_s - at_s for query, at_s in measurement.finished_s.items()}
    for query, age_s in sorted(ages_s.items()):
        waiting = measurement.backlog_rows.get(query)
        longest_s = measurement.longest_s.get(query, 0.0)
        if waiting and age_s > max(IDLE_AFTER_S, HUNG_BATCHES * longest_s):
            message = (
                f"the last batch of query {query} finished {age_s:.0f} s ago, and {waiting:.0f} "
                "rows wait: it hangs, or this batch takes far longer than any before; see the "
                "driver's log"
            )
            return Condition(RUNNING, False, "NoProgress", message)
    query, age_s = min(ages_s.items(), key=lambda item: item[1])
    if age_s > IDLE_AFTER_S and not measurement.backlog_rows.get(query):
        # Without input Spark runs no batch.
        message = f"the last batch finished {age_s:.0f} s ago; there has been no input since"
        return Condition(RUNNING, True, "Idle", message)
    message = f"query {query} finished batch {measurement.last_batches.get(query)}"
    return Condition(RUNNING, True, "BatchesProgress", message)


def was_measured(running: Condition) -> bool:
    """Whether a batch of the driver has been seen to end, also if one hangs since."""
    return running.holds is True or running.reason in {"NoProgress", UNMEASURED}


def judge_unmeasured_progress(
    driver: DriverState | None, before: Status, now_s: float
) -> Condition | None:
    """Whether the batches of a stream end that is not measured, and whose driver may run.

    What was said of a driver while it did not run is over once it does. That batches end holds for
    a while, and that a query hangs until it is measured again.

    Args:
        driver: which runs; None if nobody looked at it.
        before: the last status.
        now_s: seconds since the Unix epoch.

    Returns:
        None if what the last status says still holds.
    """
    running = before.recall(RUNNING)
    if driver is not None and not was_measured(running):
        message = f"{driver.message}; whether its batches end is not known without metrics"
        return Condition(RUNNING, None, "NotMeasured", message)
    measured = before.find(METRICS_AVAILABLE)
    since_s = measured.changed_s if measured is not None else now_s
    lately = measured is not None and measured.status == "True"
    if running.holds is True and not lately and now_s - since_s > BELIEVED_S:
        message = f"whether its batches end is not known: not measured since {format_time(since_s)}"
        return Condition(RUNNING, None, UNMEASURED, message)
    return None


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
