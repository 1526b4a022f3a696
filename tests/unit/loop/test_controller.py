"""The embedded loop against an engine that only takes down what it is told."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from scripted import RecordingSpectator, ScriptedEngine

from balancedstream.core.policy import AdmissionPolicy, BalancePolicy, Policy, ScalingPolicy
from balancedstream.core.samples import (
    BatchSample,
    ShuffleRecord,
    SlotHolder,
    StageSample,
    TaskSample,
)
from balancedstream.engine.events import (
    ApplicationEnded,
    BatchFinished,
    Event,
    EventsDropped,
    ExecutorRemoved,
    QueryEnded,
    QueryStarted,
    StatefulOperator,
)
from balancedstream.loop import controller as controllers
from balancedstream.loop.controller import MAX_FAILURES, Controller
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo
from balancedstream.record.spectators import Metrics
from balancedstream.shuffling import collecting

OPERATOR = StatefulOperator((0,), "StateStoreSave", 4)
SKEWED_S = (4.0, 3.0, 0.5, 0.5)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "PAUSE_S", 0.05)


def batch(
    number: int,
    placement: Mapping[int, str],
    busy_s: tuple[float, ...],
    *,
    every_s: float = 10.0,
    duration_s: float = 5.0,
    query: str = "q",
) -> BatchFinished:
    at_s = 1000.0 + every_s * number
    tasks = tuple(
        TaskSample(query, 0, p, number, placement[p], busy_s[p], 100, 1000, at_s)
        for p in range(len(busy_s))
    )
    sample = BatchSample(query, number, at_s, duration_s, 400, interval_s=every_s)
    of_executor = dict.fromkeys(placement.values(), 0.0)
    for task in tasks:
        of_executor[task.executor] += task.busy_s
    stage = StageSample(
        query, number, "stateful", at_s, len(tasks), max(busy_s, default=0.0), of_executor
    )
    return BatchFinished(query, sample, tasks, (OPERATOR,), 0, stages=(stage,))


def run(
    events: list[Event],
    policy: Policy | None = None,
    cores: dict[str, int] | None = None,
    engine_type: type[ScriptedEngine] = ScriptedEngine,
    metrics: Metrics | None = None,
) -> tuple[ScriptedEngine, History, RecordingSpectator]:
    engine = engine_type(events, cores or {"a": 1, "b": 1})
    history = History(RunInfo("test", 1000.0, 2, "4.3.0", "3.11"))
    view = RecordingSpectator()

    def clock() -> float:
        return engine.now_s

    controller = Controller(
        engine,
        policy or Policy(),
        Journal(history, view, metrics or Metrics(), clock),
        clock=clock,
    )
    controller.start()
    controller.stop()
    return engine, history, view


ALL_ON_A = {0: "a", 1: "a", 2: "a", 3: "a"}


@pytest.mark.parametrize(
    ("policy", "watched"),
    [
        (Policy(), False),
        (Policy(scaling=ScalingPolicy(max_executors=4)), True),
        (Policy(scaling=ScalingPolicy(max_executors=4, mode="off")), False),
        (Policy(admission=AdmissionPolicy(mode="auto")), True),
    ],
)
def test_sources_are_asked_where_somebody_wants_to_know(policy: Policy, watched: bool) -> None:
    engine, _, _ = run([], policy)
    assert engine.watched == [watched]


def test_a_hot_executor_is_relieved_and_the_move_is_ticked_off_when_the_task_is_there() -> None:
    engine, history, _ = run(
        [
            QueryStarted("q"),
            batch(0, ALL_ON_A, SKEWED_S),
            batch(1, ALL_ON_A, SKEWED_S),
            batch(2, {**ALL_ON_A, 0: "b"}, SKEWED_S),
            batch(3, {**ALL_ON_A, 0: "b"}, SKEWED_S),
        ]
    )
    assert engine.placed == [{0: "b"}, {}], "placed once, and let go once the task was there"
    assert [m.settled_s is not None for m in history.moves] == [True]


class RealTimeEngine(ScriptedEngine):
    """Runs a query in Real-Time Mode while batches 2 to 4 of the other one end."""

    def list_holders(self) -> tuple[SlotHolder, ...]:
        live = SlotHolder("live", "real-time", None)
        return (live,) if 1020.0 <= self.now_s < 1050.0 else ()


def test_nothing_changes_while_a_query_in_real_time_mode_runs_and_then_it_goes_on() -> None:
    batches: list[Event] = [batch(n, ALL_ON_A, SKEWED_S) for n in range(7)]
    told = Policy(scaling=ScalingPolicy(min_executors=2, max_executors=4))
    engine, history, view = run([QueryStarted("q"), *batches], told, engine_type=RealTimeEngine)
    moved = [(m.decided_s, m.dropped_s, m.dropped_reason) for m in history.moves]
    assert moved[0][:2] == (1010.0, 1020.0)
    assert "a query in Real-Time Mode runs (live)" in str(moved[0][2])
    assert [at for at, _, _ in moved[1:]] == [1050.0] * len(moved[1:]) != []
    assert engine.placed[:2] == [{0: "b"}, {}]
    held = [d for d in history.decisions if 1020.0 <= d.at_s < 1050.0]
    assert {d.kind for d in held} <= {"hold", "none", "limited"}
    assert any("Real-Time Mode" in d.reason for d in held)
    assert all(s.at_s not in range(1020, 1050) for s in history.scales)
    (said,) = [d for d in history.decisions if d.query == "live"]
    assert "it runs in Real-Time Mode" in said.reason
    assert [note for note in view.notes if "Real-Time Mode" in note] == [
        "no query in Real-Time Mode runs any more"
    ]


def test_spark_alone_says_how_long_tasks_wait_while_a_query_in_real_time_mode_runs() -> None:
    batches: list[Event] = [batch(n, ALL_ON_A, SKEWED_S) for n in range(4)]
    engine, _, _ = run(batches, engine_type=RealTimeEngine)
    assert engine.wait_s is None
    assert not engine.warms_up


def test_executors_that_a_query_in_real_time_mode_needs_are_not_taken_away() -> None:
    batches: list[Event] = [
        batch(n, {0: "a", 1: "a", 2: "b", 3: "b"}, (0.1,) * 4) for n in range(4)
    ]
    policy = Policy(scaling=ScalingPolicy(min_executors=1, max_executors=2))
    engine, _, _ = run(batches, policy, engine_type=RealTimeEngine)
    assert engine.removed == []


class SpaciousEngine(ScriptedEngine):
    """Runs a query in Real-Time Mode all the time, which leaves slots to the other one."""

    def list_holders(self) -> tuple[SlotHolder, ...]:
        return (SlotHolder("live", "real-time", 2, {"a": 1, "b": 1}),)


def test_other_queries_are_balanced_in_the_slots_that_a_query_in_real_time_mode_leaves() -> None:
    batches: list[Event] = [batch(n, ALL_ON_A, SKEWED_S) for n in range(4)]
    live = [
        replace(batch(n, ALL_ON_A, SKEWED_S, query="live"), trigger="real-time") for n in (0, 1)
    ]
    engine, history, _ = run([*batches, *live], cores={"a": 4, "b": 4}, engine_type=SpaciousEngine)
    assert engine.placed != []
    assert {move.query for move in history.moves} == {"q"}
    assert engine.wait_s is None, "a task in Real-Time Mode would wait, too, and stall the others"
    shown = [b for b in history.batches if b.query == "live"]
    assert [(b.trigger, b.loads) for b in shown] == [("real-time", ())] * 2
    (said,) = [d for d in history.decisions if d.query == "live"]
    assert "other queries are balanced in the slots that it leaves" in said.reason


def test_executors_stay_that_hold_the_slots_of_a_query_in_real_time_mode_and_its_tasks() -> None:
    spread = {0: "a", 1: "a", 2: "b", 3: "b"}
    batches: list[Event] = [batch(n, spread, (0.1,) * 4) for n in range(60)]
    policy = Policy(scaling=ScalingPolicy(min_executors=1, max_executors=2))
    for cores, stays in ((2, True), (6, False)):
        engine, _, _ = run(batches, policy, {"a": cores, "b": cores}, SpaciousEngine)
        assert (engine.draining == set()) is stays, cores


def test_a_query_under_continuous_processing_is_named_once() -> None:
    class Flowing(ScriptedEngine):
        def list_holders(self) -> tuple[SlotHolder, ...]:
            return (SlotHolder("flow", "continuous", 2 if self.now_s > 1010.0 else None),)

    engine, history, _ = run([batch(n, ALL_ON_A, SKEWED_S) for n in range(4)], engine_type=Flowing)
    (said,) = [d for d in history.decisions if d.query == "flow"]
    assert "continuous processing" in said.reason
    assert engine.placed != [], "the other query is balanced"
    assert engine.wait_s is not None


def unseen(number: int) -> BatchFinished:
    sample = BatchSample("q", number, 1000.0 + number, 0.5, 400, interval_s=1.0)
    return BatchFinished("q", sample, (), (OPERATOR,), 0, has_state=True)


def test_tasks_that_are_not_seen_are_not_told_as_tasks_that_are_not_there() -> None:
    _, _, view = run([QueryStarted("q"), *(unseen(n) for n in range(8))])
    (said,) = [note for note in view.notes if "none of its tasks is seen" in note]
    assert said.startswith("q: it keeps state")
    assert "inheritable_thread_target" in said
    _, _, view = run([unseen(0), batch(1, ALL_ON_A, SKEWED_S), unseen(2), unseen(3)])
    assert not [note for note in view.notes if "is seen" in note]


def test_a_query_that_failed_is_said_with_its_cause_first() -> None:
    error = (
        "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: "
        'Traceback (most recent call last):\n  File "x.py", line 1\nRuntimeError: sink is away\n'
    )
    _, _, view = run([QueryStarted("q"), QueryEnded("q", error)])
    assert "q failed: RuntimeError: sink is away" in view.notes


def test_a_wait_of_the_users_is_said_once() -> None:
    class Own(ScriptedEngine):
        def __init__(self, events: list[Event], cores: dict[str, int]) -> None:
            super().__init__(events, cores)
            self.own_wait = "spark.locality.wait=0s is yours and stays"

    _, _, view = run([batch(0, ALL_ON_A, SKEWED_S)], engine_type=Own)
    assert view.notes.count("spark.locality.wait=0s is yours and stays") == 1


def test_the_first_batch_is_no_measurement() -> None:
    engine, history, _ = run([batch(0, ALL_ON_A, SKEWED_S)])
    assert engine.placed == []
    assert history.totals.batches == 1


def test_where_everything_only_advises_a_lost_executor_or_a_new_one_changes_nothing() -> None:
    balance, scaling = BalancePolicy(mode="advise"), ScalingPolicy(mode="advise")
    events = [batch(0, ALL_ON_A, SKEWED_S), batch(1, ALL_ON_A, SKEWED_S)]
    advised, _, _ = run([*events, ExecutorRemoved("a", "killed")], Policy(balance, scaling))
    assert advised.placed == []
    assert not advised.warms_up
    balanced, _, _ = run([*events, ExecutorRemoved("a", "killed")])
    assert balanced.placed != []
    assert balanced.warms_up


def test_a_move_whose_target_is_lost_is_given_up_with_the_reason() -> None:
    _, history, view = run(
        [
            batch(0, ALL_ON_A, SKEWED_S),
            batch(1, ALL_ON_A, SKEWED_S),
            ExecutorRemoved("b", "lost"),
            batch(2, ALL_ON_A, SKEWED_S),
        ]
    )
    assert history.totals.moves_dropped == 1
    assert view.moves[-1].dropped_reason == "executor b is gone or leaving"
    assert view.notes == ["executor b left: lost"]


def test_a_task_that_never_comes_to_its_target_is_given_up_after_five_batches() -> None:
    _, _, view = run([batch(n, ALL_ON_A, SKEWED_S) for n in range(7)])
    dropped = [m.dropped_reason for m in view.moves if m.dropped_reason]
    assert dropped
    assert "after 5 batches" in dropped[0]


def test_moves_under_way_are_dropped_when_their_query_ends() -> None:
    _, history, _ = run(
        [batch(0, ALL_ON_A, SKEWED_S), batch(1, ALL_ON_A, SKEWED_S), QueryEnded("q", None)]
    )
    assert [m.dropped_reason for m in history.moves] == ["the query ended"]


def test_a_query_that_starts_again_counts_as_a_restart() -> None:
    _, history, _ = run([QueryStarted("q"), QueryEnded("q", None), QueryStarted("q")])
    assert history.totals.restarts == 1


def test_an_executor_leaves_only_when_no_partition_runs_on_it_any_more() -> None:
    idle_s = (0.1, 0.1, 0.1, 0.1)
    spread = {0: "a", 1: "a", 2: "b", 3: "b"}
    policy = Policy(
        scaling=ScalingPolicy(
            min_executors=1,
            max_executors=2,
            window_s=60.0,
        )
    )
    events: list[Event] = [batch(n, spread, idle_s) for n in range(8)]
    engine, history, _ = run(events, policy)
    assert history.totals.scale_actions == 1
    assert engine.draining == {"a"}
    assert engine.removed == [], "its partitions still ran there"

    onto_b = dict.fromkeys(range(4), "b")
    engine, _, _ = run([*events, *(batch(n, onto_b, idle_s) for n in range(8, 11))], policy)
    assert engine.removed == ["a"]


def test_a_stream_with_a_slow_trigger_is_scaled_as_well() -> None:
    every_s = 1800
    evenly = {0: "a", 1: "a", 2: "b", 3: "b"}
    full_s = (850.0, 850.0, 850.0, 850.0)
    engine, _, _ = run(
        [batch(n, evenly, full_s, every_s=every_s, duration_s=1750.0) for n in range(8)],
        Policy(scaling=ScalingPolicy(max_executors=4)),
    )
    assert engine.counts, "five batches were measured, whatever time they took"


def test_a_task_waits_for_its_executor_longer_than_a_batch() -> None:
    engine, _, _ = run([batch(0, ALL_ON_A, SKEWED_S)])
    assert engine.wait_s == 15.0


def test_a_task_waits_for_its_executor_by_usual_batches_not_by_the_first_one() -> None:
    engine, _, _ = run(
        [batch(n, ALL_ON_A, SKEWED_S, duration_s=s) for n, s in enumerate([90.0, 4.0, 5.0, 5.0])]
    )
    assert engine.wait_s == 15.0


def test_a_batch_that_waited_long_makes_the_next_one_wait_no_longer() -> None:
    waited = [batch(n, ALL_ON_A, SKEWED_S, duration_s=65.0) for n in range(9)]
    engine, _, _ = run([replace(e, sample=replace(e.sample, gaps_s=60.0)) for e in waited])
    assert engine.wait_s == 15.0


def test_the_query_with_the_longest_batches_sets_the_wait_as_long_as_it_runs() -> None:
    def take(number: int, query: str, duration_s: float) -> BatchFinished:
        return batch(number, ALL_ON_A, SKEWED_S, duration_s=duration_s, query=query)

    both: list[Event] = [take(0, "slow", 12.0), *(take(n, "fast", 1.5) for n in range(9))]
    assert run([*both])[0].wait_s == 36.0
    ended: list[Event] = [*both, QueryEnded("slow", None), take(9, "fast", 1.5)]
    assert run([*ended])[0].wait_s == 4.5


def test_nothing_waits_long_for_an_executor_that_is_gone() -> None:
    engine, _, _ = run(
        [
            *(batch(n, ALL_ON_A, SKEWED_S, duration_s=20.0) for n in range(3)),
            ExecutorRemoved("a", "killed"),
        ]
    )
    assert engine.wait_s == 3.0
    assert engine.waits_at_once == [False, False, False, False, True], (
        "tasks that wait already heed it"
    )


def test_a_drained_executor_that_leaves_cuts_no_wait() -> None:
    engine, _, _ = run(
        [
            *(batch(n, ALL_ON_A, SKEWED_S, duration_s=10.0) for n in range(3)),
            ExecutorRemoved("b", "retired"),
        ]
    )
    assert engine.wait_s == 30.0


def test_executors_that_are_to_join_take_tasks_of_the_batch_that_runs() -> None:
    evenly = {0: "a", 1: "a", 2: "b", 3: "b"}

    def run_batches(count: int) -> ScriptedEngine:
        full_s = (4.5, 4.5, 4.5, 4.5)
        events: list[Event] = [batch(n, evenly, full_s, duration_s=9.5) for n in range(count)]
        return run(events, Policy(scaling=ScalingPolicy(max_executors=4)))[0]

    asked = next(n for n in range(20) if run_batches(n).counts)
    assert run_batches(asked - 1).wait_s == 28.5
    assert run_batches(asked).wait_s == 3.0
    assert run_batches(asked + 1).wait_s == 3.0
    assert run_batches(asked + 2).wait_s == 28.5, "they may never come"


class FailingEngine(ScriptedEngine):
    """Cannot list a checkpoint's folder while it places; `failures` times."""

    failures = 1

    def place(self, *place: Any, **when: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, "listStatus failed")
        super().place(*place, **when)


