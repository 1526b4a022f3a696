"""What Spark adds to the work of a query, fitted to a real run, and how well that fits."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import linear_regression, median, quantiles

from balancedstream.engine.events import BatchFinished
from simulation.model import Batch, Job, run_batch


def fit_line(rows: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Seconds without rows, and seconds of a row, by least squares.

    >>> fixed_s, row_s = fit_line([100, 200, 300], [1.5, 2.0, 2.5])
    >>> round(fixed_s, 6), round(row_s, 6)
    (1.0, 0.005)
    """
    row_s, fixed_s = linear_regression(rows, seconds)
    return max(0.0, fixed_s), row_s


def fit_job(batches: Sequence[BatchFinished], job: Job) -> Job:
    """The times of a job, from batches of different size in which nothing moved.

    Args:
        batches: with the tasks and stages of a query of one stateful operator.
        job: with the splits and partitions of that query; its other times are replaced.
    """
    tasks = [task for batch in batches for task in batch.tasks]
    task_s, row_s = fit_line([t.records for t in tasks], [t.work_s for t in tasks])
    rows = sum(batch.sample.input_rows for batch in batches)
    source_s = sum(
        sum(stage.executor_busy_s.values())
        for batch in batches
        for stage in batch.stages
        if stage.kind == "source"
    )
    return replace(
        job,
        task_s=task_s,
        map_row_s=max(0.0, source_s - task_s * job.splits * len(batches)) / rows,
        state_row_s=row_s,
        driver_s=median(batch.sample.driver_s for batch in batches),
        noise=spread([t.work_s / (task_s + t.records * row_s) for t in tasks]),
    )


def spread(ratios: Sequence[float]) -> float:
    """The standard deviation of the logarithm, by quartiles: a few outliers are no noise.

    >>> spread([1.0] * 10)
    0.0
    """
    low, _, high = quantiles(map(math.log, ratios), n=4)
    return (high - low) / 1.349


def predict_s(batch: BatchFinished, job: Job, executors: Mapping[str, int]) -> float:
    """How long the model says that a batch takes, with its rows, where its partitions ran."""
    records = [0] * job.partitions
    for task in batch.tasks:
        records[task.partition] = task.records
    placement = {task.partition: task.executor for task in batch.tasks}
    given = Batch(
        number=batch.sample.batch,
        rows=batch.sample.input_rows,
        start_s=0.0,
        executors=executors,
        placement=placement,
        ran_on=placement,
        weights=[count / max(1, sum(records)) for count in records],
        locality_wait_s=math.inf,
    )
    return run_batch(replace(job, noise=0.0), given, random.Random(0)).duration_s
