"""Whether a load is balanced, as the status says it."""

from __future__ import annotations

from balancedstream.core.decisions import decide
from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy
from balancedstream.core.samples import TaskSample
from balancedstream_operator.report.balance import judge_balance

LOADS = {0: 3.0, 1: 8.0, 2: 5.0, 3: 8.0, 4: 4.0, 5: 4.0}
BEST = {0: "b", 1: "b", 2: "a", 3: "c", 4: "a", 5: "c"}


def observe(placement: dict[int, str]) -> Observation:
    tasks = tuple(
        TaskSample("q", 0, p, 1, placement[p], busy_s, 5, 10, 9.0) for p, busy_s in LOADS.items()
    )
    return Observation(10.0, {"a": 1, "b": 1, "c": 1}, tasks)


def test_a_load_that_no_move_makes_more_even_is_balanced() -> None:
    balance = judge_balance(decide(observe(BEST), Policy()), Policy())
    assert balance.imbalance == 1.125
    assert balance.holds
    assert "no exchange that pays off" in balance.reason


def test_a_load_that_moves_would_make_more_even_is_not_balanced() -> None:
    skewed = {**BEST, 2: "c"}
    assert judge_balance(decide(observe(skewed), Policy()), Policy()).holds is False
