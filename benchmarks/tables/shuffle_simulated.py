"""The cost-aware shuffle, simulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from targets import (
    MAX_ESTIMATE_ERROR,
    MAX_OVER_KNOWING,
    MAX_OVER_ROUND_ROBIN,
    MAX_SHARE_WHEN_SLOWED,
)

from tables.markdown import Result, say_whether, table


def tabulate_shuffle_simulated(results: Sequence[Result]) -> Iterator[str]:
    """Batch times over those of the all-knowing scheduler: means over the runs of a case."""
    longer = [r for r in results if "warm_up_batches" in r["case"]]
    steady = [r for r in results if not (r["case"]["slowed"] or "warm_up_batches" in r["case"])]
    slowed = [r for r in results if r["case"]["slowed"]]
    runs = sum(len(r["measured"]["ours"]["batch_s"]) for r in results)
    yield f"{runs:,} runs, each of which all ways of shuffling share."
    yield ""
    rows = [
        [
            r["case"]["costs"],
            f"{r['case']['zipf']:g}",
            *(over_knowing(r, way) for way in ("round robin", "random", "ours")),
            f"{100 * fmean(r['measured']['ours']['error']):.0f} %",
        ]
        for r in steady
    ]
    header = ["costs", "Zipf s", "round robin", "random", "by cost", "median error"]
    yield from table(header, rows)
    yield ""
    near = [r for r in steady if mean_ratio(r, "ours", "all-knowing") <= MAX_OVER_KNOWING]
    never = [r for r in steady if mean_ratio(r, "ours", "round robin") <= MAX_OVER_ROUND_ROBIN]
    known = [r for r in steady if fmean(r["measured"]["ours"]["error"]) <= MAX_ESTIMATE_ERROR]
    targets = [
        [text, f"{len(those)} of {len(steady)} cases", say_whether(len(those) == len(steady))]
        for text, those in (
            (f"equal executors: batch ≤ {MAX_OVER_KNOWING} x all-knowing", near),
            (f"equal executors: batch ≤ {MAX_OVER_ROUND_ROBIN} x round robin", never),
            (f"median error ≤ {100 * MAX_ESTIMATE_ERROR:.0f} %, the lightest rows left out", known),
        )
    ]
    for r in longer:
        case = f"{r['case']['costs']}, s = {r['case']['zipf']:g}"
        text = f"batch ≤ {MAX_OVER_KNOWING} x all-knowing: {case}"
        text += f", after {r['case']['warm_up_batches']}"
        is_near = mean_ratio(r, "ours", "all-knowing") <= MAX_OVER_KNOWING
        targets.append([f"{text} batches", over_knowing(r, "ours"), say_whether(is_near)])
    yield from table(["target", "measured", "met"], targets)
    if not slowed:
        return
    yield ""
    after = slowed[0]["settings"]["warm_up_batches"]
    rows = []
    for way in slowed[0]["measured"]:
        shares = [r["measured"][way]["share"] for r in slowed]
        ratios = [r["measured"][way]["over_knowing"] for r in slowed]
        rows.append(
            [
                way,
                *(
                    f"{fmean(share[batch] for share in shares):.3f}"
                    for batch in (after - 1, after, after + 1, after + 2)
                ),
                f"{fmean(fmean(share[after + 3 :]) for share in shares):.3f}",
                f"{fmean(fmean(ratio[after + 3 :]) for ratio in ratios):.2f}",
            ]
        )
    yield from table(
        [
            "one executor slowed twofold",
            "its share before",
            "1st batch",
            "2nd",
            "3rd",
            "then",
            "then, batch ÷ all-knowing",
        ],
        rows,
    )
    yield ""
    targets = []
    finer = [way for way in slowed[0]["measured"] if way.startswith("ours, ")]
    for way in (*finer, "with paces", "state machine"):
        shares = [r["measured"][way]["share"] for r in slowed]
        halved = fmean(share[after + 1] / share[after - 1] for share in shares)
        text = f"{way}: share in the 2nd batch ≤ {MAX_SHARE_WHEN_SLOWED} x before (0.56 is just)"
        targets.append([text, f"{halved:.2f}", say_whether(halved <= MAX_SHARE_WHEN_SLOWED)])
    yield from table(["target", "measured", "met"], targets)
    drifts = {
        way: [r["measured"][way]["drift_s"] for r in slowed]
        for way in ("state machine", "state machine without answers")
    }
    yield ""
    yield from table(
        ["estimated loads of the state machine are off by (s)", "before", "at most", "at the end"],
        [
            [
                way,
                f"{fmean(drift[after - 1] for drift in of_way):.1f}",
                f"{fmean(max(drift) for drift in of_way):.1f}",
                f"{fmean(drift[-1] for drift in of_way):.1f}",
            ]
            for way, of_way in drifts.items()
        ],
    )


def mean_ratio(result: Result, way: str, other: str) -> float:
    measured = result["measured"]
    return fmean(measured[way]["batch_s"]) / fmean(measured[other]["batch_s"])


def over_knowing(result: Result, way: str) -> str:
    return f"{mean_ratio(result, way, 'all-knowing'):.3f}"
