"""Whether the batches of a stream finish: pure."""

from __future__ import annotations

from balancedstream_operator.api.status import UNMEASURED, StatusDraft, format_time, parse_time
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.observe.measurement import Measurement

IDLE_AFTER_S = 600.0
"""A query whose last batch is older than this is reported as idle, or as hung where rows wait."""

BELIEVED_S = 600.0
"""So long after the last measurement, it is not believed any more that batches end."""

HUNG_BATCHES = 3.0
"""It does not hang before it has taken so many times as long as any of its batches did."""


def report_progress(measurement: Measurement, draft: StatusDraft) -> None:
    """Sets the phase and the condition Running.

    Args:
        measurement: of the pass; the last batch may be older than all that is looked back at.
        draft: of the stream's status.
    """
    if not measurement.finished_s and measurement.idle_s:
        message = "no batch has finished since the driver started, because there has been no input"
        draft.fields["phase"] = "Running"
        draft.set_condition("Running", True, "Idle", message)
        return
    if not measurement.finished_s:
        message = "no batch has finished since the driver started; the first one can take long"
        draft.fields["phase"] = "Starting"
        draft.set_condition("Running", None, "NoBatchYet", message)
        return
    draft.fields["phase"] = "Running"
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
            draft.set_condition("Running", False, "NoProgress", message)
            return
    query, age_s = min(ages_s.items(), key=lambda item: item[1])
    if age_s > IDLE_AFTER_S and not measurement.backlog_rows.get(query):
        # Without input Spark runs no batch.
        message = f"the last batch finished {age_s:.0f} s ago; there has been no input since"
        draft.set_condition("Running", True, "Idle", message)
        return
    message = f"query {query} finished batch {measurement.last_batches.get(query)}"
    draft.set_condition("Running", True, "BatchesProgress", message)


def was_measured(draft: StatusDraft) -> bool:
    """Whether a batch of the driver has been seen to end, also if one hangs since.

    Args:
        draft: of the stream's status; its condition Running is that of the last pass.
    """
    running = draft.condition("Running")
    return running["status"] == "True" or running["reason"] in {"NoProgress", UNMEASURED}


def report_unmeasured_progress(driver: DriverState | None, draft: StatusDraft) -> None:
    """Sets the condition Running of a stream that is not measured, and whose driver may run.

    What was said of a driver while it did not run is over once it does. That batches end holds for
    a while, and that a query hangs until it is measured again.

    Args:
        driver: which runs; None if nobody looked at it.
        draft: of the stream's status; its condition MetricsAvailable is that of the last pass.
    """
    if driver is not None and not was_measured(draft):
        message = f"{driver.message}; whether its batches end is not known without metrics"
        draft.set_condition("Running", None, "NotMeasured", message)
    measured = draft.condition("MetricsAvailable")
    since_s = parse_time(measured.get("lastTransitionTime")) or draft.now_s
    lately = measured["status"] == "True" or draft.now_s - since_s <= BELIEVED_S
    if draft.condition("Running")["status"] == "True" and not lately:
        message = f"whether its batches end is not known: not measured since {format_time(since_s)}"
        draft.set_condition("Running", None, UNMEASURED, message)
