"""How the load of a stream is spread, and what is moving: pure."""

from __future__ import annotations

from typing import Any

from balancedstream_operator.api.status import StatusDraft, summarize
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.planner import Balance, PlanChoice, describe_load


def report_balance(
    measurement: Measurement, choice: PlanChoice, balance: Balance, draft: StatusDraft
) -> None:
    """Sets the fields of load and moves, and the conditions Balanced, Migrating, Unsplittable.

    Args:
        measurement: of the pass.
        choice: the decision on it.
        balance: what the decision says of the balance.
        draft: of the stream's status.
    """
    decision = choice.decision
    draft.fields |= describe_load(measurement, decision)
    draft.fields |= {
        "imbalance": balance.imbalance,
        "imbalanceBound": balance.bound,
        "imbalanceText": None
        if balance.imbalance is None
        else f"{balance.imbalance:.2f} ({balance.bound:.2f})",
        "reason": summarize([choice.waits, balance.reason, decision.scaling.reason]),
    }
    if balance.holds is not None:
        word = "Even" if balance.holds else "Skewed"
        draft.set_condition("Balanced", balance.holds, word, balance.reason)
    partitions = sum(measurement.under_way.values())
    keys = sum(measurement.keys_under_way.values())
    if partitions or keys:
        counts = [(partitions, "state partitions"), (keys, "keys")]
        message = " and ".join(f"{count} {what}" for count, what in counts if count)
        preparing = measurement.preparing
        loads = f", {preparing} with state that is loaded ahead now" if preparing else ""
        draft.set_condition("Migrating", True, "MovesUnderWay", f"{message} are moving{loads}")
    else:
        draft.set_condition("Migrating", False, "Settled", "no state partition is moving")
    draft.fields |= _describe_preparations(measurement)
    heavy = balance.unsplittable
    draft.set_condition(
        "Unsplittable",
        bool(heavy),
        "HotPartition" if heavy else "NoHotPartition",
        heavy or "no partition is too much for one executor",
    )


def _describe_preparations(measurement: Measurement) -> dict[str, Any]:
    found = {
        outcome: {
            "moves": loaded.moves,
            "stateBytes": loaded.state_bytes,
            "seconds": round(loaded.spent_s, 3),
        }
        for outcome, loaded in measurement.preparations.items()
    }
    # A driver of an older release counts none; what another one counted would be wrong.
    return {"preparations": found or None}
