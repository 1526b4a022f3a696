"""A query in Real-Time Mode that is watched, beside the same query alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from targets import MAX_ATTACHED_OVER_VANILLA

from tables.markdown import Result, say_whether, spread, table

WATCHED, ALONE = "watched", "alone"
FIGURES = {"median_ms": "median", "p99_ms": "99th percentile", "longest_ms": "longest"}


def tabulate_real_time_latency(results: Sequence[Result]) -> Iterator[str]:
    """Latencies of both arms and their ratio, then whether all rows were counted once."""
    runs = [result["measured"] for result in results]
    rows = []
    for figure, words in FIGURES.items():
        ratios = [run[WATCHED][figure] / run[ALONE][figure] for run in runs]
        met = say_whether(median(ratios) <= MAX_ATTACHED_OVER_VANILLA)
        rows.append(
            [
                words,
                *(spread((run[arm][figure] for run in runs), 0) for arm in (ALONE, WATCHED)),
                spread(ratios),
                met if figure == "median_ms" else "",
            ]
        )
    header = ["latency", "alone (ms)", "watched (ms)", "watched ÷ alone"]
    yield from table([*header, f"≤ {MAX_ATTACHED_OVER_VANILLA}"], rows)
    wrong = sum(run[arm]["wrong_keys"] for run in runs for arm in (ALONE, WATCHED))
    yield ""
    yield f"Keys with a wrong result, in {2 * len(runs)} runs: {wrong}."
