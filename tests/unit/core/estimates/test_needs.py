"""How many executors would have been enough, and when a log does not tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from balancedstream.core.estimates.needs import find_needed, find_trigger
from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy
from balancedstream.core.samples import BatchSample, StageSample
from balancedstream.core.scaling.demand import Demand, measure_demands

EXECUTORS = {"a": 1, "b": 1, "c": 1, "d": 1}
ROW_S = 0.01
TRIGGER_S = 10.0


def run_of(
    rows_per_s: Sequence[float], trigger_s: float | None = TRIGGER_S, backlog: float | None = 0.0
) -> list[BatchSample]:
    return [
        BatchSample(
            "q",
            number,
            1000.0 + TRIGGER_S * number + rate * TRIGGER_S * ROW_S / 4,
            rate * TRIGGER_S * ROW_S / 4,
            int(rate * TRIGGER_S),
            TRIGGER_S,
            backlog,
            trigger_s,
        )
        for number, rate in enumerate(rows_per_s)
    ]


def demands_of(run: Sequence[BatchSample]) -> list[Demand]:
    stages = tuple(
        StageSample(
            "q",
            b.batch,
            "source",
            b.finished_s,
            64,
            b.input_rows * ROW_S / 64,
            dict.fromkeys(EXECUTORS, b.input_rows * ROW_S / 4),
        )
        for b in run
    )
    seen = Observation(run[-1].finished_s, EXECUTORS, batches=tuple(run), stages=stages)
    load = measure_demands(seen, {}, Policy().scaling, {("q", run[-1].batch)})
    assert not load.unmeasured
    return load.demands


def test_one_executor_is_enough_for_a_quarter_of_the_load_of_four() -> None:
    assert find_needed(demands_of(run_of([20.0] * 12)), EXECUTORS, 0.0) == 1


def test_the_highest_rate_counts_not_the_mean() -> None:
    low, peak = run_of([20.0] * 12), run_of([20.0] * 10 + [300.0] + [20.0])
    assert find_needed(demands_of(peak), EXECUTORS, 0.0) == 4
    assert find_needed(demands_of(low), EXECUTORS, 0.0) == 1
    after_it = peak[-1].finished_s - peak[-1].duration_s
    assert find_needed(demands_of(peak), EXECUTORS, after_it) == 1


def test_more_than_there_were_can_be_needed() -> None:
    needed = find_needed(demands_of(run_of([600.0] * 12)), EXECUTORS, 0.0)
    assert needed is not None
    assert 6 < needed < 10


def test_nothing_is_said_of_batches_back_to_back_whose_source_tells_nothing() -> None:
    run = [replace(b, interval_s=b.duration_s, trigger_s=None) for b in run_of([80.0] * 12)]
    assert find_needed(demands_of(run), EXECUTORS, 0.0) is not None
    blind = [replace(b, backlog_rows=None) for b in run]
    assert find_needed(demands_of(blind), EXECUTORS, 0.0) is None


@pytest.mark.parametrize("trigger_s", [2.0, 10.0, 60.0])
def test_a_trigger_shows_in_when_batches_begin(trigger_s: float) -> None:
    begins = [trigger_s * (100 + n) + 0.01 for n in range(8)]
    run = [BatchSample("q", n, at + 1.0, 1.0, 5, trigger_s) for n, at in enumerate(begins)]
    assert find_trigger(run) == trigger_s


def test_batches_without_a_rhythm_have_no_trigger() -> None:
    begins = [1000.0, 1003.7, 1009.1, 1016.6, 1018.2, 1025.9]
    run = [BatchSample("q", n, at + 1.0, 1.0, 5, 5.0) for n, at in enumerate(begins)]
    assert find_trigger(run) is None
    back_to_back = [BatchSample("q", n, 10.0 * n + 10.0, 10.0, 5, 10.0) for n in range(8)]
    assert find_trigger(back_to_back) is None
