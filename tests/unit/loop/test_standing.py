"""A driver adds executors by itself where its plan said so beforehand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted import RecordingSpectator, ScriptedEngine, ScriptedPlans

from balancedstream.core.samples import BatchSample
from balancedstream.core.wire.plan import Plan, Standing, StandingStep
from balancedstream.engine.events import BatchFinished, BatchPlanned, RowsWaiting
from balancedstream.loop.following import Follower
from balancedstream.loop.ports import FinishedBatch
from balancedstream.loop.realizing import Realizer
from balancedstream.loop.stopping import Stopping
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import BatchRecord, RunInfo

STEPS = (
    StandingStep("q", 2, 150.0, 4_000.0),
    StandingStep("q", 3, 230.0, 9_000.0),
    StandingStep("q", 6, 300.0, 12_000.0),
)


def plan(epoch: int, asked: int = 2, executors: tuple[str, ...] = ("a", "b")) -> Plan:
    """Two executors, and up to six by itself; its maker knew of so many that were asked for."""
    return Plan(epoch, executors, {}, standing=Standing(asked, 45.0, STEPS))


class Driver:
    """It has had three batches of 1,000 rows, one each 10 s; the next one begins at 30 s."""

    def __init__(
        self, first: Plan, waiting: float = 0.0, engine: ScriptedEngine | None = None
    ) -> None:
        self.engine = engine or ScriptedEngine([], {"a": 1, "b": 1})
        self.history = History(RunInfo("test", 0.0, 2, "4.3.0", "3.11"))
        self.spectator = RecordingSpectator()
        journal = Journal(self.history, self.spectator, Exporter(), lambda: 0.0)
        self.realizer = Realizer(self.engine, journal)
        self.plans = ScriptedPlans(first)
        self.follower = Follower(
            self.realizer, self.plans, journal, Stopping(self.engine, self.plans, journal)
        )
        self.follower.look_for_plans({}, 0.0)
        self.at_s, self.waiting = 30.0, waiting
        self.begin()

    def begin(self) -> None:
        """The three batches, and the one that runs."""
        for number in range(3):
            self.finish_batch(number)
        self._see(BatchPlanned("q", 3, self.at_s, 1000.0, self.waiting, 10.0))

    def finish_batch(self, number: int, executors: int = 2) -> None:
        """A batch of 1,000 rows has taken 7 s on so many executors."""
        sample = BatchSample("q", number, 10.0 * number + 7, 7.0, 1000, 10.0, self.waiting, 10.0)
        event = BatchFinished("q", sample, (), (), 0)
        record = BatchRecord("q", number, sample.finished_s, 7000, 1000, 0.0, executors)
        live = {str(n): 1 for n in range(executors)}
        self.follower.finish_batch(FinishedBatch(event, record, live, 0.0))

    def look(self, seconds: int, rate: float) -> None:
        """Rows come at a rate, and the source is asked each second."""
        for _ in range(seconds):
            self.at_s, self.waiting = self.at_s + 1.0, self.waiting + rate
            self._see(RowsWaiting("q", self.at_s, self.waiting))

    def take(self, plan: Plan) -> None:
        """A plan comes."""
        self.plans.bring(plan)
        self.follower.look_for_plans({}, 0.0)

    def _see(self, event: BatchPlanned | RowsWaiting) -> None:
        self.follower.see(event, self.engine.executors(), event.at_s)


def test_while_rows_come_as_the_plan_expects_no_executor_is_added() -> None:
    driver = Driver(plan(1))
    driver.look(9, rate=100.0)
    assert (driver.engine.counts, driver.plans.answers[-1].stood) == ([], None)
    assert driver.engine.watched == [True]


@pytest.mark.parametrize(("rate", "count"), [(200.0, 3), (280.0, 6), (9_000.0, 6)])
def test_a_step_of_the_load_adds_as_many_as_are_enough_once_it_no_longer_rises(
    rate: float, count: int
) -> None:
    driver = Driver(plan(1))
    driver.look(5, rate=100.0)
    driver.look(2, rate)
    assert driver.engine.counts == [], "how far it goes shows within seconds"
    driver.look(4, rate)
    assert driver.engine.counts == [count]
    (scale,) = driver.history.scales
    assert (scale.executors_before, scale.executors_after) == (2, count)
    assert f"standing plan 1: {rate:,.0f} rows/s of query q come" in scale.reason


BOUNDED = tuple(replace(step, batch_rows=1_000.0 * step.executors) for step in STEPS)


def test_each_batch_is_bounded_to_what_the_executors_that_are_there_do_in_time() -> None:
    driver = Driver(Plan(1, ("a", "b"), {}, standing=Standing(2, 45.0, BOUNDED)))
    assert driver.engine.bounds == [2_000.0] * 3
    driver.finish_batch(3, executors=4)
    assert driver.engine.bounds[-1] == 3_000.0, "four do at least what three do"
    driver.take(plan(2))
    driver.finish_batch(4)
    assert len(driver.engine.bounds) == 4, "a plan without a bound renews none"


def test_a_source_that_takes_no_bound_is_said_once() -> None:
    engine = ScriptedEngine([], {"a": 1, "b": 1})
    engine.unbounded = "its source has no limit"
    bounded = Plan(1, ("a", "b"), {}, standing=Standing(2, 45.0, BOUNDED))
    driver = Driver(bounded, engine=engine)
    assert driver.spectator.notes == ["q: its batches are not bounded: its source has no limit"]


def test_rows_that_wait_add_executors_also_if_no_more_come_than_before() -> None:
    driver = Driver(plan(1), waiting=5_000.0)
    driver.look(9, rate=100.0)
    assert driver.engine.counts == [3]
    driver.look(30, rate=120.0)
    assert driver.engine.counts == [3], "those that come have not shown yet what they bring"
    driver.look(20, rate=120.0)
    assert driver.engine.counts == [3, 6]


def test_the_operator_is_told_what_was_asked_for_until_a_plan_knows() -> None:
    driver = Driver(plan(1))
    driver.look(5, rate=100.0)
    driver.look(6, rate=200.0)
    driver.follower.look_for_plans({}, 0.0)
    stood = driver.plans.answers[-1].stood
    assert stood is not None
    assert (stood.executors, stood.at_s) == (3, 41.0)
    driver.take(plan(2, asked=3, executors=("a", "b", "+1")))
    assert driver.plans.answers[-1].stood is None


def test_a_plan_that_was_made_without_knowing_removes_none_and_one_that_knows_may() -> None:
    driver = Driver(plan(1))
    driver.look(5, rate=100.0)
    driver.look(6, rate=200.0)
    assert driver.realizer.state().requested == 3
    driver.take(plan(2))
    assert driver.realizer.state().requested == 3
    driver.take(plan(3, asked=3))
    assert driver.engine.counts == [3, 2]
    assert driver.realizer.state().requested is None


def test_a_plan_that_knows_may_ask_for_fewer_also_if_it_allows_more() -> None:
    driver = Driver(plan(1))
    driver.look(5, rate=100.0)
    driver.look(6, rate=280.0)
    assert driver.realizer.state().requested == 6
    driver.take(plan(2, asked=6, executors=("a", "b", "+1")))
    assert driver.engine.counts == [6, 3]


def test_a_query_that_ended_leaves_nothing_to_the_next_one_of_its_name() -> None:
    def count_looks() -> int:
        looks, driver = 0, Driver(plan(1), waiting=5_000.0)
        while not driver.engine.counts:
            driver.look(1, rate=100.0)
            looks += 1
        return looks

    looks = count_looks()
    driver = Driver(plan(1), waiting=5_000.0)
    driver.look(looks - 1, rate=100.0)
    driver.follower.end_query("q")
    driver.at_s, driver.waiting = 30.0, 5_000.0
    driver.begin()
    driver.look(looks - 1, rate=100.0)
    assert driver.engine.counts == [], "the first look that needs more may be chance"
    driver.look(1, rate=100.0)
    assert driver.engine.counts == [3]


def test_from_the_time_that_the_plan_says_on_none_is_added() -> None:
    driver = Driver(Plan(1, ("a", "b"), {}, standing=Standing(2, 45.0, STEPS, until_s=41.0)))
    driver.look(5, rate=100.0)
    driver.look(5, rate=200.0)
    assert driver.at_s == 40.0
    assert driver.engine.counts == []
    driver.look(9, rate=9_000.0)
    assert driver.engine.counts == []


def test_under_a_plan_that_allows_none_nothing_is_added() -> None:
    driver = Driver(plan(1))
    driver.look(5, rate=100.0)
    driver.take(Plan(2, ("a", "b"), {}))
    driver.look(6, rate=9_000.0)
    assert driver.engine.counts == []


def test_while_nothing_is_to_change_nothing_is_added() -> None:
    driver = Driver(plan(1))
    driver.realizer.pause("a query in Real-Time Mode runs")
    driver.look(5, rate=100.0)
    driver.look(6, rate=9_000.0)
    assert driver.engine.counts == []
