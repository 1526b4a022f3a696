"""A long run: what is kept, from its beginning to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from tables.markdown import Result, table

COLUMNS = {
    "batches": "batches",
    "moves": "moves so far",
    "python_mib": "loop's process (MiB)",
    "operator_mib": "operator (MiB)",
    "driver_heap_mib": "driver's heap (MiB)",
    "driver_mib": "driver's pod (MiB)",
    "executor_heap_mib": "executors' heap (MiB)",
    "executor_mib": "executors' processes (MiB)",
    "files": "files of the checkpoint",
    "series": "series",
    "report_kib": "report (KiB)",
    "status_kib": "status (KiB)",
}
"""Of the embedded run, and of the one on a cluster."""
ROWS = 5
COUNTED = ("batches", "moves")
"""Figures that count, and so grow."""


def tabulate_soak(results: Sequence[Result]) -> Iterator[str]:
    measured = results[-1]["measured"]
    looks = len(measured["batches"])
    chosen = sorted({max(0, looks * part // ROWS - 1) for part in range(1, ROWS + 1)})
    names = [name for name in COLUMNS if name in measured]
    rows = [[f"{measured[name][look]:,.0f}" for name in names] for look in chosen]
    compared = compare_halves(measured, names)
    yield from table([COLUMNS[name] for name in names], [*rows, compared])


def compare_halves(measured: Result, names: Sequence[str]) -> list[str]:
    """The last row: the last quarter of the looks beside the second one, by their medians."""
    quarter = len(measured["batches"]) // 4

    def compare(figures: Sequence[float]) -> str:
        before, after = figures[quarter : 2 * quarter], figures[-quarter:]
        return f"x {median(after) / median(before):.2f}"

    return [
        "last quarter ÷ second" if name == "batches" else "" if name in COUNTED
        else compare(measured[name])
        for name in names
    ]  # fmt: skip