def test_one_failure_is_logged_and_balancing_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    engine, history, _ = run(
        [batch(n, ALL_ON_A, SKEWED_S) for n in range(12)], engine_type=FailingEngine
    )
    assert {0: "b"} in engine.placed, "the move was asked for again after the first try failed"
    assert history.totals.batches == 12
    (said,) = [r.getMessage() for r in caplog.records if r.exc_info]
    assert "balancing goes on" in said


@pytest.mark.parametrize("how", ["application ended", "broken", "lost"])
def test_however_the_loop_ends_the_engine_stops_measuring(how: str) -> None:
    engine_type = {"broken": BrokenEngine, "lost": LostEngine}.get(how, ScriptedEngine)
    engine, _, _ = run([batch(0, ALL_ON_A, SKEWED_S)], engine_type=engine_type)
    assert engine.is_closed


class EndlessEngine(ScriptedEngine):
    """Batches come one after the other, without a pause."""

    def wait(self, timeout_s: float) -> Event | None:
        self.now_s += 0.3
        return batch(0, ALL_ON_A, SKEWED_S)


def test_stopping_ends_the_loop_also_where_batches_never_pause() -> None:
    engine = EndlessEngine([], {"a": 1, "b": 1})
    history = History(RunInfo("test", 1000.0, 2, "4.3.0", "3.11"))
    journal = Journal(history, RecordingSpectator(), Metrics(), lambda: engine.now_s)
    controller = Controller(engine, Policy(), journal, clock=lambda: engine.now_s)
    controller.start()
    controller.stop(timeout_s=0.1)
    assert engine.is_closed


