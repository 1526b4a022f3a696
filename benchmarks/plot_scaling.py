"""Draws the plots of simulated scaling: one day under each way, and what each way costs.

The first is run again, the second is drawn from `results/scaling_simulated.jsonl`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import matplotlib as mpl
from harness.results import REPOSITORY, RESULTS, read_results
from matplotlib import pyplot
from scaling import HOMES, MOST, count_at_start, list_alternatives
from simulation.model import Job
from simulation.running import Change, run_scaler
from simulation.spark import VirtualSpark
from simulation.traces import BIN_S, MAKERS, Trace
from simulation.workloads import MEAN_RATE
from tables.scaling_simulated import WAYS, list_measured, mean_of, over_oracle

IMAGES = REPOSITORY / "docs" / "images"
DAY = ("flights", 1)
"""The trace of the first plot, and its seed."""

DRAWN = ("oracle", "lag threshold", "dynamic allocation")
"""What changes the number of executors today, beside the oracle."""

COLORS = dict(
    zip(
        WAYS,
        (
            *("#d62728", "#ff9896", "#2ca02c", "#555555", "#999999", "#9467bd", "#1f77b4"),
            *("#e0a000", "#17becf", "#8c564b", "#bcbd22"),
        ),
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
    hours = [n * BIN_S / 3600 for n in range(len(trace.rates))]
    above.plot(hours, trace.rates, color="#333333", linewidth=1)
    above.set_ylabel("rows a second")
    above.set_title("One day of departures from New York in four hours", loc="left")
    for line in run_day(job, trace, seed):
        times = [0.0, *(change[0] / 3600 for change in line.changes), trace.length_s / 3600]
        counts = [line.begin, *(change[2] for change in line.changes)]
        width = 2.0 if line.way in {*HOMES, "oracle"} else 1.2
        below.stairs(
            counts, times, baseline=None, label=line.way, color=COLORS[line.way], linewidth=width
        )
    below.set_xlabel("hours")
    below.set_ylabel("executors")
    below.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", frameon=False, ncols=4)
    figure.savefig(IMAGES / "scaling-day.svg", metadata={"Date": None})


def run_day(job: Job, trace: Trace, seed: int) -> list[Line]:
    """How many executors each way had; ours is last, and so drawn above the others."""
    alternatives = list_alternatives(job, trace)
    lines = []
    for way in DRAWN:
        begin, scaler = alternatives[way]
        spark = VirtualSpark(job, trace, seed, begin)
        lines.append(Line(way, run_scaler(spark, scaler, MOST), begin))
    begin = count_at_start(job, trace)
    for way in reversed(HOMES):
        spark = VirtualSpark(job, trace, seed, begin)
        lines.append(Line(way, HOMES[way](spark, MOST), begin))
    return lines


def draw_costs() -> None:
    results = read_results(RESULTS / "scaling_simulated.jsonl")
    figure, axes = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    for way in list_measured(results):
        hours = median(over_oracle(result, way) for result in results)
        late = 100 * mean_of(results, way, "late_share")
        axes.scatter(hours, late, color=COLORS[way], s=50)
        axes.annotate(way, (hours, late), xytext=(6, 4), textcoords="offset points")
    axes.set_xscale("log")
    # Room for the names beside the points.
    axes.set_xlim(0.9, 8.5)
    axes.set_ylim(-1.5, 26)
    ticks = [1, 1.5, 2, 3, 5]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("executor-hours ÷ oracle (median)")
    axes.set_ylabel("rows too late (%, mean)")
    axes.set_title(f"{len(results)} runs: down and to the left is better", loc="left")
    figure.savefig(IMAGES / "scaling-costs.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
