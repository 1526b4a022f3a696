"""Ways to choose the number of executors, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median

from targets import MAX_ACTIONS_A_STEP, MAX_HOURS_OVER_ORACLE, MAX_LATE_OVER_ORACLE

from tables.markdown import Result, say_whether, table

ALTERNATIVES = (
    "fixed at the peak",
    "fixed at the mean",
    "dynamic allocation",
    "lag threshold",
    "DS2",
    "AWS' managed Flink",
    "Druid's costs",
    "Elastic-Scaling",
)
HOMES = ("ours", "ours, operator")
WAYS = (*HOMES, "oracle", "follower", *ALTERNATIVES)


def tabulate_scaling_simulated(results: Sequence[Result]) -> Iterator[str]:
    """Executor-hours and lateness of every way; means over the runs, hours over the oracle's."""
    yield from table(
        ["way", "executor-hours ÷ oracle", "rows too late", "95th percentile (s)", "actions"],
        [
            [
                way,
                f"{median(over_oracle(r, way) for r in results):.2f}",
                f"{100 * mean_of(results, way, 'late_share'):.1f} %",
                f"{median(r['measured'][way]['p95_latency_s'] for r in results):.0f}",
                f"{mean_of(results, way, 'actions'):.0f}",
            ]
            for way in list_measured(results)
        ],
    )
    yield ""
    if stepped := list_stepped(results):
        yield from table(
            ["way", "batches until a step up is absorbed", "most actions a step"],
            [
                [
                    way,
                    f"{mean_of(stepped, way, 'batches_to_absorb'):.1f}",
                    f"{max(r['measured'][way]['most_actions_a_step'] for r in stepped)}",
                ]
                for way in list_measured(results)
            ],
        )
        yield ""
    traces = dict.fromkeys(str(r["case"]["trace"]) for r in results)
    yield from table(
        ["trace", "runs", "executor-hours ÷ oracle", "rows too late", "of a lag threshold"],
        [
            [
                trace,
                str(len(of_trace)),
                f"{median(over_oracle(r, 'ours') for r in of_trace):.2f}",
                f"{100 * mean_of(of_trace, 'ours', 'late_share'):.1f} %",
                f"{100 * mean_of(of_trace, 'lag threshold', 'late_share'):.1f} %",
            ]
            for trace in traces
            if (of_trace := [r for r in results if r["case"]["trace"] == trace])
        ],
    )
    yield ""
    yield from tabulate_homes([r for r in results if all(home in r["measured"] for home in HOMES)])
    yield ""
    yield from table(["target", "result", "met"], judge_targets(results))


def list_stepped(results: Sequence[Result]) -> list[Result]:
    """The runs whose load makes steps up."""
    return [r for r in results if r["measured"]["ours"]["batches_to_absorb"] is not None]


def list_measured(results: Sequence[Result]) -> list[str]:
    """The ways that every run has figures of; others would not be of the same loads."""
    return [way for way in WAYS if all(way in r["measured"] for r in results)]


def tabulate_homes(results: Sequence[Result]) -> Iterator[str]:
    """Both homes side by side, by trace: hours are medians over the runs, the rest means."""
    traces = dict.fromkeys(str(r["case"]["trace"]) for r in results)
    yield from table(
        ["trace, in both homes", "runs", "executor-hours ÷ oracle", "rows too late", "actions"],
        [
            [
                trace,
                str(len(of_trace)),
                " / ".join(
                    f"{median(over_oracle(r, home) for r in of_trace):.2f}" for home in HOMES
                ),
                " / ".join(
                    f"{100 * mean_of(of_trace, home, 'late_share'):.1f} %" for home in HOMES
                ),
                " / ".join(f"{mean_of(of_trace, home, 'actions'):.0f}" for home in HOMES),
            ]
            for trace in traces
            if (of_trace := [r for r in results if r["case"]["trace"] == trace])
        ],
    )


def judge_targets(results: Sequence[Result]) -> Iterator[list[str]]:
    """The targets, what was reached, and whether that is enough."""
    hours = median(over_oracle(r, "ours") for r in results)
    text = f"executor-hours ≤ {MAX_HOURS_OVER_ORACLE} x the oracle's"
    yield [text, f"{hours:.2f}", say_whether(hours <= MAX_HOURS_OVER_ORACLE)]
    ours, oracle = (mean_of(results, way, "late_share") for way in ("ours", "oracle"))
    text = f"rows too late ≤ {MAX_LATE_OVER_ORACLE} x the oracle's"
    met = ours <= MAX_LATE_OVER_ORACLE * oracle
    yield [text, f"{100 * ours:.1f} % and {100 * oracle:.1f} %", say_whether(met)]
    never = sum(late(r, "ours") <= late(r, "lag threshold") for r in results)
    text = "never more late rows than a lag threshold"
    yield [text, f"{never} of {len(results)} runs", say_whether(never == len(results))]
    best = [
        way
        for way in list_measured(results)
        if way in ALTERNATIVES
        and mean_of(results, way, "late_share") <= ours
        and mean_of(results, way, "executor_hours") <= mean_of(results, "ours", "executor_hours")
    ]
    text = "fewer executor-hours than each that is late as seldom"
    yield [text, ", ".join(best) or "all of them", say_whether(not best)]
    if stepped := list_stepped(results):
        most = [r["measured"]["ours"]["most_actions_a_step"] for r in stepped]
        few = sum(actions <= MAX_ACTIONS_A_STEP for actions in most)
        text = f"at most {MAX_ACTIONS_A_STEP} actions a step of the load"
        yield [text, f"{few} of {len(stepped)} runs", say_whether(few == len(stepped))]
    reversals = sum(r["measured"]["ours"]["reversals"] for r in results)
    text = "no reversal within the stabilization time"
    yield [text, f"{reversals:.0f} in {len(results)} runs", say_whether(reversals == 0)]


def over_oracle(result: Result, way: str) -> float:
    """Executor-hours of a way over the least possible; over the oracle's in results of before."""
    measured = result["measured"]
    least = measured.get("bound", measured["oracle"])
    return float(measured[way]["executor_hours"] / least["executor_hours"])


def late(result: Result, way: str) -> float:
    """The part of a run's rows that were too late."""
    return float(result["measured"][way]["late_share"])


def mean_of(results: Sequence[Result], way: str, figure: str) -> float:
    """The mean of a figure over the runs."""
    return fmean(float(r["measured"][way][figure]) for r in results)
