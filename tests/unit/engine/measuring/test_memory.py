"""What the listener's rows say of memory."""

from __future__ import annotations

from balancedstream.core.samples import ProcessSample, StoreSample
from balancedstream.engine.events import StatefulOperator
from balancedstream.engine.measuring.memory import read_processes, sum_stores


def test_operators_that_share_their_tasks_count_as_one_on_each_executor() -> None:
    operators = [StatefulOperator((0, 1), "StateStoreSave", 4), StatefulOperator((3,), "Join", 4)]
    rows = [
        [0, "a", 100, 10, 50, 2000, 7, 3, 1_500_000_000],
        [1, "a", 20, 1, 5, 500, 0, 1, 0],
        [3, "b", 9, 0, 0, 0, 0, 0, 0],
    ]
    assert sum_stores("q", 6, rows, operators) == (
        StoreSample("q", 0, 6, "a", 120, 11, 55, 2.5, 7, 4, 1.5),
        StoreSample("q", 3, 6, "b", 9),
    )


def test_the_processes_of_an_executor_add_up_to_what_is_resident() -> None:
    found = read_processes([["a", 100, 20, 400, 70, 5], ["b", 8, 9, 0, 0, 0]])
    assert found == (ProcessSample("a", 100, 20, 70, 475), ProcessSample("b", 8, 9, 0, 0))


def test_memory_that_cannot_be_reckoned_with_costs_no_load() -> None:
    operators = [StatefulOperator((0,), "StateStoreSave", 4)]
    rows = [[0, "a", -1, 0, 0, 0, 0, 0, 0], [0, "b", 9, 0, 0, 0, 0, 0, 0]]
    assert sum_stores("q", 6, rows, operators) == (StoreSample("q", 0, 6, "b", 9),)
    found = read_processes([["a", -1, 20, 0, 0, 0], ["b", 8, 9, 0, 0, 0]])
    assert found == (ProcessSample("b", 8, 9),)
