"""Whatever is measured: the loop goes on, and so do all that are told of it."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odd_batches import COUNTS, NAMES, SHUFFLES, SOUND, odd_batches
from rich.console import Console
from scripted import RecordingSpectator, ScriptedEngine

from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.samples import BatchSample, ShuffleRecord, StageSample, TaskSample
from balancedstream.engine.events import (
    BatchFinished,
    Event,
    ExecutorAdded,
    ExecutorRemoved,
    QueryEnded,
    QueryIdle,
    QueryStarted,
    StatefulOperator,
)
from balancedstream.live.terminal import LiveView
from balancedstream.loop.controller import MAX_FAILURES, Controller
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo
from balancedstream.record.spectators import Metrics
from balancedstream.report import render_json, render_live_page, summarize
from balancedstream.shuffling import collecting

OPERATOR = StatefulOperator((0,), "StateStoreSave", 4)
POLICY = Policy(scaling=ScalingPolicy(min_executors=1, max_executors=4))


class TimedEngine(ScriptedEngine):
    """Has a clock of its own, whatever the batches say; tells of shuffled batches before others."""

    def __init__(self, events: list[Event], shuffles: Sequence[ShuffleRecord]) -> None:
        super().__init__(events, {"a": 1, "b": 1})
        self.preparing = True
        self._shuffles = iter(shuffles)

    def wait(self, timeout_s: float) -> Event | None:
        shuffle = next(self._shuffles, None)
        if shuffle is not None:
            collecting._tell_watchers(shuffle)
        now_s = self.now_s
        event = super().wait(timeout_s)
        if not isinstance(event, BatchFinished) or event.query != "usual":
            self.now_s = now_s + 1.0
        return event


class Lines(logging.Handler):
    """What the loop could not handle."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))


@pytest.fixture(scope="module")
def lines() -> Iterator[Lines]:
    handler, log = Lines(), logging.getLogger("balancedstream")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def start_history() -> History:
    return History(RunInfo("test", 1000.0, 2, "4.3.0", "3.11"))


def run(engine: ScriptedEngine, journal: Journal) -> None:
    """Runs the loop to the end of the engine's script."""
    controller = Controller(engine, POLICY, journal, clock=lambda: engine.now_s)
    controller.start()
    controller.stop()
    assert engine.is_closed
    assert next(engine._events, None) is None, "the loop ended before the script did"


def usual(batch: int) -> BatchFinished:
    """A batch of a query with a hot executor."""
    at_s, busy_s = 1000.0 + 10.0 * batch, (4.0, 3.0, 0.5, 0.5)
    tasks = tuple(
        TaskSample("usual", 0, p, batch, "a", busy_s[p], 100, 1000, at_s) for p in range(4)
    )
    sample = BatchSample("usual", batch, at_s, 5.0, 400, interval_s=10.0)
    stage = StageSample("usual", batch, "stateful", at_s, 4, 4.0, {"a": 8.0})
    return BatchFinished("usual", sample, tasks, (OPERATOR,), 0, stages=(stage,))


BATCHES = odd_batches(NAMES)
OTHERS = st.sampled_from(
    [
        QueryStarted("odd"),
        QueryIdle("odd"),
        QueryEnded("odd", None),
        ExecutorAdded("c", 1),
        ExecutorRemoved("b", "lost"),
    ]
)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=30, deadline=None)
@given(
    events=st.lists(BATCHES | odd_batches(NAMES, SOUND, COUNTS) | OTHERS, max_size=8),
    shuffles=st.lists(SHUFFLES, max_size=3),
)
def test_batches_with_any_numbers_end_nothing_and_can_all_be_shown(
    events: list[Event], shuffles: list[ShuffleRecord], lines: Lines
) -> None:
    lines.said.clear()
    engine = TimedEngine([QueryStarted("odd"), *events], shuffles)
    history, exporter = start_history(), Exporter()
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=40)
    view = LiveView(history.run, console, lambda: engine.now_s, redirect=False)
    run(engine, Journal(history, view, exporter, lambda: engine.now_s))
    assert lines.said == []
    view.close()
    assert list(exporter.collect())
    assert "<html" in render_live_page(history)
    assert render_json(summarize(history))


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=30, deadline=None)
@given(st.lists(BATCHES.filter(lambda batch: not batch.is_sound()), max_size=3 * MAX_FAILURES))
def test_batches_that_cannot_be_reckoned_with_change_no_decision_on_other_queries(
    odd: list[BatchFinished],
) -> None:
    engine = TimedEngine([*odd, usual(0), *odd, usual(1), *odd, usual(2)], ())
    run(engine, Journal(start_history(), RecordingSpectator(), Metrics(), lambda: engine.now_s))
    assert engine.prepared == [{0: "b"}]
