"""Knobs of earlier releases: a policy that sets one is taken, and a line says why it has no effect.

Policy files, Spark's settings and the definition of a BalancedStream read this one list. The
definition keeps its fields for one release, so that manifests of before are not refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemovedKnob:
    """A knob that is read and has no effect.

    Attributes:
        path: its place in a policy file, `section.field`.
        defaults: its values in releases that had it, if nobody set it. The API server wrote them
            into every object, so that there they say nothing of what a person wants.
        why: why it has no effect, as the end of a sentence.
    """

    path: str
    defaults: tuple[float | str, ...]
    why: str


REMOVED: tuple[RemovedKnob, ...] = (
    RemovedKnob(
        "balance.stop_at", (1.02, 1.05), "moves always continue to within 2 % of the bound"
    ),
    RemovedKnob(
        "balance.min_gain", (0.02,), "a plan must always save 2 % of the hottest executor's load"
    ),
    RemovedKnob("window.window_s", (180.0,), "scaling.window_s holds for loads, too"),
    RemovedKnob("migration.strategy", ("budgeted",), "moves are always spread by budget_s"),
    RemovedKnob("migration.batch_size", (8,), "moves are always spread by budget_s"),
    RemovedKnob("scaling.low_utilization", (0.5,), "it follows latency_objective_s"),
    RemovedKnob("scaling.high_utilization", (0.85,), "it follows latency_objective_s"),
    RemovedKnob("scaling.target_utilization", (0.7,), "it follows latency_objective_s"),
    RemovedKnob("scaling.min_batches", (5,), "three batches, or a minute of them, are enough"),
    RemovedKnob("scaling.stabilization_batches", (3,), "three batches are enough"),
    RemovedKnob("scaling.stabilization_s", (120.0,), "no change is taken back within two minutes"),
    RemovedKnob("scaling.catch_up_s", (600.0,), "rows that wait count by latency_objective_s"),
    RemovedKnob("scaling.backlog_hold_s", (300.0,), "it follows latency_objective_s"),
    RemovedKnob(
        "scaling.scale_in_delay_s", (300.0,), "it follows from removals that were regretted"
    ),
    RemovedKnob("scaling.scale_in_step", (0.5, 0.3), "all that are not needed leave at once"),
    RemovedKnob("scaling.scale_out_factor", (8.0, 2.0), "one decision multiplies by at most eight"),
    RemovedKnob(
        "scaling.ineffective_hold_s",
        (1800.0,),
        "a scale-out that did not help is not repeated for half an hour",
    ),
    RemovedKnob(
        "scaling.metric_failures", (3,), "three missing measurements in a row count as failed"
    ),
)


def describe_removed(knobs: Collection[RemovedKnob]) -> str:
    """One line that says which knobs have no effect, and why.

    >>> describe_removed([knob for knob in REMOVED if knob.path == "balance.stop_at"])[:59]
    'removed from the policy, without effect: balance.stop_at (m'
    """
    named = ", ".join(f"{knob.path} ({knob.why})" for knob in knobs)
    return f"removed from the policy, without effect: {named}"
