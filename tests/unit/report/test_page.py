from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from statistics import fmean

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from balancedstream.core.observations import KeySample, ShuffleRecord
from balancedstream.record import stores
from balancedstream.record.history import History
from balancedstream.record.records import BatchRecord, KeyMoveRecord, MoveRecord, OperatorBatchLoad
from balancedstream.report.charts import (
    BatchAxis,
    batch_time_figure,
    executor_colours,
    executor_load_figure,
    hot_keys_figure,
    placement_over,
)
from balancedstream.report.page import render_page
from balancedstream.report.summary import records_by_query, summarize

VOID = {"meta", "br", "hr", "img", "input", "link"}
TITLES = (
    "Batch time", "Where the load was", "Load per executor", "Imbalance", "Load per partition",
)  # fmt: skip


class Outline(HTMLParser):
    """Reads a page strictly: every element is closed in order, attributes are collected."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def page_of(history: History, notes: tuple[str, ...] = ()) -> str:
    return render_page(history, summarize(history, notes))


def outline(page: str) -> Outline:
    reader = Outline()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def check_drawings(read: Outline) -> None:
    """Every coordinate is a finite number inside the drawing."""
    for tag, name, value in read.attributes:
        if name in {"x", "y", "x1", "x2", "y1", "y2", "width", "height"} and tag != "meta":
            assert re.fullmatch(r"-?\d+(\.\d)?", value), (tag, name, value)
            assert -20 <= float(value) <= 980, (tag, name, value)
        if name == "d":
            coordinates = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", value)]
            assert all(-20 <= n <= 980 for n in coordinates)
            assert "nan" not in value


def test_the_page_shows_every_picture_and_headline_figure(simulate, scenario):
    history = simulate(scenario(shift_at=30, grow_at=45))
    summary = summarize(history)
    read = outline(page_of(history))
    text = " ".join(read.text)
    for title in TITLES:
        assert title in text
    for figure in (summary.imbalance_before, summary.imbalance_after, summary.bound):
        assert f"{figure:.2f}" in text
    assert f"{summary.rows:,}" in text
    assert "4 → 6 executors" in text
    check_drawings(read)


def test_the_page_needs_nothing_but_itself(simulate, scenario):
    page = page_of(simulate(scenario()))
    read = outline(page)
    assert not {"script", "link", "img", "iframe", "object", "use", "image"} & set(read.tags)
    assert not {name for _, name, _ in read.attributes} & {"src", "href", "xlink:href", "style"}
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]
    assert "url(" not in page
    assert "@import" not in page
    assert "http:" not in page
    assert "https:" not in page


def test_names_and_reasons_are_text_and_never_markup(simulate, scenario):
    evil = "<script>alert(1)</script>\"'&\x00\x1b]0;\ud800"
    history = simulate(scenario(query=evil, operator_name=evil, batches=30), history=None)
    read_run = replace(history.run, app=evil, settings={evil: evil})
    tainted = History(read_run)
    for batch in history.batches:
        tainted.add_batch(batch)
    for move in history.moves:
        tainted.add_move(replace(move, reason=evil, source=evil, dropped_reason=evil))
    for decision in history.decisions:
        tainted.add_decision(replace(decision, reason=evil))
    page = page_of(tainted, (evil,))
    read = outline(page)
    assert "script" not in read.tags
    assert "<script>alert(1)</script>" in " ".join(read.text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", page)


def test_every_move_is_marked_where_it_took_effect(simulate, scenario):
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


def test_a_run_without_moves_says_so(simulate, scenario):
    page = page_of(simulate(scenario(balance=False)))
    assert "Nothing was moved" in page
    assert "all batches (batches 1 to 59)" in page


def test_stateless_queries_are_beside_each_other_and_have_nothing_to_move(empty_history):
    history = empty_history()
    for number in range(6):
        for query, duration_ms in (("round-robin", 500), ("by-cost", 400)):
            history.add_batch(BatchRecord(query, number, 1000.0, duration_ms, 10, None, 2, ()))
    page = page_of(history)
    assert "Nothing was moved, for there is no state to move." in page
    cells = [text.strip() for text in outline(page).text]
    for query, shown in (("round-robin", "500 ms"), ("by-cost", "400 ms")):
        assert f"Query {query}" in cells
        assert shown in cells


def test_the_placement_is_the_mean_load_where_the_partitions_ended(simulate, scenario):
    history = simulate(scenario(zipf=0.5))
    (query,) = records_by_query(history)
    placement = placement_over(query.before, 0)
    assert placement is not None
    assert placement.executor == query.before[-1].loads[0].partition_executor
    expected = fmean(batch.loads[0].partition_busy_s[3] for batch in query.before)
    assert placement.busy_s[3] == pytest.approx(expected)


def test_the_hottest_executors_at_any_time_get_the_colours(simulate, scenario):
    history = simulate(scenario(executors=40, partitions=200, batches=20, balance=False))
    colours = executor_colours(history.batches)
    assert len(colours) == 8
    assert list(colours) == sorted(colours, key=int)
    peak: dict[str, float] = {}
    for batch in history.batches[1:]:
        for executor, busy_s in batch.loads[0].executor_busy_s().items():
            peak[executor] = max(busy_s, peak.get(executor, 0.0))
    assert set(colours) == set(sorted(peak, key=lambda e: -peak[e])[:8])


def test_a_long_run_is_drawn_in_stretches_and_its_spikes_are_not_lost(simulate, scenario):
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


def test_a_wide_job_shows_the_hottest_and_says_so(simulate, scenario):
    history = simulate(
        scenario(batches=30, partitions=10_000, executors=1_000, keys=20_000, rows=500_000)
    )
    page = page_of(history)
    assert len(page) < 700_000
    assert "range of 992 other executors" in page
    assert "the mean of the other 9,977" in page
    check_drawings(outline(page))


def test_many_queries_and_operators_are_drawn_up_to_a_limit(empty_history):
    history = empty_history()
    loads = tuple(
        OperatorBatchLoad(operator, "save", (1.0, 2.0), ("0", "1"), 1.3, 1.3)
        for operator in range(5)
    )
    for query in range(12):
        for number in range(4):
            history.add_batch(
                BatchRecord(f"q{query}", number, 1.7e9 + number, 100, 5, None, 2, loads)
            )
    page = page_of(history)
    assert page.count("<h3>Batch time</h3>") == 4
    assert "Drawn above: the 4 busiest." in page
    assert "2 operators with less load not drawn" in page
    assert all(f"q{query}" in page for query in range(12))


def test_batches_no_longer_on_record_leave_a_visible_gap(simulate, scenario, monkeypatch):
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


def test_loads_no_longer_on_record_are_said_to_be_missing(simulate, scenario, monkeypatch):
    monkeypatch.setattr(stores, "OPENING_MEASUREMENTS", 0)
    monkeypatch.setattr(stores, "RECENT_MEASUREMENTS", 160)
    history = simulate(scenario(balance=False))
    (query,) = records_by_query(history)
    axis = BatchAxis(query.batches, history.run.started_s)
    figure = executor_load_figure(query, 0, axis, executor_colours(query.batches))
    assert "Of the 60 batches on record, 50 older ones keep no loads" in figure.caption
    outline(page_of(history))


def test_a_page_can_be_made_of_nothing(empty_history):
    page = page_of(empty_history())
    outline(page)
    assert "No micro-batch finished in this run" in page


def test_repeated_decisions_are_one_line(simulate, scenario):
    history = simulate(scenario(batches=40, balance=True, zipf=0.0, keys=5_000, partitions=4))
    page = page_of(history)
    rows = page.count('class="kind')
    assert rows < len(history.decisions)
    assert re.search(r"\d+ times</td>", page)


finite = st.floats(0, 1e6)
any_imbalance = st.floats(1, 1e6) | st.sampled_from([float("nan"), float("inf")])


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**7),
            st.integers(0, 10**9),
            st.none() | finite | st.just(float("nan")),
            st.integers(0, 5),
            st.lists(st.tuples(finite, st.sampled_from(["", "0", "1", "driver"])), max_size=6),
            any_imbalance,
        ),
        min_size=1,
        max_size=12,
    ),
    st.sets(st.integers(0, 12), max_size=3),
)
def test_any_record_makes_a_sound_page(empty_history, rows, moves_after):
    history = empty_history()
    for number, (duration_ms, input_rows, backlog, executors, tasks, imbalance) in enumerate(rows):
        load = OperatorBatchLoad(
            0,
            "save",
            tuple(busy_s for busy_s, _ in tasks),
            tuple(executor for _, executor in tasks),
            imbalance,
            1.0,
        )
        history.add_batch(
            BatchRecord(
                "q", number, 1.7e9 + number, duration_ms, input_rows, backlog, executors, (load,)
            )
        )
    for after in moves_after:
        history.add_move(
            MoveRecord(
                "q", 0, 0, "0", "1", 1.7e9 + after, "hot", after, settled_s=1.7e9 + after + 1
            )
        )
    check_drawings(outline(page_of(history)))


def test_shuffles_are_told_by_how_their_batches_were_routed(empty_history):
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
    assert "after batch 5: estimated costs, for the estimates were off by 10 %" in page


def run_with_a_hot_key(history: History, keys: int = 2, batches: int = 12) -> History:
    """Keys of partition 0, the last of which goes to partition 1 with batch 6."""
    leaver = f'"<k{keys - 1}>"'
    for number in range(batches):
        load = OperatorBatchLoad(0, "keys", (3.0, 1.0), ("0", "1"), 1.5, 1.5)
        history.add_batch(BatchRecord("q", number, 1.7e9 + number, 3_000, 10, None, 2, (load,)))
        history.add_key_samples(
            KeySample("q", 0, f'"<k{key}>"', int(key == keys - 1 and number >= 6), number, 1.0)
            for key in range(keys)
        )
        if number == 4:
            history.add_key_move(KeyMoveRecord("q", 0, leaver, 0, 1, 1.7e9 + 4, "two hot keys", 4))
        if number == 6:
            history.settle_key_move("q", leaver, settled_s=1.7e9 + 6, settled_batch=6)
    return history


def test_a_hot_key_is_seen_to_leave_its_partition_at_a_batch(empty_history):
    history = run_with_a_hot_key(empty_history())
    (query,) = records_by_query(history)
    axis = BatchAxis(query.batches, history.run.started_s)
    figure = hot_keys_figure(query, 0, axis)
    assert figure is not None
    assert [label for _, label in figure.legend[:2]] == ['"<k0>"', '"<k1>"']
    stays, leaves = (
        [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]
        for path in re.findall(r'<path d="(M[^"]*)" class="line s[01]"/>', figure.svg)[1::2]
    )
    assert len(set(stays)) == 1
    assert [y > leaves[0] for y in leaves] == [False] * 12 + [True] * 12
    assert "1 key moved with batch 6: &quot;&lt;k1&gt;&quot;: partition 0 to 1. two hot keys" in (
        figure.svg
    )
    assert "1 s in partition 1 on executor 1 (25 % of all)" in figure.svg


def test_keys_that_moved_are_listed_and_part_before_from_after(empty_history):
    history = run_with_a_hot_key(empty_history())
    page = page_of(history)
    assert "Moves of keys, one by one (all)" in page
    assert "&quot;&lt;k1&gt;&quot;" in page
    assert "0 moves of a state partition and 1 of a key, without a restart" in page
    (query,) = records_by_query(history)
    assert [batch.batch for batch in query.before] == [1, 2, 3, 4]
    assert [batch.batch for batch in query.after] == [7, 8, 9, 10, 11]
    check_drawings(outline(page))


def test_of_many_keys_the_hottest_are_drawn(empty_history):
    history = run_with_a_hot_key(empty_history(), keys=30, batches=2_500)
    (query,) = records_by_query(history)
    axis = BatchAxis(query.batches, history.run.started_s)
    figure = hot_keys_figure(query, 0, axis)
    assert figure is not None
    assert "Shown: the 8 hottest of 30 keys" in figure.caption
    page = page_of(history)
    assert len(page) < 700_000
    check_drawings(outline(page))


def test_a_run_without_balanced_keys_does_not_mention_them(simulate, scenario):
    page = page_of(simulate(scenario()))
    assert "Hot keys" not in page
    assert "Moves of keys" not in page


def test_a_run_without_shuffles_does_not_mention_them(simulate, scenario):
    assert "Cost-aware" not in page_of(simulate(scenario()))
