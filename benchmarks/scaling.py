"""What autoscaling is worth: ours beside what users have, in virtual time.

Each run is one trace with one seed, under every way to choose the number of executors. Ours runs in
both homes, with its real code on a model of Spark: the driver makes plans, or the operator makes
them for it. `simulation` has the model, the traces and the alternatives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from harness.benchmark import prepare, run
from harness.results import Case
from simulation.bounds import find_bound
from simulation.figures import Figures, compute_figures
from simulation.model import Job
from simulation.operated import run_operated
from simulation.running import Change, run_ours, run_scaler
from simulation.scalers import (
    DruidCosts,
    Ds2,
    DynamicAllocation,
    ElasticScaling,
    Fixed,
    Follower,
    LagThreshold,
    ManagedFlink,
    Oracle,
    Scaler,
    count_for,
)
from simulation.spark import VirtualSpark
from simulation.traces import MAKERS, Trace
from simulation.workloads import HOURS, make_workload

SEEDS = 40
OPERATED_SEEDS = 10
"""The first ones run in the operator's home, too, which costs four times as much."""

MOST = 24
"""Executors that any way may use."""

STABILIZATION_S = 120.0
"""Within which a reversal counts as oscillation: the default of our policy."""

HOMES: dict[str, Callable[[VirtualSpark, int], list[Change]]] = {
    "ours": run_ours,
    "ours, operator": run_operated,
}
"""Where our plans are made: in the driver, and in the operator."""


def main() -> None:
    with prepare("scaling_simulated", __doc__ or "") as benchmark:
        seeds = range(1, 2 if benchmark.smoke else SEEDS + 1)
        traces = ["steps"] if benchmark.smoke else list(MAKERS)
        cases: list[Case] = [{"trace": name, "seed": seed} for seed in seeds for name in traces]
        for case in benchmark.find_missing(cases):
            hours = 1.0 if benchmark.smoke else HOURS
            work = make_workload(str(case["trace"]), int(case["seed"]), hours)
            job = work.job
            measured = {
                way: figures.to_json()
                for way, figures in compare(job, work.trace, work.seed).items()
            }
            measured["bound"] = asdict(find_bound(job, work.trace, work.seed, MOST))
            settings = {**asdict(job), "hours": hours, "objective_s": job.objective_s, "most": MOST}
            benchmark.record(None, case, settings, measured)


def compare(job: Job, trace: Trace, seed: int) -> dict[str, Figures]:
    """The figures of every way on one trace."""
    found = {}
    homes = HOMES if seed <= OPERATED_SEEDS else {"ours": run_ours}
    for way, run_home in homes.items():
        spark = VirtualSpark(job, trace, seed, count_at_start(job, trace))
        found[way] = judge(spark, run_home(spark, MOST))
    for way, (executors, scaler) in list_alternatives(job, trace).items():
        spark = VirtualSpark(job, trace, seed, executors)
        found[way] = judge(spark, run_scaler(spark, scaler, MOST))
    return found


def list_alternatives(job: Job, trace: Trace) -> dict[str, tuple[int, Scaler]]:
    """Every way but ours: the executors that it starts with, and its rule."""
    begin = count_at_start(job, trace)
    peak, mean = (
        count_for(job, rate) for rate in (trace.peak, trace.mean_rate(0.0, trace.length_s))
    )
    return {
        "oracle": (begin, Oracle(job, trace)),
        "follower": (begin, Follower(job, trace)),
        "fixed at the peak": (peak, Fixed(peak)),
        "fixed at the mean": (mean, Fixed(mean)),
        "dynamic allocation": (begin, DynamicAllocation(begin)),
        "lag threshold": (begin, LagThreshold(job, begin)),
        "DS2": (begin, Ds2(begin)),
        "AWS' managed Flink": (begin, ManagedFlink(begin)),
        "Druid's costs": (begin, DruidCosts(job, begin, MOST)),
        "Elastic-Scaling": (begin, ElasticScaling(job, begin)),
    }


def count_at_start(job: Job, trace: Trace) -> int:
    """Executors for the first minute: what each way that changes their number starts with."""
    return count_for(job, trace.mean_rate(0.0, 60.0))


def judge(spark: VirtualSpark, changes: list[Change]) -> Figures:
    """The figures of a run that is over."""
    return compute_figures(
        spark.trace,
        spark.batches,
        changes,
        executor_s=spark.executor_s,
        left_rows=spark.backlog_rows,
        objective_s=spark.job.objective_s,
        stabilization_s=STABILIZATION_S,
    )


if __name__ == "__main__":
    run(main)
