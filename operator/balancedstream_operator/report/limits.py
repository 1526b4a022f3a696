"""What keeps a stream from having more executors, or fewer: pure."""

from __future__ import annotations

from balancedstream.core.scaling.executors import Verdict
from balancedstream_operator.api.job import find_caps
from balancedstream_operator.api.spec import StreamSpec, clamp_fixed, policy_of
from balancedstream_operator.api.status import StatusDraft
from balancedstream_operator.reconcile.outcome import Decided

_LIMITS = {
    Verdict.SOURCE_BOUND: "SourceBound",
    Verdict.PARTITION_BOUND: "PartitionBound",
    Verdict.DRIVER_BOUND: "DriverBound",
}
"""What more executors do not change; an unsplittable partition has a condition of its own."""


def report_limits(spec: StreamSpec, decided: Decided, draft: StatusDraft) -> None:
    """Sets the condition ScalingLimited.

    Args:
        spec: of the stream.
        decided: of the pass.
        draft: of the stream's status.
    """
    limits, scaling = spec.executors, decided.choice.decision.scaling
    desired = decided.given.desired
    field, most = next(iter(find_caps(limits).items()))
    if limits.fixed and clamp_fixed(limits) != limits.fixed:
        message = (
            f"executors.fixed asks for {limits.fixed} executors, but executors.min and {field} "
            f"allow {limits.min} to {most}: using {clamp_fixed(limits)}"
        )
        draft.set_condition("ScalingLimited", True, "OutOfBounds", message)
    elif not decided.scales and policy_of(spec).scaling.mode != "off":
        message = (
            "Spark decides on the number of executors (spark.dynamicAllocation.enabled); the "
            "operator only places. To let it scale, switch that off in the application; to leave "
            'it so, set scaling.mode to "Off", with the quotes'
        )
        draft.set_condition("ScalingLimited", True, "DynamicAllocation", message)
    elif decided.shortage:
        pending = desired - len(decided.measurement.executors)
        message = (
            f"{pending} of {desired} executors did not start: {decided.shortage}. Look at them "
            f"with kubectl get pods --selector {draft.fields['selector']}"
        )
        draft.set_condition("ScalingLimited", True, "ExecutorsPending", message)
    elif decided.demands.most_why:
        draft.set_condition("ScalingLimited", True, "SharedLimit", scaling.reason)
    elif scaling.verdict in _LIMITS:
        draft.set_condition("ScalingLimited", True, _LIMITS[scaling.verdict], scaling.reason)
    elif scaling.limited:
        by = "" if field == "max" else f"; executors.{field} has room for {most}"
        draft.set_condition("ScalingLimited", True, "AtLimit", f"{scaling.reason}{by}")
    elif scaling.utilization is None and _says_what_load_needs(draft):
        # That is not known just now, as in the middle of a long batch: nothing has changed.
        return
    else:
        draft.set_condition("ScalingLimited", False, "WithinLimits", scaling.reason)


def _says_what_load_needs(draft: StatusDraft) -> bool:
    """Whether the condition tells of load under this very spec."""
    known = draft.condition("ScalingLimited")
    measured = known["reason"] in {"AtLimit", *_LIMITS.values()}
    return measured and known.get("observedGeneration") == draft.generation