def test_batches_that_were_never_measured_are_said_once() -> None:
    _, _, view = run([EventsDropped(3), batch(7, ALL_ON_A, SKEWED_S), EventsDropped(2)])
    (note,) = view.notes
    assert "3 batches or tasks were not measured" in note


def test_an_operator_whose_partitions_share_tasks_is_said_once_not_to_be_balanced() -> None:
    merged = [
        replace(batch(n, {}, ()), tasks=(), stages=(), merged=("StateStoreSave",)) for n in range(3)
    ]
    engine, _, view = run([*merged])
    assert engine.placed == []
    (note,) = view.notes
    assert "StateStoreSave is not balanced: a coalesce behind it" in note


class BrokenEngine(ScriptedEngine):
    """Every call for an event fails, and the application runs."""

    def wait(self, timeout_s: float) -> Event | None:
        raise OSError(errno.EIO, "broken")


def test_failures_without_end_end_balancing_with_an_error_that_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run([], engine_type=BrokenEngine)
    last = caplog.records[-1]
    assert last.levelname == "ERROR"
    assert last.getMessage().startswith("balancing ended")


class PausingEngine(ScriptedEngine):
    """Batches come, with pauses, and none can be handled."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked = 0
        self.closed = threading.Event()

    def wait(self, timeout_s: float) -> Event | None:
        self.asked += 1
        if self.asked > 4 * MAX_FAILURES:
            return ApplicationEnded()
        return batch(self.asked, ALL_ON_A, SKEWED_S) if self.asked % 2 else None

    def executors(self) -> dict[str, int]:
        raise OSError(errno.EIO, "broken")

    def close(self) -> None:
        super().close()
        self.closed.set()


def run_until_closed(engine: PausingEngine) -> None:
    """Runs a loop that nobody tells to stop: one that is told to ends at the first pause."""
    history = History(RunInfo("test", 1000.0, 2, "4.3.0", "3.11"))
    journal = Journal(history, RecordingSpectator(), Metrics(), lambda: engine.now_s)
    controller = Controller(engine, Policy(), journal, clock=lambda: engine.now_s)
    controller.start()
    assert engine.closed.wait(30.0)
    controller.stop()


def test_pauses_between_failures_do_not_hide_that_there_is_no_end_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_until_closed(PausingEngine([], {"a": 1, "b": 1}))
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == len(caplog.records) == MAX_FAILURES + 2
    assert said[0].startswith("q: BatchFinished cannot be handled")
    assert caplog.records[-1].getMessage().startswith("balancing ended")


class ShortlyBrokenEngine(PausingEngine):
    """Every call for an event fails for a moment; then the application ends."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.mended_s = time.monotonic() + 0.2

    def wait(self, timeout_s: float) -> Event | None:
        if time.monotonic() < self.mended_s:
            raise OSError(errno.EIO, "broken")
        return ApplicationEnded()


