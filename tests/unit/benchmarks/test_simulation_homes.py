"""Both homes in virtual time: the driver makes its plans, or the operator makes them for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from simulation.model import Job
from simulation.operated import SCRAPE_S, run_operated
from simulation.running import Change, RunFailedError, run_ours
from simulation.spark import VirtualSpark
from simulation.traces import MAKERS, Trace

from balancedstream.engine.events import BatchFinished, BatchPlanned
from balancedstream.metrics.catalogue import SERIES_PER_PARTITION

JOB = replace(Job(), noise=0.0)
STATELESS = replace(JOB, partitions=0, map_row_s=JOB.row_s, state_row_s=0.0)
SMALL = replace(JOB, partitions=12, splits=8)
STEPS = {
    "up": (Trace("up", (700.0,) * 30 + (2000.0,) * 60), 3),
    "down": (Trace("down", (2000.0,) * 20 + (700.0,) * 60), 8),
}
"""Each with the executors at its start."""

SHOWN = 8 * SERIES_PER_PARTITION
"""Series for a quarter of the partitions."""


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("job", [JOB, STATELESS], ids=["stateful", "stateless"])
def test_a_step_of_the_load_brings_both_homes_to_nearly_the_same_number(
    job: Job, step: str
) -> None:
    trace, begin = STEPS[step]
    embedded = run_ours(VirtualSpark(job, trace, 1, begin), most=16)
    operated = run_operated(VirtualSpark(job, trace, 1, begin), most=16)
    # How much longer batches take than the model says is measured on what was there before.
    assert abs(last_count(operated) - last_count(embedded)) <= 1
    assert begin not in {last_count(operated), last_count(embedded)}
    # The operator sees the means of what ended between two scrapes, when its next pass is due.
    assert operated[0][0] == pytest.approx(embedded[0][0], abs=4 * SCRAPE_S)


def test_slow_batches_bring_both_homes_to_the_same_number() -> None:
    job, trace = replace(SMALL, trigger_s=240.0), Trace("low", (600.0,) * 200)
    embedded = run_ours(VirtualSpark(job, trace, 1, 6), most=8)
    operated = run_operated(VirtualSpark(job, trace, 1, 6), most=8)
    assert last_count(operated) == last_count(embedded) != 6


def test_a_stream_without_data_keeps_the_least_number_in_both_homes() -> None:
    trace = Trace("night", (1500.0,) * 20 + (0.0,) * 100)
    for run in (run_ours, run_operated):
        spark = VirtualSpark(SMALL, trace, 1, 6)
        assert last_count(run(spark, most=8)) == 1
        assert len(spark.executors()) == spark.asked == 1


@pytest.mark.parametrize("step", STEPS)
def test_partitions_without_series_do_not_change_the_number(step: str) -> None:
    trace, begin = STEPS[step]
    embedded = run_ours(VirtualSpark(JOB, trace, 1, begin), most=16)
    hidden = run_operated(VirtualSpark(JOB, trace, 1, begin), most=16, max_partition_series=SHOWN)
    assert last_count(hidden) == last_count(embedded)


def last_count(changes: list[Change]) -> int:
    return changes[-1][2]


def test_the_operator_gets_every_row_read_once_and_its_executors_follow() -> None:
    trace = MAKERS["steps"](1500.0, 2, 0.5)
    spark = VirtualSpark(replace(Job(), trigger_s=5.0), trace, 2, 2)
    changes = run_operated(spark, most=12)
    assert changes
    assert spark.asked == last_count(changes)
    assert spark.batches[0].first_row == 0
    for before, after in pairwise(spark.batches):
        assert after.first_row == before.last_row
        assert after.start_s >= before.end_s


def test_what_is_called_between_two_batches_counts_for_the_second() -> None:
    spark = VirtualSpark(JOB, STEPS["up"][0], 1, 2)
    while not isinstance(spark.wait(0.5), BatchFinished):
        continue
    between_s = (spark.now_s + JOB.trigger_s) / 2
    spark.call_at(between_s, lambda: spark.remove_executor("e1"))
    assert spark.wait(0.5) is None
    assert spark.now_s == between_s
    left, planned, second = spark.wait(0.5), spark.wait(0.5), spark.wait(0.5)
    assert spark.executors() == {"e0": 1}, left
    assert isinstance(planned, BatchPlanned)
    assert isinstance(second, BatchFinished)
    assert {task.executor for task in second.tasks} == {"e0"}


def test_a_run_whose_loop_fails_has_no_figures(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        message = "out of order"
        raise ValueError(message)

    spark = VirtualSpark(JOB, STEPS["up"][0], 1, 2)
    spark.call_at(100.0, fail)
    with pytest.raises(RunFailedError, match="100 s after"):
        run_ours(spark, most=4)
    assert "balancing ended" in caplog.text
