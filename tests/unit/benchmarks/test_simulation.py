"""Batches in virtual time: what they take by hand, and that each row is read once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from simulation.figures import Figures, compute_figures
from simulation.model import Batch, Job, run_batch, weigh_partitions
from simulation.running import Change, run_ours, run_scaler
from simulation.scalers import (
    DruidCosts,
    DynamicAllocation,
    ElasticScaling,
    Fixed,
    LagThreshold,
    ManagedFlink,
    count_for,
)
from simulation.spark import BOUND_BATCHES, BatchRun, VirtualSpark
from simulation.traces import MAKERS, Trace
from simulation.workloads import HELD_OUT, make_workload

from balancedstream.engine.events import (
    ApplicationEnded,
    BatchFinished,
    BatchPlanned,
    Event,
    RowsWaiting,
)

QUIET = Job(
    splits=4,
    partitions=4,
    map_row_s=0.001,
    state_row_s=0.002,
    task_s=0.1,
    driver_s=0.5,
    restore_s=1.0,
    noise=0.0,
)
EVEN = (0.25,) * 4
TWO = {"a": 1, "b": 1}


def run_one(placement: str, *, wait_s: float = 60.0, ran_on: str = "") -> tuple[float, str]:
    """How long a batch of 400 rows lasts, and where its state partitions ran."""
    batch = Batch(
        number=0,
        rows=400.0,
        start_s=0.0,
        executors=TWO,
        placement=dict(enumerate(placement)),
        ran_on=dict(enumerate(ran_on)),
        weights=EVEN,
        locality_wait_s=wait_s,
    )
    times = run_batch(QUIET, batch, random.Random(1))
    return times.duration_s, "".join(task.executor for task in times.tasks)


def test_a_batch_lasts_as_long_as_its_driver_and_its_stages_one_after_the_other() -> None:
    # Two of four splits a core at 0.2 s each, two of four partitions a core at 0.3 s each.
    duration_s, ran_on = run_one("aabb")
    assert duration_s == pytest.approx(0.5 + 2 * 0.2 + 2 * 0.3)
    assert ran_on == "aabb"


def test_tasks_wait_for_the_executor_with_their_state_and_not_for_longer_than_the_wait() -> None:
    assert run_one("aaaa")[0] == pytest.approx(0.5 + 0.4 + 4 * 0.3)
    # After 0.45 s, b takes a partition from a, and restores its state for a second.
    duration_s, ran_on = run_one("aaaa", wait_s=0.45, ran_on="aaaa")
    assert ran_on.count("b") == 1
    assert duration_s == pytest.approx(0.9 + 0.45 + 0.3 + 1.0)


def test_a_moved_partition_restores_its_state_once() -> None:
    assert run_one("abab", ran_on="aabb")[0] == pytest.approx(0.9 + 0.3 + 0.3 + 1.0)


def test_a_hot_set_that_shifts_changes_which_partitions_are_heavy() -> None:
    job = replace(QUIET, partitions=16, zipf=1.2)
    assert weigh_partitions(job, 1) != weigh_partitions(job, 2)
    assert sum(weigh_partitions(job, 1)) == pytest.approx(1.0)


FLAT = Trace("flat", (500.0,) * 120)


@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_read_once_and_in_order_whatever_happens(seed: int) -> None:
    trace = MAKERS["steps"](1500.0, seed, 0.5)
    spark = VirtualSpark(replace(Job(), trigger_s=5.0), trace, seed, 2)
    changes = run_ours(spark, most=12)
    assert changes, "it scaled"
    assert spark.batches[0].first_row == 0
    for before, after in pairwise(spark.batches):
        assert after.first_row == before.last_row
        assert after.start_s >= before.end_s
        assert before.last_row <= trace.count_until(before.start_s) + 1e-6
    assert spark.batches[-1].last_row + spark.backlog_rows == pytest.approx(
        trace.count_until(spark.now_s)
    )


def test_a_stream_that_starts_on_far_too_few_executors_gets_more_within_minutes() -> None:
    # Six executors' worth of rows on one: each batch reads all that waits, and is longer.
    job = replace(Job(), noise=0.0, task_s=0.03, driver_s=0.4)
    spark = VirtualSpark(job, Trace("cold", (1500.0,) * 120), 1, 1)
    changes = run_ours(spark, most=16)
    assert changes
    at_s, before, after = changes[0]
    assert before == 1
    assert after >= 4
    # Its second batch ends then; the first is warm-up.
    assert at_s < 150.0


def test_executors_cost_from_the_moment_they_are_asked_for() -> None:
    spark = VirtualSpark(QUIET, FLAT, 1, 2)
    run_scaler(spark, Fixed(2), most=8)
    assert spark.executor_s == pytest.approx(2 * spark.now_s)


def list_events(spark: VirtualSpark) -> list[Event]:
    """All events of a run in which nobody does anything."""
    events: list[Event] = []
    while not isinstance(event := spark.wait(0.0), ApplicationEnded):
        if event is not None:
            events.append(event)
    return events


def test_a_batch_is_planned_when_it_starts_and_says_what_it_reads() -> None:
    spark = VirtualSpark(QUIET, FLAT, 1, 2)
    events = list_events(spark)
    planned = [event for event in events if isinstance(event, BatchPlanned)]
    finished = [event for event in events if isinstance(event, BatchFinished)]
    assert [event.batch for event in planned] == [event.sample.batch for event in finished]
    assert [event.rows for event in planned] == [event.sample.input_rows for event in finished]
    assert [event.at_s for event in planned] == [run.start_s for run in spark.batches]
    assert {event.waiting_rows for event in planned} == {0.0}, "it reads all that is there"
    assert {event.trigger_s for event in planned} == {10.0}


def test_sources_are_asked_each_second_if_somebody_listens() -> None:
    assert not any(isinstance(e, RowsWaiting) for e in list_events(VirtualSpark(QUIET, FLAT, 1, 2)))
    spark = VirtualSpark(QUIET, FLAT, 1, 2, asks_every_s=1.0)
    asked = [event for event in list_events(spark) if isinstance(event, RowsWaiting)]
    assert {after.at_s - before.at_s for before, after in pairwise(asked)} == {1.0}
    for event in asked:
        read = max(run.last_row for run in spark.batches if run.start_s <= event.at_s)
        assert event.rows == FLAT.count_until(event.at_s) - read


def test_batches_that_start_after_a_bound_was_set_read_no_more_rows() -> None:
    spark = VirtualSpark(QUIET, FLAT, 1, 2)

    def bound() -> None:
        assert not spark.bound("q", 2000.0)

    spark.call_at(35.0, bound)
    planned = [event for event in list_events(spark) if isinstance(event, BatchPlanned)]
    assert [event.rows for event in planned[2:6]] == [5000.0, 2000.0, 2000.0, 2000.0]
    assert [event.waiting_rows for event in planned[2:6]] == [0.0, 3000.0, 6000.0, 9000.0]
    assert planned[3 + BOUND_BATCHES].rows == 14_000.0, "nobody renewed it"


def test_a_bound_that_is_set_as_a_batch_ends_is_too_late_for_one_that_follows_at_once() -> None:
    spark = VirtualSpark(replace(QUIET, trigger_s=0.0), FLAT, 1, 2)
    planned: list[BatchPlanned] = []
    while len(planned) < 4:
        event = spark.wait(0.0)
        if isinstance(event, BatchPlanned):
            planned.append(event)
        if isinstance(event, BatchFinished):
            spark.bound("q", 10.0)
    assert planned[1].rows != 10.0
    assert planned[2].rows == planned[3].rows == 10.0


class Watcher(Fixed):
    """Notes when it is asked."""

    def __init__(self, executors: int, every_s: float) -> None:
        super().__init__(executors)
        self.every_s = every_s
        self.asked_s: list[float] = []

    def decide(self, spark: VirtualSpark) -> int:
        self.asked_s.append(spark.now_s)
        return super().decide(spark)


@pytest.mark.parametrize("every_s", [15.0, 60.0])
def test_a_scaler_is_asked_on_its_own_clock_whatever_the_stream_does(every_s: float) -> None:
    # One executor is too few: batches take minutes.
    watcher, spark = Watcher(1, every_s), VirtualSpark(QUIET, Trace("high", (2000.0,) * 60), 1, 1)
    run_scaler(spark, watcher, most=1)
    assert max(run.end_s - run.start_s for run in spark.batches) > 2 * every_s
    waits_s = [after - before for before, after in pairwise(watcher.asked_s)]
    assert waits_s == pytest.approx([every_s] * len(waits_s))


def test_dynamic_allocation_keeps_executors_while_a_batch_runs() -> None:
    job = replace(QUIET, splits=3, partitions=3, map_row_s=0.4)
    spark = VirtualSpark(job, Trace("low", (10.0,) * 30), 1, 3)
    changes = run_scaler(spark, DynamicAllocation(3), most=3)
    assert max(run.end_s - run.start_s for run in spark.batches) > DynamicAllocation.IDLE_S
    assert not changes


def judge(
    trace: Trace, batches: Sequence[BatchRun], changes: Sequence[Change], *, objective_s: float
) -> Figures:
    """The figures of a run that read all its rows."""
    return compute_figures(
        trace,
        batches,
        changes,
        executor_s=1.0,
        left_rows=0.0,
        objective_s=objective_s,
        stabilization_s=120.0,
    )


def test_latency_is_from_the_arrival_of_a_row_to_the_end_of_its_batch() -> None:
    # A trigger every 10 s and batches of 500 rows a second on enough executors.
    job = replace(QUIET, splits=16, partitions=16, map_row_s=0.0, state_row_s=0.0, task_s=0.0)
    spark = VirtualSpark(job, FLAT, 1, 4)
    run_scaler(spark, Fixed(4), most=8)
    figures = judge(FLAT, spark.batches, [], objective_s=10.5)
    # A batch takes only the driver's half second: rows wait for up to 10 s.
    assert figures.p95_latency_s == pytest.approx(10.0, abs=0.3)
    assert figures.late_share == 0.0


def test_a_step_is_absorbed_by_the_first_batch_that_is_not_late_any_more() -> None:
    trace = Trace("steps", (10.0,) * 2 + (40.0,) * 10 + (10.0,) * 3)
    batches = [
        # Nobody is late before the step, nor in the first batch after it.
        BatchRun(10.0, 15.0, 0.0, 100.0),
        BatchRun(20.0, 25.0, 100.0, 200.0),
        BatchRun(30.0, 60.0, 200.0, 600.0),
        BatchRun(60.0, 90.0, 600.0, 1800.0),
        BatchRun(90.0, 95.0, 1800.0, 3000.0),
        BatchRun(130.0, 180.0, 3000.0, 4300.0),
    ]
    changes = [(25.0, 1, 2), (50.0, 2, 3), (130.0, 3, 2)]
    figures = judge(trace, batches, changes, objective_s=36.0)
    assert figures.batches_to_absorb == 3
    assert figures.most_actions_a_step == 2


def test_a_batch_that_is_late_long_after_a_step_is_not_the_steps() -> None:
    trace = Trace("step", (10.0,) * 2 + (40.0,) * 100)
    starts_s = [20.0 + 10.0 * n for n in range(30)]
    batches = [
        BatchRun(at_s, at_s + 5.0, trace.count_until(at_s - 10.0), trace.count_until(at_s))
        for at_s in starts_s
    ]
    batches[20] = replace(batches[20], end_s=starts_s[20] + 60.0)
    assert judge(trace, batches, [], objective_s=25.0).batches_to_absorb == 0


def test_dynamic_allocation_adds_while_tasks_wait_and_keeps_what_works() -> None:
    job = replace(QUIET, splits=8, partitions=8, map_row_s=0.01)
    spark = VirtualSpark(job, FLAT, 1, 1)
    changes = run_scaler(spark, DynamicAllocation(1), most=16)
    assert changes[-1][2] == 8, "one for each task of the stage"
    assert [after > before for _, before, after in changes] == [True] * len(changes)


def test_a_lag_threshold_adds_at_most_four_or_twice_at_once() -> None:
    job = replace(QUIET, splits=32, partitions=32)
    spark = VirtualSpark(job, Trace("high", (4000.0,) * 60), 1, 1)
    changes = run_scaler(spark, LagThreshold(job, 1), most=32)
    assert all(after <= max(2 * before, before + 4) for _, before, after in changes)


def test_the_count_for_a_rate_leaves_the_time_of_the_driver_out() -> None:
    assert count_for(replace(QUIET, driver_s=0.0), 700.0) == 4
    assert count_for(replace(QUIET, driver_s=2.0), 700.0) == 5


@pytest.mark.parametrize("name", sorted(MAKERS.keys() - {"power demand"}))
def test_a_trace_is_the_same_for_the_same_seed(name: str) -> None:
    assert MAKERS[name](100.0, 7, 1.0) == MAKERS[name](100.0, 7, 1.0)
    assert MAKERS[name](100.0, 7, 1.0).length_s == 3600.0


@pytest.mark.parametrize("kind", HELD_OUT)
def test_a_held_out_workload_is_the_same_each_time_and_worth_a_few_executors(kind: str) -> None:
    work = make_workload(kind, 2, hours=1.0)
    assert work == make_workload(kind, 2, hours=1.0)
    assert work.trace.rates != make_workload(kind, 3, hours=1.0).trace.rates
    assert 0.5 < work.trace.mean_rate(0.0, 3600.0) * work.job.row_s < 8.0
    assert 20.0 <= work.job.start_s <= 120.0


def test_the_objective_follows_from_the_trigger_interval() -> None:
    assert Job().objective_s == 25.0
    assert replace(Job(), trigger_s=0.0).objective_s == 10.0


def test_managed_flink_doubles_after_a_quarter_of_an_hour_that_is_busy() -> None:
    busy = VirtualSpark(QUIET, Trace("high", (650.0,) * 200), 1, 2)
    changes = run_scaler(busy, ManagedFlink(2), most=8)
    assert [(before, after) for _, before, after in changes] == [(2, 4)]
    assert changes[0][0] == pytest.approx(ManagedFlink.BUSY_MINUTES * 60.0, abs=60.0)
    calm = VirtualSpark(QUIET, FLAT, 1, 4)
    assert not run_scaler(calm, ManagedFlink(4), most=8)


def test_druids_costs_add_where_nobody_is_idle_and_remove_when_tasks_roll_over() -> None:
    job = replace(QUIET, splits=32, partitions=32)
    busy = VirtualSpark(job, Trace("high", (2500.0,) * 200), 1, 2)
    assert run_scaler(busy, DruidCosts(job, 2, 16), most=16)[0][2] > 2
    calm = VirtualSpark(job, Trace("low", (100.0,) * 800), 1, 8)
    changes = run_scaler(calm, DruidCosts(job, 8, 16), most=16)
    assert changes[0][2] < 8
    assert changes[0][0] >= DruidCosts.TASK_S


def test_elastic_scaling_aims_at_batches_as_long_as_the_trigger_interval() -> None:
    job = replace(QUIET, splits=32, partitions=32, task_s=0.01)
    spark = VirtualSpark(job, Trace("flat", (1500.0,) * 200), 1, 1)
    changes = run_scaler(spark, ElasticScaling(job, 1), most=16)
    assert {at_s for at_s, _, _ in changes} <= {run.end_s for run in spark.batches}
    last = spark.batches[-1]
    assert 0.6 < (last.end_s - last.start_s) / job.trigger_s < 1.1
