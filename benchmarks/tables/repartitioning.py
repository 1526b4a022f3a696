"""Another number of state partitions, beside a new checkpoint from the beginning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tables.markdown import Result, spread, table

REPARTITION, REREAD = "repartition_s", "reread_s"


def tabulate_repartitioning(results: Sequence[Result]) -> Iterator[str]:
    """Seconds of both ways by the size of the state."""
    rows = []
    for size in dict.fromkeys(int(result["case"]["state_mb"]) for result in results):
        runs = [r["measured"] for r in results if r["case"]["state_mb"] == size]
        rows.append(
            [
                f"{size:,} MB",
                spread((run["disk_mb"] for run in runs), 0),
                *(spread((run[way] for run in runs), 1) for way in (REPARTITION, REREAD)),
                spread(run[REPARTITION] / run[REREAD] for run in runs),
            ]
        )
    header = ["state", "on disk (MB)", "repartition (s)", "all rows again (s)"]
    yield from table([*header, "repartition ÷ all rows again"], rows)
