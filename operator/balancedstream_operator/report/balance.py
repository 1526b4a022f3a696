"""Reports the balance of a stream, and its moves: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from balancedstream.core.balance.hotspots import STOP_AT
from balancedstream.core.decisions import Decision
from balancedstream.core.policy import Policy
from balancedstream.core.samples import StageSample
from balancedstream.core.scaling.verdicts import Verdict
from balancedstream_operator.api.conditions import BALANCED, MIGRATING, UNSPLITTABLE, Condition
from balancedstream_operator.api.resource import MAX_HOTTEST, MAX_KEY
from balancedstream_operator.api.status import HotKey, HotPartition, PastDecision, Status
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.planner import DecisionInput

EFFECT_BATCHES = 3
"""The operator reports the effect of a plan after this many batches."""


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance over all operators.

    Attributes:
        holds: whether nothing needs to move; None without a measurement.
        imbalance: of the most imbalanced operator; None without a measurement.
        bound: of that operator.
        reason: of that operator.
        unsplittable: names a partition or key that overloads any executor; empty if none does.
    """

    holds: bool | None
    imbalance: float | None = None
    bound: float | None = None
    reason: str = "nothing has been measured yet"
    unsplittable: str = ""


def judge_balance(decision: Decision, policy: Policy, *, stateless: bool = False) -> Balance:
    """The balance by a decision; a `stateless` stream has nothing to balance."""
    if not decision.balance:
        if stateless:
            return Balance(True, reason="no query keeps state: there is nothing to balance")
        return Balance(None)
    (query, operator), measured = max(
        decision.imbalance.items(), key=lambda item: item[1].imbalance
    )
    found = decision.balance[query, operator]
    is_above = measured.imbalance > max(policy.balance.act_above, STOP_AT * measured.bound)
    uneven = is_above and not found.exhausted
    heavy = ""
    if found.unsplittable is not None and measured.imbalance > policy.balance.act_above:
        heavy = (
            f"partition {found.unsplittable} of operator {operator} of query {query} alone has "
            f"more load than the mean of all executors: imbalance {found.imbalance_before:.2f}, "
            f"and no placement gets below {found.bound:.2f}; its keys must be split"
        )
    assignment = decision.keys.get((query, operator))
    if assignment is not None:
        # If keys can move, only a key can overload an executor.
        heavy = assignment.reason if assignment.unsplittable and is_above else ""
    if decision.scaling.verdict is Verdict.UNSPLITTABLE:
        heavy = decision.scaling.reason
    return Balance(
        holds=not (uneven or decision.moving or decision.held),
        imbalance=round(measured.imbalance, 3),
        bound=round(measured.bound, 3),
        reason=f"query {query}, operator {operator}: {decision.describe_reason((query, operator))}",
        unsplittable=heavy,
    )


def judge_spread(balance: Balance) -> Iterable[Condition]:
    """Whether the load is spread evenly, if measured, and whether it can be."""
    if balance.holds is not None:
        word = "Even" if balance.holds else "Skewed"
        yield Condition(BALANCED, balance.holds, word, balance.reason)
    heavy = balance.unsplittable
    yield Condition(
        UNSPLITTABLE,
        bool(heavy),
        "HotPartition" if heavy else "NoHotPartition",
        heavy or "no partition is too much for one executor",
    )


def judge_moves(measurement: Measurement) -> Condition:
    """Whether state partitions or keys are moving."""
    partitions = sum(measurement.under_way.values())
    keys = sum(measurement.keys_under_way.values())
    if not partitions and not keys:
        return Condition(MIGRATING, False, "Settled", "no state partition is moving")
    counts = [(partitions, "state partitions"), (keys, "keys")]
    message = " and ".join(f"{count} {what}" for count, what in counts if count)
    preparing = measurement.preparing
    loads = f", {preparing} with state that is loaded ahead now" if preparing else ""
    return Condition(MIGRATING, True, "MovesUnderWay", f"{message} are moving{loads}")


