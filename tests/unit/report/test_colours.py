from __future__ import annotations

from collections.abc import Callable

from simulated_runs import Scenario

from balancedstream.record.history import History
from balancedstream.report.colours import executor_colours


def test_the_hottest_executors_at_any_time_get_the_colours(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    history = simulate(scenario(executors=40, partitions=200, batches=20, balance=False))
    colours = executor_colours(history.batches)
    assert len(colours) == 7
    assert list(colours) == sorted(colours, key=int)
    peak: dict[str, float] = {}
    for batch in history.batches[1:]:
        for executor, busy_s in batch.loads[0].executor_busy_s().items():
            peak[executor] = max(busy_s, peak.get(executor, 0.0))
    assert set(colours) == set(sorted(peak, key=lambda e: -peak[e])[:7])
