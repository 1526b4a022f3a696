from __future__ import annotations

import re
from collections.abc import Callable

from report_pages import check_drawings, outline, page_of, run_with_a_hot_key
from simulated_runs import Scenario

from balancedstream.record.history import History
from balancedstream.report.axis import BatchAxis
from balancedstream.report.hot_keys import hot_keys_figure
from balancedstream.report.summary import records_by_query


def test_a_hot_key_is_seen_to_leave_its_partition_at_a_batch(
    empty_history: Callable[[], History],
) -> None:
    history = run_with_a_hot_key(empty_history())
    (query,) = records_by_query(history)
    axis = BatchAxis(query.batches, history.run.started_s)
    figure = hot_keys_figure(query, 0, axis)
    assert figure is not None
    assert [label for _, label in figure.legend[:2]] == ['"<k0>"', '"<k1>"']
    stays, leaves = (
        [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]
        for path in re.findall(r'<path d="(M[^"]*)" class="line k[01]"/>', figure.svg)[1::2]
    )
    assert len(set(stays)) == 1
    assert [y > leaves[0] for y in leaves] == [False] * 12 + [True] * 12
    assert "1 key moved in batch 6: &quot;&lt;k1&gt;&quot;: partition 0 to 1. two hot keys" in (
        figure.svg
    )
    assert "1 s in partition 1 on executor 1 (25 % of all)" in figure.svg


def test_of_many_keys_the_hottest_are_drawn(empty_history: Callable[[], History]) -> None:
    history = run_with_a_hot_key(empty_history(), keys=30, batches=2_500)
    (query,) = records_by_query(history)
    axis = BatchAxis(query.batches, history.run.started_s)
    figure = hot_keys_figure(query, 0, axis)
    assert figure is not None
    assert "Shown: the 8 hottest of 30 keys" in figure.caption
    page = page_of(history)
    assert len(page) < 700_000
    check_drawings(outline(page))


def test_a_run_without_balanced_keys_does_not_mention_them(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    page = page_of(simulate(scenario()))
    assert "Hot keys" not in page
    assert "Moves of keys" not in page
