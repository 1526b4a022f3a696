"""A long run: what is kept, from its beginning to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from tables.markdown import Result, table

COLUMNS = {
    "batches": "batches",
    "moves": "moves so far",
    "python_mib": "loop's process (MiB)",
    "driver_heap_mib": "driver's heap (MiB)",
    "executor_heap_mib": "executors' heap (MiB)",
    "executor_mib": "executors' processes (MiB)",
    "files": "files of the checkpoint",
    "series": "series",
    "report_kib": "report (KiB)",
}
ROWS = 5
COUNTED = ("batches", "moves")
"""Figures that count, and so grow."""


def tabulate_soak(results: Sequence[Result]) -> Iterator[str]:
    measured = results[-1]["measured"]
    looks = len(measured["batches"])
    chosen = sorted({max(0, looks * part // ROWS - 1) for part in range(1, ROWS + 1)})
    rows = [[f"{measured[name][look]:,.0f}" for name in COLUMNS] for look in chosen]
    yield from table([*COLUMNS.values()], [*rows, compare_halves(measured)])


def compare_halves(measured: Result) -> list[str]:
    """The last row: the last quarter of the looks beside the second one, by their medians."""
    quarter = len(measured["batches"]) // 4

    def compare(figures: Sequence[float]) -> str:
        before, after = figures[quarter : 2 * quarter], figures[-quarter:]
        return f"x {median(after) / median(before):.2f}"

    return [
        "last quarter ÷ second" if name == "batches" else "" if name in COUNTED
        else compare(measured[name])
        for name in COLUMNS
    ]  # fmt: skip
