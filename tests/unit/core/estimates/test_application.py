"""What is summed up of an application, hour by hour."""

from __future__ import annotations

import pytest

from balancedstream.core.estimates.application import HOUR_S, Application
from balancedstream.core.estimates.worth import judge
from balancedstream.core.policy import Policy
from balancedstream.core.samples import BatchSample, StageSample, TaskSample

NOON_S = 1_000 * HOUR_S
WORK_S = 0.5


def start(executors: str = "ab") -> Application:
    application = Application(Policy())
    for executor in executors:
        application.add_executor(executor, 1, NOON_S)
    return application


def run_batches(
    application: Application, count: int, placement: str, *, first: int = 0, every_s: float = 10.0
) -> None:
    """Batches whose tasks take as long each; a batch lasts as long as its hottest executor."""
    for number in range(first, first + count):
        at_s = NOON_S + every_s * (number + 1)
        tasks = [
            TaskSample("q", 0, p, number, e, WORK_S, 10, 0, at_s) for p, e in enumerate(placement)
        ]
        lasted_s = WORK_S * max(placement.count(e) for e in set(placement))
        busy_s = {e: WORK_S * placement.count(e) for e in set(placement)}
        stage = StageSample("q", number, "stateful", at_s, len(placement), WORK_S, busy_s)
        batch = BatchSample("q", number, at_s, lasted_s, 100, every_s, 0.0)
        application.take(batch, tasks, [stage], new_run=number == 0)


def test_a_query_on_one_of_two_executors_would_be_clearly_shorter() -> None:
    application = start()
    run_batches(application, 40, "a" * 16)
    application.end(NOON_S + 400.0)
    query = application.queries["q"]
    assert query.spread.imbalance == 2.0
    assert query.spread.bound == 1.0
    assert query.spread.batch_s == 8.0
    assert query.spread.balanced_batch_s == pytest.approx(4.0, rel=0.1)
    assert query.spread.batches == 39, "the first one starts what is cold"
    worth = judge(application.queries, application.fleet)
    assert worth.balancing
    assert worth.sentence.startswith("yes: balanced, a batch of q would have taken 4.1")


def test_no_is_an_answer_and_has_its_number() -> None:
    application = start()
    run_batches(application, 40, "ab" * 8)
    application.end(NOON_S + 400.0)
    worth = judge(application.queries, application.fleet)
    assert not worth.balancing
    assert "batches would have been 0% shorter at most" in worth.sentence


def test_nothing_can_be_balanced_on_one_executor() -> None:
    application = start("a")
    run_batches(application, 10, "aaaa")
    application.end(NOON_S + 100.0)
    assert not judge(application.queries, application.fleet).balancing


def test_executor_hours_are_those_of_each_hour_and_what_is_idle_is_not_needed() -> None:
    application = start("abcd")
    run_batches(application, 720, "abcd" * 2)
    application.end(NOON_S + 7200.0)
    hours = application.fleet.hours
    assert [round(use.used_s) for use in hours.values()] == [4 * 3600, 4 * 3600]
    assert {use.needed for use in hours.values()} == {1}
    assert application.fleet.use.needed_s == pytest.approx(7200.0, rel=0.1)
    worth = judge(application.queries, application.fleet)
    assert worth.scaling
    assert "75% less" in worth.sentence


def test_executors_that_join_leave_or_get_lost_are_counted_from_the_first_batch_on() -> None:
    application = start("ab")
    run_batches(application, 2, "ab")
    application.add_executor("c", 1, NOON_S + 30.0)
    application.remove_executor("a", NOON_S + 40.0, lost=False)
    application.remove_executor("b", NOON_S + 50.0, lost=True)
    application.remove_executor("never seen", NOON_S + 50.0, lost=True)
    fleet = application.fleet
    assert (fleet.added, fleet.removed, fleet.lost) == (1, 1, 1)
    assert (fleet.fewest, fleet.most) == (1, 3)
    application.end(NOON_S + 60.0)
    assert fleet.use.used_s == pytest.approx(2 * 30.0 + 3 * 10.0 + 2 * 10.0 + 1 * 10.0)


def test_a_clock_that_is_set_far_ahead_or_back_costs_neither_time_nor_sums() -> None:
    application = start()
    run_batches(application, 3, "ab")
    application.add_executor("c", 1, 2.0e11)
    application.add_executor("d", 1, NOON_S)
    assert application.fleet.use.seconds == pytest.approx(30.0)


def test_memory_does_not_grow_with_the_batches() -> None:
    application = start()
    run_batches(application, 500, "ab")
    recent = application._recent["q"]
    assert len(recent.batches) == len(recent.stages) == 60
    assert len(recent.tasks) == Policy().window.batches
    assert len(application.queries["q"].hours) == 2


@pytest.mark.parametrize(("every_s", "lasts_s"), [(600.0, 400.0), (300.0, 250.0), (420.0, 400.0)])
def test_batches_longer_than_what_is_looked_at_need_what_they_need(
    every_s: float, lasts_s: float
) -> None:
    application = start("abcd")
    for number in range(12):
        at_s = NOON_S + every_s * number + lasts_s
        busy_s = dict.fromkeys("abcd", 0.97 * lasts_s)
        stage = StageSample("q", number, "source", at_s, 64, 0.06 * lasts_s, busy_s)
        interval_s = every_s if number else None
        batch = BatchSample("q", number, at_s, lasts_s, 1000, interval_s, 0.0)
        application.take(batch, (), (stage,), new_run=number == 0)
    application.end(NOON_S + 12 * every_s)
    use = application.fleet.use
    assert use.judged_s > 0.0
    assert use.needed_s >= 0.6 * use.judged_s