def test_calls_that_fail_for_a_moment_only_do_not_end_balancing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_until_closed(ShortlyBrokenEngine([], {"a": 1, "b": 1}))
    assert caplog.records, "a call failed"
    assert not [r for r in caplog.records if r.getMessage().startswith("balancing ended")]


class OddMetrics(Metrics):
    """Cannot take in a batch of one query."""

    def on_batch(self, sample: BatchSample, *rest: Any) -> None:
        if sample.query == "odd":
            message = "odd"
            raise ValueError(message)


def test_what_is_odd_about_one_query_is_said_once_and_ends_no_balancing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    odd: list[Event] = [batch(n, ALL_ON_A, SKEWED_S, query="odd") for n in range(3 * MAX_FAILURES)]
    engine, history, _ = run(
        [*odd, batch(0, ALL_ON_A, SKEWED_S), batch(1, ALL_ON_A, SKEWED_S), *odd],
        metrics=OddMetrics(),
    )
    assert engine.placed == [{0: "b"}]
    assert {move.query for move in history.moves} == {"q"}
    (record,) = caplog.records
    assert record.getMessage().startswith("odd: BatchFinished cannot be handled, and is left out")


class LostEngine(BrokenEngine):
    """The application is gone."""

    def is_connection_lost(self, error: Exception) -> bool:
        return True


