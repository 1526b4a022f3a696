"""On a real cluster: what the operator costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tables.markdown import Result, spread, table


def tabulate_operator_load(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for size in sorted({_size(r) for r in results}):
        for release in ("0.1.0", "now"):
            runs = [
                r["measured"]
                for r in results
                if _size(r) == size and r["case"]["release"] == release
            ]
            rows.append(
                [
                    *(f"{number:,}" for number in size),
                    release,
                    spread((r["cpu_cores"] for r in runs), decimals=3),
                    spread((r["memory_mib"] for r in runs), decimals=0),
                    spread(r["passes_per_s"] for r in runs),
                ]
            )
    heads = ["streams", "partitions", "release", "processor (cores)", "memory (MiB)"]
    yield from table([*heads, "passes a second"], rows)


def _size(result: Result) -> tuple[int, int]:
    return result["case"]["streams"], result["case"]["partitions"]
