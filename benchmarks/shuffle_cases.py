"""What `benchmarks/shuffle.py` measures on Spark: its cases and how many rows each has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.results import Case


@dataclass(frozen=True)
class Workload:
    """What every arm gets.

    Attributes:
        rows_per_batch: rows in every batch.
        batches: that are measured.
        warm_up_batches: before them; costs are learnt meanwhile.
        min_ms: cost of the cheapest item.
        max_ms: cost of the most expensive item.
    """

    rows_per_batch: int = 400
    batches: int = 8
    warm_up_batches: int = 4
    min_ms: int = 1
    max_ms: int = 64


LONG_BATCHES = Workload(batches=5, warm_up_batches=3)
LONG_RUN = Workload(batches=8, warm_up_batches=12)
EVEN_ITEMS = Workload(batches=8, warm_up_batches=24)
"""Where items are about equally frequent: each has been seen two or three times."""

SHORT_BATCHES = Workload(batches=24, warm_up_batches=24)
RARE_ITEMS = Workload(batches=24, warm_up_batches=328)
"""Where expensive items are rare: it is measured after 131,200 rows."""

WARM_UP_WORKLOAD = Workload(rows_per_batch=4000, batches=96, warm_up_batches=0, min_ms=0, max_ms=0)
SMOKE = Workload(rows_per_batch=100, batches=2, warm_up_batches=3)
ARMS: tuple[str, ...] = ("random", "round robin", "ours", "all-knowing")
"""The arms that are compared most closely run one after the other."""

EVEN_REPETITIONS = 6
"""Queries of a session become faster one after another, by up to a tenth where batches take 0.4 s.
So each of two arms runs before the other as often as after it."""

BRIEFEST = (1.5, "frequent cheap")
BRIEFEST_CASE: Case = {"zipf": BRIEFEST[0], "costs": BRIEFEST[1]}
RARE_ITEMS_CASE: Case = {
    **BRIEFEST_CASE,
    "rows_per_batch": RARE_ITEMS.rows_per_batch,
    "warm_up_batches": RARE_ITEMS.warm_up_batches,
}
BRIEFEST_REPETITIONS = 12
"""In batches of a third of a second, chance makes a tenth: more of them are compared."""

SPARK_CASES = (
    (0.0, "independent"),
    (0.5, "independent"),
    (1.0, "independent"),
    (2.0, "independent"),
    (3.0, "independent"),
    (1.0, "constant"),
    (1.0, "frequent dear"),
    BRIEFEST,
)
"""Uniform to very uneven, and all ways in which costs may follow; all of both are simulated."""

WARM_UP: Case = {"zipf": 1.0, "costs": "constant", "repetition": 0}
COMPARED_ARMS = ("round robin", "ours")
KNOWING_ARMS = (*COMPARED_ARMS, "all-knowing")
LONG_CASES = (
    (1.0, "constant", 800, LONG_BATCHES, COMPARED_ARMS),
    (0.0, "independent", 800, LONG_BATCHES, COMPARED_ARMS),
    (1.5, "frequent cheap", 6400, LONG_BATCHES, COMPARED_ARMS),
    (1.0, "constant", 400, LONG_RUN, COMPARED_ARMS),
    (0.0, "independent", 400, LONG_RUN, COMPARED_ARMS),
    (0.5, "independent", 400, EVEN_ITEMS, KNOWING_ARMS),
    (1.5, "frequent cheap", 400, SHORT_BATCHES, COMPARED_ARMS),
)
"""Where routing may cost more than it brings, in batches of 3 to 6 s; and longer runs."""


def find_workload(case: Case) -> tuple[Workload, tuple[str, ...]] | None:
    """The load of one of `LONG_CASES` or the like, and its arms; None for another case."""
    if "warm_up_batches" in case:
        return RARE_ITEMS, KNOWING_ARMS
    for zipf, costs, rows, workload, arms in LONG_CASES:
        if (zipf, costs, rows) == (case["zipf"], case["costs"], case.get("rows_per_batch")):
            return replace(workload, rows_per_batch=rows), arms
    return None
