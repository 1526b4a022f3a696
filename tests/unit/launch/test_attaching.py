"""What attaching begins, what it writes down, and what it says where Spark does not allow it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted import RecordingSpectator, ScriptedEngine

from balancedstream.core.money import Price
from balancedstream.core.observations import Observation, parse_observation
from balancedstream.core.policy import BalancePolicy, Policy, parse, to_mapping
from balancedstream.core.samples import BatchSample, TaskSample
from balancedstream.engine.capabilities import Capabilities
from balancedstream.engine.events import BatchFinished, Event, StatefulOperator
from balancedstream.launch import attaching
from balancedstream.launch.attaching import Recorder, attach, count_cores
from balancedstream.record.records import RunInfo
from balancedstream.record.spectators import Metrics

OPERATOR = StatefulOperator((0,), "StateStoreSave", 2)
PROBLEMS = ("Placement is not possible with Spark 9.9.", "A single executor.")


class Session:
    """As much of a Spark session as attaching itself looks at."""

    version = "4.3.0"

    def __init__(self) -> None:
        self.sparkContext = self
        self.appName = "flights.py"


class Engine(ScriptedEngine):
    """A scripted engine that says what can be done."""

    def __init__(self, events: list[Event], capabilities: Capabilities) -> None:
        super().__init__(events, {"a": 1, "b": 1})
        self.capabilities = capabilities


def run_engine(
    monkeypatch: pytest.MonkeyPatch, *events: Event, problems: tuple[str, ...] = ()
) -> Any:
    """The session of an application with these events; with a problem, nothing is possible."""
    engine = Engine([*events], Capabilities(not problems, problems))
    monkeypatch.setattr(attaching, "stand_plugin_down", lambda spark, reason: None)
    monkeypatch.setattr(attaching, "SparkEngine", lambda spark, acts: engine)
    return Session()


def finish(batch: int, at_s: float) -> BatchFinished:
    """Both partitions ran on executor a, and one of them is far larger."""
    tasks = tuple(
        TaskSample("q", 0, partition, batch, "a", busy_s, 10, 1000, at_s)
        for partition, busy_s in enumerate((4.0, 3.0))
    )
    return BatchFinished("q", BatchSample("q", batch, at_s, 8.0, 20), tasks, (OPERATOR,), 0)


def count_own_threads() -> int:
    return sum(thread.name == "balancedstream" for thread in threading.enumerate())


def test_where_placement_is_impossible_it_is_said_and_nothing_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    view = RecordingSpectator()
    spark = run_engine(monkeypatch, finish(0, 1000.0), problems=PROBLEMS)
    attachment = attach(spark, open_view=lambda run: view, record_dir=tmp_path)
    assert attachment.problems == PROBLEMS
    assert view.notes == [*PROBLEMS]
    assert count_own_threads() == 0
    attachment.detach()
    assert attachment.history.batches == ()
    assert attachment.history.run.ended_s is not None
    assert [*tmp_path.iterdir()] == []


def test_removed_knobs_are_said_in_one_line_and_the_rest_of_the_policy_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = RecordingSpectator()
    policy = parse({"balance": {"stop_at": 1.3, "act_above": 1.5}, "scaling": {"scale_in_step": 1}})
    attachment = attach(run_engine(monkeypatch), policy, open_view=lambda run: view)
    attachment.detach()
    (said,) = view.notes
    assert "balance.stop_at (moves always continue to within 2 % of the bound)" in said
    assert "scaling.scale_in_step (all that are not needed leave at once)" in said
    assert attachment.history.run.settings["balance.act_above"] == 1.5


def test_detaching_ends_after_what_was_reported_has_been_taken_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    view = RecordingSpectator()
    began_s = time.time() - 60.0
    spark = run_engine(monkeypatch, *(finish(n, began_s + 10 * n) for n in range(6)))
    attachment = attach(spark, open_view=lambda run: view, record_dir=tmp_path)
    attachment.detach()
    assert attachment.problems == ()
    assert [batch.batch for batch in attachment.history.batches] == [*range(6)]
    assert count_own_threads() == 0
    # A plan was made, and what it was made of is kept.
    assert view.moves
    assert (tmp_path / "observation-00001.json").exists()


def test_while_it_runs_the_report_is_beside_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Callable[[], str]] = []
    versions: list[object] = []

    class Page(Metrics):
        def serve_report(self, render: Callable[[], str], version: Callable[[], object]) -> None:
            versions.append(version())
            served.append(render)

    spark = run_engine(monkeypatch, *(finish(n, 1000.0 + 10 * n) for n in range(6)))
    attachment = attach(spark, open_view=lambda run: RecordingSpectator(), metrics=Page())
    attachment.detach()
    (render,) = served
    page = render()
    assert '<meta http-equiv="refresh"' in page
    assert "flights.py" in page
    assert "the imbalance" in page, "it has the decisions so far"


def test_where_placement_is_impossible_the_page_says_so_and_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: list[Callable[[], str]] = []

    class Page(Metrics):
        def serve_report(self, render: Callable[[], str], version: Callable[[], object]) -> None:
            served.append(render)

    spark = run_engine(monkeypatch, finish(0, 1000.0), problems=PROBLEMS)
    attach(spark, open_view=lambda run: RecordingSpectator(), metrics=Page()).detach()
    page = served[0]()
    for said in ("This application is not balanced", *PROBLEMS):
        assert said in page
    assert "Waiting" not in page


def test_the_price_of_a_policy_reaches_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[Price, int]] = []

    class Priced(Metrics):
        def on_price(self, price: Price, max_executors: int) -> None:
            told.append((price, max_executors))

    for cost in ({}, {"executor_hour": 0.12, "currency": "EUR"}):
        policy = parse({"cost": cost, "scaling": {"max_executors": 6}})
        spark = run_engine(monkeypatch, finish(0, 1000.0))
        attach(spark, policy, open_view=lambda run: RecordingSpectator(), metrics=Priced()).detach()
    assert told == [(Price(0.12, "EUR"), 6)]


def test_the_run_says_what_it_runs_on_and_every_knob(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[RunInfo] = []

    def open_view(run: RunInfo) -> RecordingSpectator:
        runs.append(run)
        return RecordingSpectator()

    policy = Policy(balance=BalancePolicy(act_above=1.5))
    attach(run_engine(monkeypatch), policy, open_view=open_view).detach()
    (run,) = runs
    assert (run.app, run.spark_version, run.cores) == ("flights.py", "4.3.0", count_cores())
    assert run.settings["balance.act_above"] == 1.5
    knobs = {f"{part}.{name}" for part, values in to_mapping(policy).items() for name in values}
    assert set(run.settings) == knobs


def test_the_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5, 7}, raising=False)
    assert count_cores() == 3
    # macOS does not say; then all count.
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert count_cores() == 8
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert count_cores() == 1


def test_observations_are_kept_with_their_policy_one_file_each(tmp_path: Path) -> None:
    policy = Policy(balance=BalancePolicy(act_above=1.5))
    recorder = Recorder(tmp_path, policy)
    observations = [Observation(at_s, {"a": 2}, finish(0, at_s).tasks) for at_s in (1.0, 2.0)]
    for observation in observations:
        recorder.write(observation)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["observation-00001.json", "observation-00002.json"]
    for file, observation in zip(files, observations, strict=True):
        content = json.loads(file.read_text("utf-8"))
        assert content["policy"] == to_mapping(policy)
        assert parse_observation(json.dumps(content["observation"])) == observation
