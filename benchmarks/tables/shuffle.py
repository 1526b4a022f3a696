"""The cost-aware shuffle on Spark, and what measuring adds to a function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median

from targets import MAX_OVER_KNOWING, MAX_OVER_ROUND_ROBIN

from tables.markdown import NONE, Result, say_whether, spread, table


def tabulate_shuffle(results: Sequence[Result]) -> Iterator[str]:
    ways = ("round robin", "random", "all-knowing", "ours")
    longer = [r for r in results if "rows_per_batch" in r["case"]]
    results = [r for r in results if "rows_per_batch" not in r["case"]]
    kinds = sorted({(r["case"]["costs"], r["case"]["zipf"]) for r in results})
    rows, targets = [], []
    for costs, zipf in kinds:
        runs = [
            {way: fmean(r["measured"][way]["batch_s"]) for way in ways}
            for r in results
            if (r["case"]["costs"], r["case"]["zipf"]) == (costs, zipf)
        ]
        rows.append(
            [
                costs,
                f"{zipf:g}",
                *(spread(run[way] for run in runs) for way in ways),
                spread(run["ours"] / run["round robin"] for run in runs),
                spread(run["ours"] / run["all-knowing"] for run in runs),
            ]
        )
        for other, limit in (
            ("all-knowing", MAX_OVER_KNOWING),
            ("round robin", MAX_OVER_ROUND_ROBIN),
        ):
            ratios = [run["ours"] / run[other] for run in runs]
            text = f"batch ≤ {limit} x {other}: {costs}, s = {zipf:g}, 4 batches left out"
            targets.append([text, spread(ratios), say_whether(median(ratios) <= limit)])
    header = ["costs", "Zipf s", *(f"{way} (s)" for way in (*ways[:3], "by cost"))]
    yield from table([*header, "by cost ÷ round robin", "÷ all-knowing"], rows)
    yield ""
    rows = []
    for costs, zipf, count, out in sorted(set(map(name_longer, longer))):
        means = [
            {way: fmean(r["measured"][way]["batch_s"]) for way in r["measured"]["order"]}
            for r in longer
            if name_longer(r) == (costs, zipf, count, out)
        ]
        case_text = f"{costs}, s = {zipf:g}, {count:,} rows, {out} batches left out"
        cells = [spread(mean[way] for mean in means) for way in ("round robin", "ours")]
        for other, limit in (
            ("round robin", MAX_OVER_ROUND_ROBIN),
            ("all-knowing", MAX_OVER_KNOWING),
        ):
            ratios = [mean["ours"] / mean[other] for mean in means if other in mean]
            cells.append(spread(ratios) if ratios else NONE)
            if ratios:
                text = f"batch ≤ {limit} x {other}: {case_text}"
                targets.append([text, spread(ratios), say_whether(median(ratios) <= limit)])
        rows.append([costs, f"{zipf:g}", f"{count:,}", f"{out}", *cells])
    header = ["longer batches or runs: costs", "Zipf s", "rows", "left out (batches)"]
    header += ["round robin (s)", "by cost (s)", "by cost ÷ round robin", "÷ all-knowing"]
    yield from table(header, rows)
    yield ""
    yield from table(["target", "measured", "met"], targets)


def name_longer(result: Result) -> tuple[str, float, int, int]:
    case, settings = result["case"], result["settings"]
    rows, out = int(case["rows_per_batch"]), int(settings["warm_up_batches"])
    return str(case["costs"]), float(case["zipf"]), rows, out


def tabulate_shuffle_overhead(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for way in dict.fromkeys(str(r["case"]["way"]) for r in results):
        runs = [r for r in results if r["case"]["way"] == way]
        rows.append([way, spread((r["measured"]["piece_us"] for r in runs), decimals=1)])
    yield from table(["pieces of", "measuring one of them (µs)"], rows)
