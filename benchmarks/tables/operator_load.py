"""On a real cluster: what the operator costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tables.markdown import Result, spread, table


def tabulate_operator_load(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for count in sorted({r["case"]["streams"] for r in results}):
        runs = [r["measured"] for r in results if r["case"]["streams"] == count]
        rows.append(
            [
                f"{count}",
                spread((r["cpu_cores"] for r in runs), decimals=3),
                spread((r["memory_mib"] for r in runs), decimals=0),
                spread(r["passes_per_s"] for r in runs),
            ]
        )
    yield from table(["streams", "processor (cores)", "memory (MiB)", "passes a second"], rows)
