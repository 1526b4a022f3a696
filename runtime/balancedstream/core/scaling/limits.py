"""What limits the batches of a query, if more executors do not make them faster."""

from __future__ import annotations

import math
from collections.abc import Mapping

from balancedstream.core.balance.loads import OperatorLoad
from balancedstream.core.samples import OperatorId
from balancedstream.core.scaling.demand import Demand
from balancedstream.core.scaling.slots import SlotNeed
from balancedstream.core.scaling.verdicts import Verdict

MIN_GAIN = 0.1
"""Twice the executors must make batches faster by this fraction, or something else limits them."""

_UNEVEN = 1.5
"""A stage whose longest task takes so many times the mean is limited by it, not by their number."""


def find_shortage(need: SlotNeed | None) -> str:
    """Which slots are missing, and what that means, for people; empty if none are.

    Args:
        need: of the queries that hold slots; None if none does.
    """
    if need is None or need.is_met:
        return ""
    return (
        f"{need.reason}; there are {need.there}: Spark ends it when one of its batches begins and "
        "does not find them, and no data is lost"
    )


def find_limit(
    demand: Demand, cores: float, loads: Mapping[OperatorId, OperatorLoad]
) -> tuple[Verdict, str] | None:
    """What keeps twice the executors from making batches faster, for people; None if they would.

    Args:
        demand: of a query whose rows miss their objective.
        cores: of the executors that are asked for.
        loads: of all operators.
    """
    query, cost, last = demand.query, demand.cost, demand.recent[-1]
    if demand.is_capped:
        return Verdict.SOURCE_BOUND, (
            f"query {query} reads {last.input_rows:,.0f} rows a batch and ends before its trigger, "
            f"while {last.backlog_rows:,.0f} rows wait and more come: raise the limit of its "
            "source (maxOffsetsPerTrigger, maxFilesPerTrigger), or shorten the trigger interval"
        )
    if demand.slots(cores) <= 0.0:
        return None  # Other queries take them all, so that any more help.
    rows = max(demand.foreseen.ahead * demand.interval_s, demand.then_rows)
    rows, slots = min(rows, demand.batch_rows), demand.slots(cores)
    if cost.last(rows, slots) >= (1.0 + MIN_GAIN) * cost.last(rows, slots + cores):
        return None
    kind = cost.find_longest(rows, slots + cores)
    if kind is None:
        part, seconds = max(cost.driver_s.items(), key=lambda item: item[1])
        return Verdict.DRIVER_BOUND, (
            f"in {cost.idle_s:.1f} of the {last.duration_s:.1f} s of a batch of query {query} no "
            f"task runs, most of it {part} ({seconds:.1f} s): more executors cannot help; larger "
            "and fewer batches do, or less to do on the driver"
        )
    stage, whole = cost.stages[kind], max(1, int(cores))
    if kind == "source":
        return Verdict.SOURCE_BOUND, (
            f"the source of query {query} has {stage.tasks} splits for {whole} cores, the longest "
            f"takes {stage.longest * stage.tasks:.1f} x the mean: no executor makes reading and "
            "mapping faster; more splits do (Kafka: topic partitions or minPartitions), or a "
            "repartition before the costly step"
        )
    few = stage.tasks < slots and stage.longest * stage.tasks < _UNEVEN
    if kind == "stateful" and not few and (heaviest := _describe_heaviest(demand, loads)):
        return Verdict.UNSPLITTABLE, heaviest
    return Verdict.PARTITION_BOUND, (
        f"query {query} has {stage.tasks} shuffle partitions for {whole} cores: no executor and no "
        "move helps; more partitions do (balancedstream repartition; before Spark 4.2, a new "
        "checkpoint with a higher spark.sql.shuffle.partitions)"
    )


def _describe_heaviest(demand: Demand, loads: Mapping[OperatorId, OperatorLoad]) -> str:
    """The state partition of a query with the most work; empty if none was measured."""
    found = [
        (busy_s, partition, operator)
        for (query, operator), load in loads.items()
        if query == demand.query
        for partition, busy_s in load.busy_s.items()
    ]
    if not found:
        return ""
    busy_s, partition, operator = max(found)
    span_s = sum(b.interval_s or 0.0 for b in demand.recent)
    share = busy_s * len(demand.recent) / (span_s or math.inf)
    return (
        f"partition {partition} of operator {operator} of query {demand.query} alone keeps a core "
        f"{share:.0%} busy: no move and no executor helps, its keys must be split"
    )
