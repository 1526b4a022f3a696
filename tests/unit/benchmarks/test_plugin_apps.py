"""Applications with the plugin: when a result is exact, and what the table says of the runs."""

from __future__ import annotations

from typing import Any

import pytest
from harness.benchmark import MeasurementError
from plugin_apps import KEYS, ROWS_PER_BATCH, check_result
from tables.plugin_apps import tabulate_plugin_apps

BATCHES = 7
COUNT = BATCHES * ROWS_PER_BATCH // KEYS


def count(numbers: dict[int, list[int]]) -> str:
    lines = [f"{k} {len(found)} {max(found)} {sum(found)}" for k, found in numbers.items()]
    return "\n".join(lines)


@pytest.fixture
def numbers() -> dict[int, list[int]]:
    """Each key's numbers after some batches."""
    return {k: [k + KEYS * i for i in range(COUNT)] for k in range(KEYS)}


def test_a_result_with_each_number_once_is_exact(numbers: dict[int, list[int]]) -> None:
    assert check_result(count(numbers)) == BATCHES


def test_a_number_that_is_lost_is_found(numbers: dict[int, list[int]]) -> None:
    del numbers[3][5]
    with pytest.raises(MeasurementError, match=r"^key 3: "):
        check_result(count(numbers))


def test_a_number_that_is_counted_twice_is_found_though_another_one_is_lost(
    numbers: dict[int, list[int]],
) -> None:
    numbers[4][5] = numbers[4][6]
    with pytest.raises(MeasurementError, match=r"^key 4: "):
        check_result(count(numbers))


def test_a_key_that_is_lost_or_behind_the_others_is_found(numbers: dict[int, list[int]]) -> None:
    behind = numbers | {5: numbers[5][:-1]}
    del numbers[6]
    for wrong in (behind, numbers):
        with pytest.raises(MeasurementError, match="keys, with"):
            check_result(count(wrong))


def test_the_table_has_a_cell_for_each_run_and_none_for_those_that_were_not_made() -> None:
    def tell(kind: str, spark: str, batches: int, end_s: float) -> dict[str, Any]:
        measured = {"moves": 2, "batches": batches, "end_s": end_s}
        return {"case": {"application": kind, "spark": spark}, "measured": measured}

    runs = [
        tell("PySpark", "4.3.0", 60, 1.0), tell("Java", "4.3.0", 50, 2.0),
        tell("PySpark", "3.5.9", 40, 3.0),
    ]  # fmt: skip
    header, _, *rows = tabulate_plugin_apps(runs)
    assert header == "| application | 3.5.9 | 4.3.0 | end (s) |"
    assert rows == [
        "| Java | - | yes (50) | 2.0 |",
        "| PySpark | yes (40) | yes (60) | 2.0 [1.0 to 3.0] |",
    ]
