"""Runs a stream in virtual time under a scaler, or under the driver's real loop."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from harness.silent import SilentView

from balancedstream.core.policy import Policy
from balancedstream.engine.events import ApplicationEnded, BatchFinished
from balancedstream.loop.controller import Controller
from balancedstream.loop.ports import PlanChannel
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo
from balancedstream.record.spectators import Metrics
from simulation.model import weigh_partitions
from simulation.scalers import Oracle, Scaler
from simulation.spark import VirtualSpark

JOIN_S = 3600.0
"""A run that takes longer than this in real time hangs."""


Change = tuple[float, int, int]
"""When the number of executors was changed, and from what to what."""


class RunFailedError(Exception):
    """The driver's loop ended before the run was over, so there are no figures of it."""


def run_ours(spark: VirtualSpark, most: int, rules: Policy | None = None) -> list[Change]:
    """Runs it under the driver's real controller, decider and realizer.

    Args:
        spark: before the run.
        most: executors at most.
        rules: the policy besides that; None for the default one.

    Raises:
        RunFailedError: the loop failed.
    """
    rules = rules or Policy()
    policy = replace(rules, scaling=replace(rules.scaling, max_executors=most))
    return run_loop(spark, policy, Metrics())


def run_loop(
    spark: VirtualSpark, policy: Policy, metrics: Metrics, plans: PlanChannel | None = None
) -> list[Change]:
    """Runs it to its end under the driver's real controller.

    Args:
        spark: before the run.
        policy: of the driver.
        metrics: is told what the loop measures.
        plans: brings plans from elsewhere; None to make them in the driver.

    Raises:
        RunFailedError: the loop failed.
    """
    history = History(RunInfo("simulation", 0.0, spark.asked, "virtual", "virtual"))
    journal = Journal(history, SilentView(), metrics, lambda: spark.now_s)
    controller = Controller(spark, policy, journal, plans=plans, clock=lambda: spark.now_s)
    controller.start()
    ended = spark.over.wait(JOIN_S)
    controller.stop(JOIN_S)
    if not ended or spark.failure is not None:
        message = f"the loop ended or hangs {spark.now_s:.0f} s after the start of the run"
        raise RunFailedError(message) from spark.failure
    return [(s.at_s, s.executors_before, s.executors_after) for s in history.scales]


def run_scaler(spark: VirtualSpark, scaler: Scaler, most: int) -> list[Change]:
    """Runs it under an alternative: Spark alone moves state, but for the oracle.

    The scaler is asked on its own clock, whatever the stream does at that moment.
    """
    changes: list[Change] = []

    def decide() -> None:
        count = min(most, scaler.decide(spark))
        if count != spark.asked:
            changes.append((spark.now_s, spark.asked, count))
        spark.set_executor_count(count + spark.leaving)
        for executor in sorted(spark.executors(), key=lambda e: int(e[1:]))[count:]:
            spark.remove_executor(executor)
        if isinstance(scaler, Oracle):
            balance(spark)
        if 0 < scaler.every_s < math.inf:
            spark.call_at(spark.now_s + scaler.every_s, decide)

    # Nobody starts a scaler and a stream at the same moment.
    first_s = 0.0 if scaler.every_s == math.inf else scaler.every_s
    spark.call_at(random.Random(spark.seed).uniform(0.0, first_s), decide)
    while not isinstance(event := spark.wait(0.0), ApplicationEnded):
        if isinstance(event, BatchFinished):
            scaler.finish_batch(event)
            if not scaler.every_s:
                decide()
    return changes


def balance(spark: VirtualSpark) -> None:
    """Places the heaviest partitions first, each on the executor with the least so far."""
    job = spark.job
    hot_set = sum(spark.now_s >= shift_s for shift_s in spark.trace.shifts_s)
    weights = weigh_partitions(job, 1000 * spark.seed + hot_set)
    loads = dict.fromkeys(sorted(spark.executors()), 0.0)
    targets = {}
    for partition in sorted(range(job.partitions), key=lambda p: -weights[p]):
        targets[partition] = min(loads, key=lambda e: loads[e])
        loads[targets[partition]] += weights[partition]
    spark.place("q", 0, targets)
