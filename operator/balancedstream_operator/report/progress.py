"""Reports whether the driver of a stream is up to date, and its batches finish: pure."""

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
"""A query whose last batch is older than this is idle, or hangs if rows wait."""

BELIEVED_S = 600.0
"""This long after the last measurement, nobody knows whether batches still end."""

HUNG_BATCHES = 3.0
"""A batch hangs only after this many times the longest batch of its query."""

NO_BATCH = "NoBatchYet"
"""The reason of the condition Running until the first batch of a driver has ended."""


def judge_progress(measurement: Measurement) -> Condition:
    """Whether the batches of a stream that is measured end."""
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
    """Whether the operator has seen a batch of the driver end, even if a later batch hangs."""
    return running.holds is True or running.reason in {"NoProgress", UNMEASURED}


def judge_unmeasured_progress(
    driver: DriverState | None, before: Status, now_s: float
) -> Condition | None:
    """Whether the batches of an unmeasured stream end, whose driver may run.

    A judgement of a driver that did not run ends when the driver runs. "Batches end" holds for
    `BELIEVED_S`, and "a query hangs" until the next measurement.

    Args:
        driver: a running driver; None if nobody looked at it.
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
    """Whether the operator would make a new driver in another way, and when it does."""
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
