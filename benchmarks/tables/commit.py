"""What a micro-batch costs to commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from tables.markdown import Result, spread, table


def tabulate_commit(results: Sequence[Result]) -> Iterator[str]:
    rows = []
    for partitions in sorted({r["case"]["partitions"] for r in results}):
        runs = [r["measured"]["batch_s"] for r in results if r["case"]["partitions"] == partitions]
        rows.append(
            [
                str(partitions),
                *(
                    spread(median(run[arm]) for run in runs if arm in run)
                    for arm in ("defaults", "rocksdb", "tuned")
                ),
                spread(median(run["defaults"]) / median(run["tuned"]) for run in runs),
            ]
        )
    yield from table(
        [
            "state partitions",
            "Spark's defaults (s)",
            "RocksDB with changelog (s)",
            "tuned (s)",
            "defaults ÷ tuned",
        ],
        rows,
    )
