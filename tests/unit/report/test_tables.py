from __future__ import annotations

import re
from collections.abc import Callable

from report_pages import check_drawings, outline, page_of, run_with_a_hot_key
from simulated_runs import Scenario

from balancedstream.core.samples import ShuffleRecord
from balancedstream.record.history import History
from balancedstream.report.summary import records_by_query


def test_repeated_decisions_are_one_line(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    history = simulate(scenario(batches=40, balance=True, zipf=0.0, keys=5_000, partitions=4))
    page = page_of(history)
    rows = page.count('class="kind')
    assert rows < len(history.decisions)
    assert re.search(r"\d+ times</td>", page)


def test_shuffles_are_told_by_how_their_batches_were_routed(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    for number in range(6):
        history.add_shuffle(
            ShuffleRecord(
                at_s=1.0,
                shuffle="classify by <kind>",
                batch=number,
                records=100,
                by_estimates=number >= 2,
                estimated_s=(1.0, 1.0),
                real_s=(1.1, 0.9) if number >= 2 else (1.6, 0.4),
                error=0.1 if number else None,
                equal_error=0.5 if number else None,
                trusted=number >= 1,
                reason="the estimates were off by 10 %",
            )
        )
    page = page_of(history)
    assert "classify by &lt;kind&gt;" in page
    rows = [row for row in page.split("<tr") if "classify by" in row]
    assert ["round robin" in row and "1.60" in row for row in rows] == [True, False]
    assert ["estimated costs" in row and "1.10" in row for row in rows] == [False, True]
    assert "after batch 5: estimated costs, because the estimates were off by 10 %" in page


def test_keys_that_moved_are_listed_and_part_before_from_after(
    empty_history: Callable[[], History],
) -> None:
    history = run_with_a_hot_key(empty_history())
    page = page_of(history)
    assert "Moves of keys, one by one (all)" in page
    assert "&quot;&lt;k1&gt;&quot;" in page
    assert ". 1 key move, without a restart." in page
    (query,) = records_by_query(history)
    assert [batch.batch for batch in query.before] == [1, 2, 3, 4, 5]
    assert [batch.batch for batch in query.after] == [7, 8, 9, 10, 11]
    check_drawings(outline(page))


def test_the_moves_say_how_much_state_was_loaded_ahead(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    history = simulate(scenario())
    assert "State loaded ahead" not in page_of(history)
    history.add_preparation("failed", 4_000_000, 1.5)
    assert "State loaded ahead: 4 MB in 1.5 s failed (1 move)." in page_of(history)


def test_a_run_without_shuffles_does_not_mention_them(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    assert "Cost-aware" not in page_of(simulate(scenario()))
