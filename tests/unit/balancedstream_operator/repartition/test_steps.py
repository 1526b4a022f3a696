"""From one number of state partitions to another one: what is done when, and what is not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from balancedstream.core.wire.stopping import Stop, Stopped
from balancedstream_operator.repartition.steps import (
    AGAIN_AFTER_S,
    DEAF_AFTER_S,
    WATCHED_S,
    JobSeen,
    Repartition,
    Sight,
    advance,
    describe,
    read_repartition,
    write_repartition,
)

ASKED = Repartition(4, 16, "stopping", 100.0)
PATHS = ("/checkpoints/clicks/q",)
REWRITING = replace(ASKED, step="rewriting", checkpoints=PATHS, stopped_s=130.0)
STARTING = replace(REWRITING, step="starting", rewritten=True)
ENDED = Stopped(ASKED.id, checkpoints=PATHS, done=True)
DONE, BROKEN, WORKS = JobSeen("succeeded"), JobSeen("failed", "no RocksDB."), JobSeen("running")


def go(known: Repartition | None, now_s: float = 200.0, **seen: Any) -> Repartition | None:
    return advance(known, 4, Sight(**{"wanted": 16, **seen}), now_s)


def step_of(found: Repartition | None) -> str:
    return found.step if found is not None else "none"


def test_it_goes_step_by_step_and_measures_how_long_the_stream_stood_still() -> None:
    known = go(None, 100.0)
    assert known == ASKED
    assert known.stop == Stop(ASKED.id, 16)
    known = go(known, 130.0, told=ENDED)
    assert known == REWRITING
    assert (known.holds_driver, known.present) == (True, 4)
    for job in (None, WORKS):
        assert go(known, 140.0, job=job) == known
    known = go(known, 150.0, job=DONE)
    assert known == STARTING
    assert (known.holds_driver, known.stop, known.present) == (False, None, 16)
    assert go(known, 160.0) == known
    known = go(known, 180.0, ran_s=175.0)
    assert known == replace(STARTING, ran_s=175.0)
    known = go(known, 175.0 + WATCHED_S, ran_s=175.0)
    assert step_of(known) == "done"
    assert known is not None
    assert known.downtime_s == 45.0
    assert go(known, 900.0) == known


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        ({"wanted": None}, "none"),
        ({"wanted": 4}, "none"),
        ({"suspended": True}, "none"),
        ({"held": "paused"}, "none"),
        ({"refused": "on an object store"}, "refused"),
        ({"held": "paused", "refused": "on an object store"}, "refused"),
    ],
)
def test_what_is_not_asked_for_or_must_wait_or_is_refused_stops_nothing(
    seen: dict[str, Any], step: str
) -> None:
    found = go(None, **seen)
    assert step_of(found) == step
    assert found is None or found.stop is None


def test_what_the_driver_refuses_is_not_tried_again_until_another_number_is_asked_for() -> None:
    refused = go(ASKED, told=Stopped(ASKED.id, refused="it uses balanced(...)."))
    assert step_of(refused) == "refused"
    assert refused is not None
    assert "balanced(...)" in describe(refused)
    assert go(refused, 9000.0) == refused
    assert go(refused, wanted=4) is None
    again = go(refused, 300.0, wanted=8)
    assert again == Repartition(4, 8, "stopping", 300.0)


def test_a_driver_that_follows_plans_and_knows_no_stop_is_of_an_older_release() -> None:
    late_s = ASKED.asked_s + DEAF_AFTER_S + 1.0
    assert step_of(go(ASKED, late_s)) == "stopping", "it may be starting"
    assert step_of(go(ASKED, late_s, follows=True)) == "refused"
    assert step_of(go(ASKED, late_s - 2.0, follows=True)) == "stopping"
    waits = Stopped(ASKED.id)
    assert step_of(go(ASKED, late_s, follows=True, told=waits)) == "stopping"


@pytest.mark.parametrize("known", [ASKED, REWRITING])
def test_until_the_job_is_made_another_number_or_the_old_one_may_be_asked_for(
    known: Repartition,
) -> None:
    assert go(known, wanted=4, unmade=True) is None
    assert go(known, wanted=None, unmade=True) is None
    assert go(known, wanted=8, unmade=True) == replace(known, wanted=8)
    assert go(REWRITING, wanted=8, job=WORKS) == REWRITING


@pytest.mark.parametrize("wanted", [4, 8, None])
def test_what_a_job_may_have_begun_is_undone_before_another_number_counts(
    wanted: int | None,
) -> None:
    known = go(REWRITING, wanted=wanted)
    assert (step_of(known), known and known.holds_driver) == ("undoing", True)
    assert go(known, wanted=wanted) == known
    known = go(known, wanted=wanted, job=DONE)
    assert (step_of(known), known and known.present) == ("starting", 4)
    assert go(REWRITING) == REWRITING, "the same number: the Job is made again"


def test_a_suspended_stream_is_not_being_stopped_but_goes_on_once_it_stands_still() -> None:
    assert go(ASKED, suspended=True) is None
    assert step_of(go(ASKED, suspended=True, told=ENDED)) == "rewriting"
    assert step_of(go(REWRITING, suspended=True, job=DONE)) == "starting"


def test_a_job_that_fails_is_undone_and_the_stream_runs_as_before() -> None:
    known = go(REWRITING, job=BROKEN)
    assert step_of(known) == "undoing"
    assert go(known, job=WORKS) == known
    known = go(known, job=DONE)
    assert step_of(known) == "starting"
    assert known is not None
    assert (known.present, known.why) == (4, "no RocksDB.")
    known = go(go(known, 300.0, ran_s=290.0), 300.0 + WATCHED_S, ran_s=290.0)
    assert step_of(known) == "failed"
    assert known is not None
    assert "The stream has 4 state partitions; the stream stood still for 160 s" in describe(known)
    assert go(known, 9000.0) == known, "no endless loop"
    assert go(known, wanted=4) is None


def test_no_driver_starts_on_what_is_half_done_and_cannot_be_undone() -> None:
    undoing = go(REWRITING, job=JobSeen("failed", "the disk is full."))
    refused = JobSeen("failed", "format 1")
    assert go(undoing, ASKED.asked_s + AGAIN_AFTER_S - 1.0, job=refused) == undoing
    again_s = ASKED.asked_s + AGAIN_AFTER_S
    again = go(undoing, again_s, job=refused)
    assert again is not None
    assert (again.step, again.asked_s, again.holds_driver) == ("rewriting", again_s, True)
    assert "the disk is full. It could not be undone: format 1" in describe(again)
    for wanted in (4, 16):
        assert go(again, wanted=wanted) == again, "only what is finished can be gone back from"
    failed = go(again, job=JobSeen("failed", "the disk is full."))
    assert failed is not None
    assert (failed.step, failed.why) == ("undoing", "the disk is full."), "it does not grow"
    done = go(again, job=DONE)
    assert done == replace(again, step="starting", rewritten=True, why="")


def test_a_driver_that_does_not_start_with_it_is_undone_once() -> None:
    known = go(STARTING, fails="exit code 1")
    assert step_of(known) == "undoing"
    assert known is not None
    assert known.present == 16
    known = go(known, job=DONE)
    assert (step_of(known), known and known.present) == ("starting", 4)
    known = go(known, fails="exit code 1")
    assert step_of(known) == "failed"
    assert step_of(go(replace(STARTING, ran_s=170.0), 180.0, fails="exit code 1")) == "starting"


def test_what_cannot_be_undone_keeps_the_new_number() -> None:
    known = go(replace(STARTING, step="undoing", why="it fails"), job=JobSeen("failed", "format 1"))
    assert (step_of(known), known and known.present) == ("starting", 16)
    assert known is not None
    assert "It could not be undone: format 1" in known.why


def test_after_a_done_one_the_next_begins_from_its_number() -> None:
    done = replace(STARTING, step="done", ran_s=175.0)
    assert advance(done, 16, Sight(16), 300.0) == done
    assert advance(done, 16, Sight(4), 300.0) == Repartition(16, 4, "stopping", 300.0)


@pytest.mark.parametrize("ran_s", [5.0, 9_999.0])
def test_a_clock_of_the_driver_that_cannot_be_is_left_out(ran_s: float) -> None:
    known = go(STARTING, 200.0, ran_s=ran_s)
    assert known is not None
    assert known.ran_s == 200.0


def test_what_a_record_holds_is_read_again_and_what_is_none_is_none() -> None:
    known = replace(REWRITING, why="no RocksDB.")
    written = json.loads(json.dumps(write_repartition(known)))
    assert read_repartition(written) == known
    assert read_repartition({**written, "mood": "good"}) == known
    assert read_repartition({**written, "asked_s": -5.0}) == replace(known, asked_s=-5.0)
    for spoilt in (None, 7, {}, {**written, "before": "x"}, {**written, "checkpoints": 7}):
        assert read_repartition(spoilt) is None
