"""More state partitions are proposed where their number limits a stream, and only there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.core.scaling.costs import QueryCost, StageCost
from balancedstream.core.scaling.partitions import choose_count, propose_partitions


class Load:
    """What a proposal reads of a demand: 1,000 rows a batch, 10 ms each."""

    query, interval_s, then_rows, batch_rows = "q", 10.0, 0.0, float("inf")
    foreseen = SimpleNamespace(ahead=100.0)

    def __init__(self, state_share: float, tasks: int, longest: float) -> None:
        stages = {
            "source": StageCost(1.0 - state_share, 64, 1 / 64),
            "stateful": StageCost(state_share, tasks, longest),
        }
        self.cost = QueryCost(0.0, 0.01, {"planning": 0.1}, stages)  # type: ignore[arg-type]

    def slots(self, cores: float) -> float:
        return cores


def propose(state_share: float, tasks: int, longest: float, cores: int) -> Any:
    load: Any = Load(state_share, tasks, longest)
    return propose_partitions([load], tasks, cores, 10_000)


def test_four_partitions_on_sixteen_cores_become_enough_for_all_of_them() -> None:
    more = propose(0.9, 4, 0.25, 16)
    assert (more.query, more.partitions) == ("q", 128)
    # 9 s of work on 4 partitions, and then on 16 cores.
    assert more.before_s == pytest.approx(2.4, abs=0.3)
    assert more.after_s < more.before_s / 2


@pytest.mark.parametrize(
    ("state_share", "tasks", "longest", "cores"),
    [
        pytest.param(0.9, 128, 1 / 128, 16, id="enough of them"),
        pytest.param(0.02, 4, 0.25, 16, id="little work in them"),
        pytest.param(0.9, 16, 1 / 16, 2, id="few cores"),
    ],
)
def test_nothing_is_proposed_that_brings_little(
    state_share: float, tasks: int, longest: float, cores: int
) -> None:
    assert propose(state_share, tasks, longest, cores) is None


def test_a_query_without_state_and_an_unknown_number_get_no_proposal() -> None:
    load: Any = Load(0.9, 4, 0.25)
    load.cost = QueryCost(0.0, 0.01, {}, {"source": StageCost(1.0, 4, 0.25)})
    assert propose_partitions([load], 4, 16, 10_000) is None
    assert propose_partitions([Load(0.9, 4, 0.25)], 0, 16, 10_000) is None  # type: ignore[list-item]
    assert propose_partitions([], 4, 16, 10_000) is None


@given(st.integers(1, 10_000), st.integers(1, 500))
def test_the_number_is_a_whole_multiple_and_stays_within_the_limit(
    present: int, cores: int
) -> None:
    count = choose_count(present, cores, 10_000)
    assert count % present == 0
    assert present <= count <= 10_000
