"""Reports the limits of the number of executors: pure."""

from __future__ import annotations

from balancedstream.core.scaling.verdicts import LIMITS, Verdict
from balancedstream_operator.api.conditions import SCALING_LIMITED, Condition
from balancedstream_operator.api.job import find_caps
from balancedstream_operator.api.spec import StreamSpec, clamp_fixed
from balancedstream_operator.api.status import StatusCondition
from balancedstream_operator.reconcile.outcome import Decided

LIMITING = LIMITS - {Verdict.UNSPLITTABLE}
"""The verdicts that limit scaling; an unsplittable partition has a condition of its own."""


def name_reason(verdict: Verdict) -> str:
    """The reason of a limiting verdict: its word in the spelling of Kubernetes.

    >>> name_reason(Verdict.SOURCE_BOUND)
    'SourceBound'
    """
    return "".join(word.capitalize() for word in verdict.split("-"))


def judge_limits(
    spec: StreamSpec,
    decided: Decided,
    before: StatusCondition | None,
    *,
    generation: int,
    selector: str,
) -> Condition:
    """The limit of the number of executors, if any.

    `before` is the condition of the last status; `selector` selects the executor pods.
    """
    limits, scaling = spec.executors, decided.choice.decision.scaling
    desired = decided.inputs.desired
    field, most = next(iter(find_caps(limits).items()))
    if limits.fixed and clamp_fixed(limits) != limits.fixed:
        message = (
            f"executors.fixed asks for {limits.fixed} executors, but executors.min and {field} "
            f"allow {limits.min} to {most}: using {clamp_fixed(limits)}"
        )
        return Condition(SCALING_LIMITED, True, "OutOfBounds", message)
    if not decided.scales and spec.policy.scaling.mode != "off":
        message = (
            "Spark decides on the number of executors (spark.dynamicAllocation.enabled); the "
            "operator only places. To let it scale, switch that off in the application; to leave "
            'it so, set scaling.mode to "Off", with the quotes'
        )
        return Condition(SCALING_LIMITED, True, "DynamicAllocation", message)
    if decided.shortage:
        pending = desired - len(decided.measurement.executors)
        message = (
            f"{pending} of {desired} executors did not start: {decided.shortage}. Look at them "
            f"with kubectl get pods --selector {selector}"
        )
        return Condition(SCALING_LIMITED, True, "ExecutorsPending", message)
    if decided.choice.demands.most_why:
        return Condition(SCALING_LIMITED, True, "SharedLimit", scaling.reason)
    if scaling.verdict in LIMITING:
        return Condition(SCALING_LIMITED, True, name_reason(scaling.verdict), scaling.reason)
    if scaling.limited:
        by = "" if field == "max" else f"; executors.{field} has room for {most}"
        return Condition(SCALING_LIMITED, True, "AtLimit", f"{scaling.reason}{by}")
    if scaling.utilization is None and before is not None and _tells_of_load(before, generation):
        # Nobody knows the load in the middle of a long batch: the last judgement stays.
        return Condition(SCALING_LIMITED, True, before.reason, before.message or "")
    return Condition(SCALING_LIMITED, False, "WithinLimits", scaling.reason)


def _tells_of_load(before: StatusCondition, generation: int) -> bool:
    """Whether the condition is a judgement of load, under the present spec."""
    measured = before.reason in {"AtLimit", *map(name_reason, LIMITING)}
    return measured and before.observed_generation == generation
