from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from report_pages import outline, page_of
from simulated_runs import Scenario

from balancedstream.record import stores
from balancedstream.record.history import History
from balancedstream.report.axis import BatchAxis
from balancedstream.report.charts import batch_time_figure, executor_load_figure
from balancedstream.report.colours import executor_colours
from balancedstream.report.summary import records_by_query


def test_every_move_is_marked_where_it_took_effect(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    history = simulate(scenario(shift_at=30))
    (query,) = records_by_query(history)
    axis = BatchAxis(query.batches, history.run.started_s)
    figure = batch_time_figure(query, axis, history.scales)
    marked = re.findall(r"<title>(\d+) moves? after batch (\d+): ", figure.svg)
    decided: dict[int, int] = {}
    for move in history.moves:
        decided[move.decided_after_batch] = decided.get(move.decided_after_batch, 0) + 1
    assert {int(batch): int(count) for count, batch in marked} == decided
    assert len(decided) > 1


def test_a_long_run_is_drawn_in_stretches_and_its_spikes_are_not_lost(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    history = simulate(scenario(batches=4_000, partitions=8, keys=20, balance=False))
    spike = replace(history.batches[-1], duration_ms=123_000, batch=4_000)
    history.add_batch(spike)
    for number in range(4_001, 4_400):
        history.add_batch(replace(history.batches[-2], batch=number))
    (query,) = records_by_query(history)
    axis = BatchAxis(query.batches, history.run.started_s)
    figure = batch_time_figure(query, axis, ())
    assert "4,400 batches in 600 stretches" in figure.caption
    assert "to 2 min 3 s" in figure.svg
    assert len(page_of(history)) < 700_000


def test_batches_no_longer_on_record_leave_a_visible_gap(
    simulate: Callable[..., History], scenario: type[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "OPENING_BATCHES", 20)
    monkeypatch.setattr(stores, "RECENT_BATCHES", 30)
    history = simulate(scenario(batches=200, balance=False))
    (query,) = records_by_query(history)
    axis = BatchAxis(query.batches, history.run.started_s)
    assert axis.gaps == [20]
    figure = batch_time_figure(query, axis, ())
    assert "no longer on record" in figure.caption
    line = re.search(r'<path d="(M[^"]*)" class="line-main"/>', figure.svg)
    assert line
    assert line[1].count("M") == 2


def test_loads_no_longer_on_record_are_said_to_be_missing(
    simulate: Callable[..., History], scenario: type[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "OPENING_MEASUREMENTS", 0)
    monkeypatch.setattr(stores, "RECENT_MEASUREMENTS", 160)
    history = simulate(scenario(balance=False))
    (query,) = records_by_query(history)
    axis = BatchAxis(query.batches, history.run.started_s)
    figure = executor_load_figure(query, 0, axis, executor_colours(query.batches))
    assert "Of the 60 batches on record, 50 older ones keep no loads" in figure.caption
    outline(page_of(history))