def describe_load(
    status: Status, measurement: Measurement, decision: Decision, balance: Balance
) -> Status:
    """A status with the measured load: rates, backlog, imbalance, hottest partitions and keys."""
    newest = {b.query: b for b in sorted(measurement.batches, key=lambda b: b.finished_s)}
    backlogs = [b.backlog_rows for b in newest.values() if b.backlog_rows is not None]
    rates = [b.input_rows / b.interval_s for b in newest.values() if b.interval_s]
    rows = sum(batch.input_rows for batch in newest.values())
    busy_s = sum(sum(stage.executor_busy_s.values()) for stage in _newest_stages(measurement))
    cores = sum(measurement.executors.values())
    utilization = decision.scaling.utilization
    return replace(
        status,
        executors=len(measurement.executors),
        backlog_rows=round(sum(backlogs)) if backlogs else None,
        input_rows_per_second=round(sum(rates), 3) if rates else None,
        true_processing_rate=round(rows / busy_s * cores, 3) if busy_s and rows else None,
        utilization=None if utilization is None else round(utilization, 3),
        imbalance=balance.imbalance,
        imbalance_bound=balance.bound,
        imbalance_text=None
        if balance.imbalance is None
        else f"{balance.imbalance:.2f} ({balance.bound:.2f})",
        hottest_partitions=_find_hottest_partitions(decision),
        hottest_keys=_find_hottest_keys(decision),
        preparations=measurement.preparations,
    )


def _newest_stages(measurement: Measurement) -> list[StageSample]:
    newest = {s.query: s for s in sorted(measurement.stages, key=lambda s: s.finished_s)}
    return [s for s in measurement.stages if s.batch == newest[s.query].batch]


def _find_hottest_partitions(decision: Decision) -> tuple[HotPartition, ...]:
    partitions = [
        HotPartition(
            query=query,
            operator=operator,
            partition=partition,
            executor=load.placement[partition],
            busy_s=round(busy_s, 3),
            state_bytes=load.state_bytes.get(partition, 0),
        )
        for (query, operator), load in decision.loads.items()
        for partition, busy_s in load.busy_s.items()
    ]
    return tuple(sorted(partitions, key=lambda hot: -hot.busy_s)[:MAX_HOTTEST])


def _find_hottest_keys(decision: Decision) -> tuple[HotKey, ...]:
    keys = [
        HotKey(
            query=query,
            operator=operator,
            key=load.key[:MAX_KEY],
            partition=load.partition,
            busy_s=round(load.busy_s, 3),
        )
        for (query, operator), loads in decision.key_loads.items()
        for load in loads
    ]
    return tuple(sorted(keys, key=lambda hot: (-hot.busy_s, hot.key))[:MAX_HOTTEST])


def describe_effects(
    status: Status, measurement: Measurement, inputs: DecisionInput, balance: Balance
) -> Status:
    """A status with the effects of the last plan, after its moves and some batches ended."""
    plan = inputs.plan
    if plan is None or measurement.epoch < plan.epoch or not inputs.past.planned_after:
        return status
    passed = min(
        (
            measurement.last_batches[query] - batch
            for query, batch in inputs.past.planned_after.items()
            if query in measurement.last_batches
        ),
        default=0,
    )
    if passed <= EFFECT_BATCHES or any(measurement.under_way.values()):
        return status
    effects = {}
    if balance.imbalance is not None:
        effects["move"] = f"imbalance {balance.imbalance:.2f}, {passed} batches later"
    if len(measurement.executors) == len(plan.executors):
        busy = "" if status.utilization is None else f", {status.utilization:.0%} busy"
        effects["scale"] = f"{len(measurement.executors)} executors{busy}"
    return replace(status, decisions=note_effects(status.decisions, plan.epoch, effects))


def note_effects(
    decisions: Iterable[PastDecision], epoch: int, effects: Mapping[str, str]
) -> tuple[PastDecision, ...]:
    """The decisions with a plan's effects, by kind; a decision keeps its first effect."""
    return tuple(
        replace(made, effect=effects.get(made.kind))
        if made.epoch == epoch and made.effect is None
        else made
        for made in decisions
    )
