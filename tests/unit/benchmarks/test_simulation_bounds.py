"""No way is below the bound, and the bound is what one reckons by hand where one can."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulation.bounds import find_bound
from simulation.model import Job
from simulation.running import run_scaler
from simulation.scalers import Fixed, Oracle, count_for
from simulation.spark import VirtualSpark
from simulation.traces import Trace

EVEN = Job(task_s=0.0, driver_s=0.0, noise=0.0, zipf=0.0, keys=32_000, start_s=20.0)
"""Only rows cost something, and every executor gets as many: a second for 500 of them."""

MOST = 12


def test_a_steady_load_needs_what_its_rows_take() -> None:
    bound = find_bound(EVEN, Trace("flat", (1500.0,) * 90), 1, MOST)
    assert bound.executor_hours * 3600 == pytest.approx(3 * 900.0, rel=0.02)
    assert bound.late_share == 0.0


def test_each_executor_that_a_step_up_needs_costs_its_start() -> None:
    step = Trace("up", (500.0,) * 60 + (1500.0,) * 60)
    quick, slow = (
        find_bound(replace(EVEN, start_s=start_s), step, 1, MOST) for start_s in (20.0, 40.0)
    )
    more_s = 3600 * (slow.executor_hours - quick.executor_hours)
    assert more_s == pytest.approx(2 * 0.8 * 20.0, abs=1.0)


def test_what_too_few_executors_cannot_do_in_time_is_late() -> None:
    assert find_bound(EVEN, Trace("high", (4000.0,) * 30), 1, most=2).late_share > 0.3


def test_a_price_on_late_rows_buys_fewer_executors() -> None:
    trace = Trace("spike", (500.0,) * 30 + (4000.0,) * 3 + (500.0,) * 30)
    dear = find_bound(EVEN, trace, 1, MOST)
    cheap = find_bound(EVEN, trace, 1, MOST, late_price_s=0.001)
    assert cheap.executor_hours < dear.executor_hours
    assert cheap.late_share > dear.late_share == 0.0


@pytest.mark.parametrize("trigger_s", [0.0, 10.0, 60.0])
def test_no_way_that_is_as_punctual_is_cheaper(trigger_s: float) -> None:
    job = replace(Job(), noise=0.0, trigger_s=trigger_s)
    trace = Trace("steps", (700.0,) * 30 + (2000.0,) * 30 + (700.0,) * 30)
    bound = find_bound(job, trace, 1, MOST)
    begin = count_for(job, 700.0)
    spark = VirtualSpark(job, trace, 1, begin)
    run_scaler(spark, Oracle(job, trace), MOST)
    assert bound.executor_hours * 3600 < spark.executor_s
    peak = VirtualSpark(job, trace, 1, count_for(job, 2000.0))
    run_scaler(peak, Fixed(count_for(job, 2000.0)), MOST)
    assert bound.executor_hours * 3600 < peak.executor_s
