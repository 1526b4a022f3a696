from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

import pytest
from report_pages import check_drawings, outline, page_of
from simulated_runs import Scenario

from balancedstream.record.history import History
from balancedstream.report.placements import placement_over
from balancedstream.report.summary import records_by_query


def test_the_placement_is_the_mean_load_where_the_partitions_ended(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    history = simulate(scenario(zipf=0.5))
    (query,) = records_by_query(history)
    placement = placement_over(query.before, 0)
    assert placement is not None
    assert placement.executor == query.before[-1].loads[0].partition_executor
    expected = fmean(batch.loads[0].partition_busy_s[3] for batch in query.before)
    assert placement.busy_s[3] == pytest.approx(expected)


def test_a_wide_job_shows_the_hottest_and_says_so(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    history = simulate(
        scenario(batches=30, partitions=10_000, executors=1_000, keys=20_000, rows=500_000)
    )
    page = page_of(history)
    assert len(page) < 700_000
    assert "range of 993 other executors" in page
    assert "the mean of the other 9,977" in page
    check_drawings(outline(page))
