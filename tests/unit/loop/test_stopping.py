"""A driver ends its queries when their state is to be written anew, and says how far that is."""

from __future__ import annotations

import pytest
from scripted import RecordingSpectator, ScriptedEngine, ScriptedPlans

from balancedstream.core.wire.stopping import Stop, Stopped
from balancedstream.errors import RepartitionError
from balancedstream.loop.stopping import Stopping
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo

PATHS = ("/checkpoints/clicks/q",)
ASKED = Stop("a", 16).to_json()


def begin(
    *checkpoints: tuple[str, ...] | Exception,
) -> tuple[Stopping, ScriptedEngine, ScriptedPlans]:
    engine, plans = ScriptedEngine([], {"a": 1}), ScriptedPlans()
    engine.checkpoints = list(checkpoints)
    run = RunInfo("test", 1000.0, 2, "4.3.0", "3.11")
    journal = Journal(History(run), RecordingSpectator(), Exporter(), lambda: 1000.0)
    return Stopping(engine, plans, journal), engine, plans


def test_without_a_request_nothing_ends() -> None:
    stopping, engine, plans = begin()
    stopping.look()
    stopping.end()
    assert (engine.ends, plans.stopped, plans.starts_anew) == ([], [], 0)


def test_a_request_ends_the_queries_and_each_step_is_told_once() -> None:
    stopping, engine, plans = begin(PATHS)
    engine.ends = [False, False, True]
    plans.stop = ASKED
    for _ in range(3):
        stopping.look()
    assert plans.stopped == [
        Stopped("a", checkpoints=PATHS),
        Stopped("a", checkpoints=PATHS, done=True),
    ]


def test_what_would_be_refused_is_refused_before_a_query_ends() -> None:
    stopping, engine, plans = begin(RepartitionError("the query uses balanced(...)."))
    plans.stop = ASKED
    stopping.look()
    stopping.look()
    assert plans.stopped == [Stopped("a", refused="the query uses balanced(...).")]
    # Popping from an empty script would have failed.
    assert engine.ends == []
    plans.stop = ""
    stopping.look()
    assert plans.starts_anew == 0


def test_before_the_first_batch_it_waits() -> None:
    stopping, engine, plans = begin((), (), PATHS)
    engine.ends = [True]
    plans.stop = ASKED
    for _ in range(3):
        stopping.look()
    assert plans.stopped == [Stopped("a"), Stopped("a", checkpoints=PATHS, done=True)]


def test_a_request_that_is_withdrawn_starts_the_driver_anew_if_a_query_was_to_end() -> None:
    stopping, engine, plans = begin((), PATHS)
    engine.ends = [False]
    plans.stop = ASKED
    stopping.look()
    plans.stop = ""
    stopping.look()
    assert plans.starts_anew == 0
    plans.stop = ASKED
    stopping.look()
    plans.stop = ""
    stopping.look()
    assert plans.starts_anew == 1


def test_a_query_that_the_script_starts_again_ends_too() -> None:
    stopping, engine, plans = begin(PATHS)
    engine.ends = [True, False, False]
    plans.stop = ASKED
    for _ in range(3):
        stopping.look()
    assert (engine.ends, plans.stopped[-1].done) == ([], True)


@pytest.mark.parametrize(
    ("ends", "done"),
    [
        pytest.param([False, True], True, id="stopped by the script"),
        pytest.param([False, False], False, id="with a query that runs"),
        pytest.param([False], False, id="killed"),
    ],
)
def test_an_application_that_ends_meanwhile_is_done_if_its_queries_had_ended(
    ends: list[bool], *, done: bool
) -> None:
    stopping, engine, plans = begin(PATHS)
    engine.ends = ends
    plans.stop = ASKED
    stopping.look()
    stopping.end()
    assert plans.stopped[-1] == Stopped("a", checkpoints=PATHS, done=done)


def test_a_request_that_only_a_newer_release_can_read_is_overlooked() -> None:
    stopping, _, plans = begin()
    plans.stop = '{"id": "a", "partitions": 16, "mood": "good"}'
    stopping.look()
    assert plans.stopped == []
