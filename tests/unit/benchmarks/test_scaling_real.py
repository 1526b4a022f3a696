"""What a real run of the scaling benchmark is made of: rows by a trace, executors over time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import scaling_real
from harness.counting import BACKEND, count_executors, list_changes, sum_executor_s
from harness.producing import FileProducer
from simulation.figures import compute_figures
from simulation.scalers import count_for
from simulation.spark import BatchRun
from simulation.traces import Trace
from tables.scaling_real import WAYS, tabulate_scaling_real

from balancedstream.core.policy import Policy

TRACE = scaling_real.make_trace(scaling_real.PHASES)


def test_a_trace_that_is_sped_up_has_the_same_rates_and_each_row_sooner() -> None:
    slow = Trace("steps", (1.0, 3.0) * 6, (30.0,))
    fast = slow.speed_up(10.0)
    assert (fast.length_s, fast.shifts_s) == (12.0, (3.0,))
    assert fast.peak == slow.peak
    assert fast.mean_rate(0.0, 12.0) == slow.mean_rate(0.0, 120.0)
    assert fast.count_until(5.0) == slow.count_until(50.0) / 10
    assert fast.find_arrival(fast.count_until(5.5)) == pytest.approx(5.5)


def test_one_executor_carries_the_begin_and_all_are_needed_for_the_peak() -> None:
    assert count_for(scaling_real.JOB, TRACE.rates[0]) == scaling_real.LEAST
    sizes = {way: scaling_real.choose_executors(way, TRACE) for way in WAYS}
    assert (sizes["fixed at the peak"].least, sizes["fixed at the peak"].most) == (4, 4)
    assert (sizes["fixed at the mean"].least, sizes["fixed at the mean"].most) == (2, 2)
    assert sizes["ours"] == sizes["dynamic allocation"]


def test_every_time_of_the_policy_is_shortened_as_the_trace_is() -> None:
    usual, fast = Policy(), scaling_real.make_policy()
    assert fast.scaling.window_s == usual.scaling.window_s / 10
    assert fast.scaling.latency_objective_s == usual.scaling.latency_objective_s
    assert fast.migration == usual.migration


def test_each_way_is_first_once_before_any_is_first_again() -> None:
    orders = [scaling_real.rotate(WAYS, repetition) for repetition in range(1, 5)]
    assert [order[0] for order in orders] == [*WAYS]
    assert all(sorted(order) == sorted(WAYS) for order in orders)


def test_the_rows_of_a_trace_are_written_to_the_last_one_whatever_reads_them(
    tmp_path: Path,
) -> None:
    trace = Trace("steps", (100.0, 300.0)).speed_up(20.0)
    producer = FileProducer(tmp_path, scaling_real.make_drawer(trace, seed=1))
    with producer.produce(trace.count_until, time.time(), trace.length_s) as thread:
        thread.join()
    assert producer.rows == trace.count_until(trace.length_s)
    written = "".join(file.read_text() for file in sorted(tmp_path.glob("*.txt")))
    assert Counter(written.split()) == producer.counts


def test_the_keys_are_the_same_for_the_same_seed_and_others_after_a_shift() -> None:
    def draw(seed: int, at_s: float) -> list[str]:
        drawer = scaling_real.make_drawer(TRACE, seed)
        return [drawer(at_s) for _ in range(200)]

    assert draw(1, 0.0) == draw(1, 0.0)
    assert draw(1, 0.0) != draw(2, 0.0)
    (shift_s,) = TRACE.shifts_s
    assert not set(draw(1, 0.0)) & set(draw(1, shift_s))


def test_an_executor_counts_from_the_start_of_its_process_to_its_end() -> None:
    live = "print('started', flush=True); input()"
    command = [sys.executable, "-c", live, BACKEND.decode(), "--app-id", "app-of-this-test"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "started\n"  # before, /proc may not know its arguments
        assert count_executors("app-of-this-test") == 1
        assert count_executors("another-app") == 0
        process.communicate("\n")
    assert count_executors("app-of-this-test") == 0


def test_executor_seconds_end_with_the_trace() -> None:
    samples = [(0.0, 1), (4.0, 3), (8.0, 2), (12.0, 5)]
    assert sum_executor_s(samples, until_s=10.0) == 4 * 1 + 4 * 3 + 2 * 2
    assert list_changes(samples) == [(4.0, 1, 3), (8.0, 3, 2), (12.0, 2, 5)]


def test_the_rows_that_wait_for_a_slow_batch_are_late_and_the_backlog() -> None:
    trace = Trace("flat", (10.0,) * 4)
    batches = [BatchRun(5.0, 8.0, 0.0, 50.0), BatchRun(30.0, 40.0, 50.0, 300.0)]
    figures = compute_figures(
        trace,
        batches,
        [(1.0, 1, 2), (3.0, 2, 1), (20.0, 1, 2)],
        executor_s=7200.0,
        left_rows=0.0,
        objective_s=20.0,
        stabilization_s=10.0,
    )
    # Of the second batch, what arrived before 20 s: 150 of 300 rows.
    assert figures.late_share == pytest.approx(0.5, abs=0.03)
    assert figures.worst_backlog_rows == 250.0
    assert (figures.executor_hours, figures.actions, figures.reversals) == (2.0, 3, 1)


def describe_run(way: str, repetition: int, hours: float, late: float) -> dict[str, Any]:
    measured = {
        "executor_hours": hours,
        "late_share": late,
        "p95_latency_s": 8.0,
        "worst_backlog_rows": 1000.0,
        "actions": 2,
        "reversals": 0,
        "wrong_keys": 0,
    }
    return {"case": {"way": way, "repetition": repetition}, "measured": measured}


def test_a_way_that_is_late_as_seldom_on_fewer_executors_is_named() -> None:
    peak = describe_run("fixed at the peak", 1, 0.2, 0.0)
    mean = describe_run("fixed at the mean", 1, 0.1, 0.3)
    lines = [*tabulate_scaling_real([describe_run("ours", 1, 0.15, 0.1), peak, mean])]
    assert "| ours | 540 | 0.75 | 10.0 |" in lines[2]
    assert any("all of them | yes" in line for line in lines)
    lines = [*tabulate_scaling_real([describe_run("ours", 1, 0.15, 0.3), peak, mean])]
    assert any("fixed at the mean | **no**" in line for line in lines)
