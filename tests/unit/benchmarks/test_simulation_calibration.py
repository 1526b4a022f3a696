"""The model is fitted to batches: of batches that it made itself, it finds the times again."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from simulation.calibration import fit_job, predict_s
from simulation.model import Batch, Job, run_batch, weigh_partitions

from balancedstream.core.samples import BatchSample
from balancedstream.engine.events import BatchFinished

MADE = Job(splits=4, partitions=24, task_s=0.2, driver_s=0.5, noise=0.0)
TWO = {"a": 1, "b": 1}


def make_batch(rows: int, job: Job = MADE) -> BatchFinished:
    placement = {partition: "ab"[partition % 2] for partition in range(job.partitions)}
    weights = weigh_partitions(job, 1)
    batch = Batch(rows, rows, 0.0, TWO, placement, placement, weights, 60.0)
    times = run_batch(job, batch, random.Random(rows))
    sample = BatchSample(
        "q",
        rows,
        times.duration_s,
        times.duration_s,
        rows,
        gaps_s=job.driver_s / 2,
        planning_s=job.driver_s / 2,
    )
    return BatchFinished("q", sample, times.tasks, (), 0, True, times.stages)


def test_the_times_that_made_the_batches_are_found_again() -> None:
    fitted = fit_job([make_batch(20_000), make_batch(80_000)], Job(splits=4, partitions=24))
    assert fitted.task_s == pytest.approx(MADE.task_s, rel=0.01)
    assert fitted.map_row_s == pytest.approx(MADE.map_row_s, rel=0.01)
    assert fitted.state_row_s == pytest.approx(MADE.state_row_s, rel=0.01)
    assert fitted.driver_s == pytest.approx(MADE.driver_s)


def test_noise_is_found_again() -> None:
    noisy = replace(MADE, noise=0.2)
    batches = [make_batch(rows, noisy) for rows in range(20_000, 80_000, 2_000)]
    assert fit_job(batches, Job(splits=4, partitions=24)).noise == pytest.approx(0.2, rel=0.2)


def test_a_batch_that_the_model_made_takes_what_the_model_says() -> None:
    batch = make_batch(40_000)
    assert predict_s(batch, MADE, TWO) == pytest.approx(batch.sample.duration_s, rel=0.01)
    # One executor more shortens the source's stage only: partitions stay where they ran.
    assert predict_s(batch, MADE, TWO | {"c": 1}) < batch.sample.duration_s
