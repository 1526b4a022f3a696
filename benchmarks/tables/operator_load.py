"""On a real cluster: what the operator costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tables.markdown import Result, spread, table


def tabulate_operator_load(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for streams, partitions, release in sorted({_kind(r) for r in results}):
        runs = [r["measured"] for r in results if _kind(r) == (streams, partitions, release)]
        rows.append(
            [
                f"{streams}",
                f"{partitions:,}",
                release,
                spread((r["cpu_cores"] for r in runs), decimals=3),
                spread((r["memory_mib"] for r in runs), decimals=0),
                spread(r["passes_per_s"] for r in runs),
            ]
        )
    heads = ["streams", "partitions", "release", "processor (cores)", "memory (MiB)"]
    yield from table([*heads, "passes a second"], rows)


def _kind(result: Result) -> tuple[int, int, str]:
    case = result["case"]
    return case["streams"], case["partitions"], case["release"]
