"""Attaches the embedded controller to a Spark session."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy, to_mapping
from balancedstream.core.removed import describe_removed
from balancedstream.engine.driver import DriverSession, stand_plugin_down
from balancedstream.engine.engine import SparkEngine
from balancedstream.errors import InvalidInputError
from balancedstream.live.plain import PlainView
from balancedstream.loop.controller import Controller
from balancedstream.loop.ports import PlanChannel
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo
from balancedstream.record.spectators import Metrics, Spectator
from balancedstream.report import render_live_page, render_unbalanced_live_page

UNNAMED_APPLICATION = "pyspark-shell"
"""PySpark's name for one without."""


@dataclass(eq=False)
class Attachment:
    """A session that is being balanced; after `detach` the queries run on.

    Attributes:
        history: what happened so far.
        view: shows it.
        problems: one sentence for each thing that this Spark cannot do; empty if it can do all.
    """

    _controller: Controller | None
    history: History
    view: Spectator
    problems: tuple[str, ...]

    @property
    def is_balancing(self) -> bool:
        """Whether the loop runs; it ends by `detach`, with the application, or after failures."""
        return self._controller is not None and self._controller.is_running

    def end_loop(self, timeout_s: float = 10.0) -> None:
        """Stops balancing as `detach` does, and leaves view and history to the next attachment."""
        if self._controller:
            self._controller.stop(timeout_s)

    def detach(self, timeout_s: float = 10.0) -> None:
        """Stops balancing once everything that Spark reported so far is handled.

        Args:
            timeout_s: when it ends in any case; batches may come without a pause.
        """
        self.end_loop(timeout_s)
        self.view.close()
        self.history.end(time.time())


stand_ins: list[ExitStack] = []
"""What balances in this process without `attach`; an `attach` of the user's ends it."""


def attach(
    spark: SparkSession | DriverSession,
    policy: Policy | None = None,
    *,
    open_view: Callable[[RunInfo], Spectator] = PlainView,
    metrics: Metrics | None = None,
    record_dir: Path | None = None,
    plans: PlanChannel | None = None,
    baseline_batches: int = 0,
    history: History | None = None,
) -> Attachment:
    """Balances every streaming query of the session's application, from now on.

    Where this Spark does not allow it, nothing is done and `problems` says why; the job runs. An
    agent that the plugin started in the driver ends.

    Args:
        spark: a running session with executors of its own (a cluster, or local-cluster).
        policy: all knobs; the defaults if None.
        open_view: opens what shows it; by default one line a decision on standard error.
        metrics: serves what happens; None for no metrics.
        record_dir: where each observation that led to an action is kept, for `explain`.
        plans: brings plans that are made elsewhere; None to make them here.
        baseline_batches: how many batches with rows of each query with state are measured, after
            its first one, before anything moves or scales; 0 balances from the start.
        history: of an earlier attachment, to go on with where one program has several sessions,
            one after the other; None for a new one.

    Raises:
        InvalidInputError: `baseline_batches` is negative, or given together with `plans`.
    """
    if baseline_batches < 0:
        message = f"baseline_batches: must be 0 or more, not {baseline_batches}"
        raise InvalidInputError(message)
    if baseline_batches and plans:
        message = "baseline_batches: plans that are made elsewhere cannot wait for it; leave it out"
        raise InvalidInputError(message)
    policy = policy or Policy()
    while stand_ins:
        stand_ins.pop().close()
    stand_plugin_down(spark, "the application balances itself")
    run = RunInfo(
        app=_name_application(spark),
        started_s=time.time(),
        cores=count_cores(),
        spark_version=spark.version,
        python_version=platform.python_version(),
        settings={
            f"{section}.{name}": value
            for section, values in to_mapping(policy).items()
            for name, value in values.items()
        },
    )
    history = history or History(run)
    view = open_view(run)
    acts = plans is not None or "auto" in {policy.balance.mode, policy.scaling.mode}
    engine = SparkEngine(spark, acts=acts)
    if policy.removed:
        view.note(describe_removed(policy.removed))
    problems = engine.capabilities.problems
    for problem in problems:
        view.note(problem)
    metrics = metrics or Metrics()
    if not engine.capabilities.placement:
        metrics.serve_report(lambda: render_unbalanced_live_page(history, problems), lambda: None)
        return Attachment(None, history, view, problems)
    metrics.serve_report(lambda: render_live_page(history, problems), lambda: _version_of(history))
    if policy.cost.price is not None:
        metrics.on_price(policy.cost.price, policy.scaling.max_executors)
    recorder = Recorder(record_dir, policy) if record_dir else None
    controller = Controller(
        engine,
        policy,
        Journal(history, view, metrics, time.time),
        record=recorder.write if recorder else None,
        plans=plans,
        baseline_batches=baseline_batches,
    )
    controller.start()
    return Attachment(controller, history, view, problems)


def _version_of(history: History) -> object:
    """Differs from an earlier one if the report of the run does."""
    under_way = [move for move in history.moves if move.under_way()]
    return history.totals, history.run, under_way


def _name_application(spark: DriverSession) -> str:
    """The application's name, or the script's if the application has none."""
    name = spark.sparkContext.appName
    return Path(sys.argv[0]).name or name if name == UNNAMED_APPLICATION else name


def count_cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Recorder:
    """Writes observations to a folder, one file each, with the policy of the decision."""

    def __init__(self, directory: Path, policy: Policy) -> None:
        self._directory = directory
        self._policy = to_mapping(policy)
        self._count = 0

    def write(self, observation: Observation) -> None:
        """Writes `observation-<n>.json`."""
        self._count += 1
        content = {"policy": self._policy, "observation": json.loads(observation.to_json())}
        path = self._directory / f"observation-{self._count:05d}.json"
        path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
