"""Draws the plots of docs/scaling.md: one day under each way, and what each way costs.

The first is run again, the second is drawn from `results/scaling_simulated.jsonl`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import matplotlib as mpl
from harness.results import REPOSITORY, RESULTS, read_results
from matplotlib import pyplot
from scaling import MEAN_RATE, MOST
from simulation.model import Job
from simulation.running import Change, run_ours, run_scaler
from simulation.scalers import DynamicAllocation, LagThreshold, Oracle, Scaler, count_for
from simulation.spark import VirtualSpark
from simulation.traces import MAKERS, Trace
from tables.scaling_simulated import WAYS, mean_of, over_oracle

IMAGES = REPOSITORY / "docs" / "images"
DAY = ("flights", 1)
"""The trace of the first plot, and its seed."""

COLORS = dict(
    zip(
        WAYS,
        ("#d62728", "#2ca02c", "#555555", "#999999", "#9467bd", "#1f77b4", "#e0a000"),
        strict=True,
    )
)


@dataclass(frozen=True)
class Line:
    """How many executors a way had over time."""

    way: str
    changes: Sequence[Change]
    begin: int


def main() -> None:
    # The same input gives the same file, and text stays text.
    mpl.rcParams.update({"svg.hashsalt": "scaling", "svg.fonttype": "none", "font.size": 9})
    draw_day()
    draw_costs()


def draw_day() -> None:
    name, seed = DAY
    job, trace = Job(), MAKERS[name](MEAN_RATE, seed, 4.0)
    figure, (above, below) = pyplot.subplots(
        2, 1, sharex=True, figsize=(8, 5), height_ratios=(1, 2), layout="constrained"
    )
    hours = [n * 10.0 / 3600 for n in range(len(trace.rates))]
    above.plot(hours, trace.rates, color="#333333", linewidth=1)
    above.set_ylabel("rows a second")
    above.set_title("One day of departures from New York in four hours", loc="left")
    for line in run_day(job, trace, seed):
        times = [0.0, *(change[0] / 3600 for change in line.changes), trace.length_s / 3600]
        counts = [line.begin, *(change[2] for change in line.changes)]
        width = 2.0 if line.way in {"ours", "oracle"} else 1.2
        below.stairs(
            counts, times, baseline=None, label=line.way, color=COLORS[line.way], linewidth=width
        )
    below.set_xlabel("hours")
    below.set_ylabel("executors")
    below.set_ylim(bottom=0)
    below.legend(frameon=False, ncols=4)
    figure.savefig(IMAGES / "scaling-day.svg", metadata={"Date": None})


def run_day(job: Job, trace: Trace, seed: int) -> list[Line]:
    """Ours, the oracle, and what changes the number of executors today."""
    begin = count_for(job, trace.mean_rate(0.0, 60.0))
    scalers: dict[str, Scaler] = {
        "oracle": Oracle(job, trace),
        "lag threshold": LagThreshold(job, begin),
        "dynamic allocation": DynamicAllocation(begin),
    }
    lines = [
        Line(way, run_scaler(VirtualSpark(job, trace, seed, begin), scaler, MOST), begin)
        for way, scaler in scalers.items()
    ]
    return [*lines, Line("ours", run_ours(VirtualSpark(job, trace, seed, begin), MOST), begin)]


def draw_costs() -> None:
    results = read_results(RESULTS / "scaling_simulated.jsonl")
    figure, axes = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    for way in WAYS:
        hours = median(over_oracle(result, way) for result in results)
        late = 100 * mean_of(results, way, "late_share")
        axes.scatter(hours, late, color=COLORS[way], s=50)
        axes.annotate(way, (hours, late), xytext=(6, 4), textcoords="offset points")
    axes.set_xscale("log")
    ticks = [1, 1.5, 2, 3, 5]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("executor-hours ÷ oracle (median)")
    axes.set_ylabel("rows too late (%, mean)")
    axes.set_title(f"{len(results)} runs: down and to the left is better", loc="left")
    figure.savefig(IMAGES / "scaling-costs.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