def test_the_end_of_the_application_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    run([], engine_type=LostEngine)
    assert caplog.records == []


class ShufflingEngine(ScriptedEngine):
    """While it is asked for events, batches of a shuffle end."""

    def wait(self, timeout_s: float) -> Event | None:
        event = super().wait(timeout_s)
        if isinstance(event, BatchFinished):
            number = event.sample.batch
            collecting._tell_watchers(
                ShuffleRecord(
                    at_s=1000.0,
                    shuffle="classify by kind",
                    batch=number,
                    records=100,
                    by_estimates=number > 1,
                    estimated_s=(1.0, 1.0),
                    real_s=(2.0, 1.0),
                    error=0.1,
                    equal_error=0.5,
                    trusted=0 < number < 2,
                    reason="the estimates were off by 10 %",
                )
            )
        return event


def test_batches_of_a_shuffle_are_taken_down_and_a_change_of_its_routing_is_said() -> None:
    placement = dict.fromkeys(range(4), "a")
    events: list[Event] = [batch(n, placement, (1.0, 1.0, 1.0, 1.0)) for n in range(3)]
    _, history, view = run(events, engine_type=ShufflingEngine)
    assert [record.batch for record in history.shuffles] == [0, 1, 2]
    assert view.notes == [
        "classify by kind: estimated costs from batch 2 on: the estimates were off by 10 %",
        "classify by kind: round robin from batch 3 on: the estimates were off by 10 %",
    ]
    assert not collecting._watchers
