from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_pages import check_drawings, outline, page_of
from simulated_runs import Scenario

from balancedstream.core.decisions import DecisionKind
from balancedstream.record.history import History
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    MoveRecord,
    OperatorBatchLoad,
)
from balancedstream.report import render_live_page, render_unbalanced_live_page
from balancedstream.report.colours import COLOURS, executor_colours
from balancedstream.report.outcome import describe_outcome
from balancedstream.report.page import render_page
from balancedstream.report.summary import summarize

TITLES = (
    "Batch time", "Where the load was", "Load per executor", "Imbalance", "Load per partition",
)  # fmt: skip


def test_the_page_shows_every_picture_and_headline_figure(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
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


def test_the_page_needs_nothing_but_itself(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    page = page_of(simulate(scenario()))
    read = outline(page)
    assert not {"script", "link", "img", "iframe", "object", "use", "image"} & set(read.tags)
    assert not {name for _, name, _ in read.attributes} & {"src", "href", "xlink:href", "style"}
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]
    assert "url(" not in page
    assert "@import" not in page
    assert "http:" not in page
    assert "https:" not in page


def test_names_and_reasons_are_text_and_never_markup(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
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


def test_a_run_without_moves_says_so(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    page = page_of(simulate(scenario(balance=False)))
    assert "Nothing moved: the imbalance was " in page
    assert "all batches (batches 1 to 59)" in page


@pytest.mark.parametrize(
    ("first_balance", "batches", "said"),
    [
        (3, 60, "too few batches before the first move (3, at least 5 are needed)"),
        (12, 17, "too few batches after the moves (3, at least 5 are needed)"),
    ],
)
def test_too_few_batches_are_said_instead_of_a_percentage(
    simulate: Callable[..., History],
    scenario: type[Scenario],
    first_balance: int,
    batches: int,
    said: str,
) -> None:
    history = simulate(scenario(first_balance=first_balance, batches=batches))
    read = outline(page_of(history))
    text = " ".join(read.text)
    assert f"moves brought cannot be said: {said}." in text
    assert text.count(said) == 2, "in the sentence and under the picture"
    top = text[: text.index("Query delays")]
    assert "too few batches" in top
    assert not re.search(r"[+-]\d+ %", top)
    assert "No batch with loads" not in text
    assert "→ -" not in text
    check_drawings(read)


def test_enough_batches_give_a_percentage(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    text = " ".join(outline(page_of(simulate(scenario()))).text)
    assert "too few" not in text
    assert re.search(r"-\d+ %", text[: text.index("Query delays")])


def test_state_that_was_not_seen_is_not_told_as_none(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    for number in range(6):
        record = BatchRecord("q", number, 1000.0, 500, 10, None, 2, (), has_state=True)
        history.add_batch(record)
    assert "no task of a query with state was seen" in page_of(history)


def test_stateless_queries_are_beside_each_other_and_have_nothing_to_move(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    for number in range(6):
        for query, duration_ms in (("round-robin", 500), ("by-cost", 400)):
            history.add_batch(BatchRecord(query, number, 1000.0, duration_ms, 10, None, 2, ()))
    page = page_of(history)
    assert "Nothing has moved yet: no query has state." in page
    assert "60 rows in 6 batches; no state, median batch 500 ms" in page
    cells = [text.strip() for text in outline(page).text]
    assert "no state" in cells
    for query, shown in (("round-robin", "500 ms"), ("by-cost", "400 ms")):
        assert f"Query {query}" in cells
        assert shown in cells


def test_many_queries_and_operators_are_drawn_up_to_a_limit(
    empty_history: Callable[[], History],
) -> None:
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
    assert "Not drawn: 2 operators with less load." in page
    assert all(f"q{query}" in page for query in range(12))


def test_a_page_can_be_made_of_nothing(empty_history: Callable[[], History]) -> None:
    page = page_of(empty_history())
    outline(page)
    assert "Waiting for the first micro-batch" in page


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
def test_any_record_makes_a_sound_page(
    empty_history: Callable[[], History],
    rows: list[tuple[int, int, float | None, int, list[tuple[float, str]], float]],
    moves_after: set[int],
) -> None:
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


def read_text(page: str) -> str:
    return " ".join(outline(page).text)


def test_the_result_comes_first_and_the_picture_of_it_before_the_figures(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    history = simulate(scenario())
    text = read_text(page_of(history))
    assert describe_outcome(summarize(history)).startswith("Batches take 28 % less time")
    order = ["Batches take", "Where the load was", "before (", "after (", "Median batch", "Rows"]
    places = [text.index(each) for each in order]
    assert places == sorted(places)
    assert "<h1>Batches take 28 % less time: " in page_of(history)
    assert text.count("Where the load was") == 1


def test_what_did_not_happen_is_not_counted_and_what_did_not_change_is_not_drawn(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    text = read_text(page_of(simulate(scenario(backlog=False))))
    for missing in ("Query restarts", "Scale actions", "dropped", "live executors", "backlog:"):
        assert missing not in text
    assert "There were always 4 executors." in text
    grown = read_text(page_of(simulate(scenario(grow_at=45))))
    assert "live executors" in grown
    assert re.search(
        r"Batches take \d+ % less time: [^.]+\.[^:]*, with 6 executors instead of 4\.", grown
    )
    assert "4 → 6 executors" in grown


def test_the_moves_of_the_run_and_of_its_busiest_query_agree_with_the_pictures(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    history = simulate(scenario(query="light", rows=600), scenario(query="heavy", seed=5))
    summary = summarize(history)
    text = read_text(page_of(history))
    assert f"{summary.queries[0].moves} of them in heavy" in text
    assert "120 micro-batches of 2 queries, each of which reads its own" in text


@pytest.mark.parametrize(("after_ms", "css"), [(3000, "better"), (9000, "worse"), (6001, "change")])
def test_a_change_for_the_worse_looks_like_one(
    empty_history: Callable[[], History], after_ms: int, css: str
) -> None:
    history = empty_history()
    for number in range(12):
        load = OperatorBatchLoad(0, "save", (1.0, 2.0), ("0", "1"), 1.3, 1.3)
        duration_ms = 6000 if number < 6 else after_ms
        history.add_batch(
            BatchRecord("q", number, 1.7e9 + number, duration_ms, 5, None, 2, (load,))
        )
    history.add_move(MoveRecord("q", 0, 0, "0", "1", 1.7e9 + 5, "hot", 5, settled_s=1.7e9 + 6.5))
    page = page_of(history)
    # Of the median, and of the 99th percentile.
    assert len(re.findall(rf'class="(?:change )?{css}">[+±-]', page)) == 2


def test_notes_are_no_warning_and_have_the_colours_of_what_is_around_them(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    history = simulate(scenario())
    page = render_page(history, summarize(history, ["a note"]))
    assert '<div class="notes"><ul><li>a note</li>' in page
    (style,) = re.findall(r"^\.notes \{(.*?)\}", page, re.M | re.S)
    assert {*re.findall(r"--\w+(?:-\w+)*", style)} == {"--card", "--grid", "--line", "--soft"}
    assert "#" not in style


@pytest.mark.parametrize("batches", [1, 2, 7])
def test_a_run_that_goes_on_says_what_is_so_far(
    simulate: Callable[..., History], scenario: type[Scenario], batches: int
) -> None:
    ended = simulate(scenario(batches=batches, first_balance=2))
    going = History(replace(ended.run, ended_s=None))
    for batch in ended.batches:
        going.add_batch(batch)
    for decision in ended.decisions:
        going.add_decision(decision)
    text = read_text(render_live_page(going))
    assert "at the end" not in text
    assert "cores now" in text
    assert "Waits for" in text
    for decision in ended.decisions[-1:]:
        assert f"{decision.query}, operator 0: " in text
        assert f"({decision.reason})" in text
    assert "→ -" not in text
    assert " -." not in text


def test_a_chart_of_one_batch_shows_it(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    page = page_of(simulate(scenario(batches=1)))
    assert page.count('class="line-main dot"') == 4, "duration, rows, backlog and imbalance"
    assert "Shaded" not in page
    assert "median before, after" not in page


def test_a_colour_is_one_executor_in_every_picture(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    page = page_of(simulate(scenario()))
    colours: dict[str, set[str]] = {}
    for css, executor in re.findall(
        r'<rect[^>]* class="(?:bar|block) (s\d)(?: moved)?"><title>partition \d+ on executor (\d+)',
        page,
    ):
        colours.setdefault(css, set()).add(executor)
    for css, executor in re.findall(r'class="(?:line )?(s\d)"/></svg>executor (\d+)</li>', page):
        colours.setdefault(css, set()).add(executor)
    assert len(colours) == 4
    assert all(len(executors) == 1 for executors in colours.values())


def test_no_mark_but_that_of_an_executor_has_the_colour_of_one() -> None:
    style = files("balancedstream.report").joinpath("report.css").read_text("utf-8")
    palettes = re.findall(r"{([^{}]*--s0:[^{}]*)}", style)
    assert len(palettes) == 3, "light, dark and printed"
    for palette in palettes:
        colours = dict(re.findall(r"(--[\w-]+): (#\w+);", palette))
        of_executors = [colour for name, colour in colours.items() if re.match(r"--s\d", name)]
        assert len({*of_executors}) == len(of_executors) == COLOURS
        assert not {*of_executors} & {c for n, c in colours.items() if not re.match(r"--s\d", n)}
    for selectors, rule in re.findall(r"^(svg [^{]*){([^}]*)}", style, re.M):
        used = {*re.findall(r"var\((--[\w-]+)\)", rule)}
        if re.search(r"\.s\d", selectors):
            assert used == {f"--{name}" for name in re.findall(r"\.(s\d)", selectors)}
        elif ".k" in selectors:
            assert used <= {"--key-dark", "--key-light", "--text"}
        else:
            ink = {"--text", "--soft", "--faint", "--grid", "--line", "--card"}
            assert used <= {*ink, "--shade", "--pointer", "--rest"}, selectors


def test_small_partitions_have_the_colour_of_their_executor(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    partitions = (10.0, *[0.01] * 6)
    for number in range(8):
        load = OperatorBatchLoad(0, "save", partitions, ("0", *["1"] * 6), 1.9, 1.9)
        history.add_batch(BatchRecord("q", number, 1.7e9 + number, 3_000, 5, None, 2, (load,)))
    blocks = re.findall(r'class="block (\S+) small"><title>6 small', page_of(history))
    assert blocks == [executor_colours(history.batches)["1"]]


def test_a_line_that_would_be_flat_is_a_sentence(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    for number in range(8):
        load = OperatorBatchLoad(0, "save", (1.0, 2.0), ("0", "1"), 1.333, 1.333)
        history.add_batch(BatchRecord("q", number, 1.7e9 + number, 3_000, 5, 70.0, 2, (load,)))
    text = read_text(page_of(history))
    for sentence in ("Every batch read 5 rows.", "The backlog was always 70 rows.",
                     "There were always 2 executors.", "imbalance 1.33, bound 1.33"):  # fmt: skip
        assert sentence in text
    assert "1 is perfect" not in text
    assert "input rows in a batch" not in text
    load = OperatorBatchLoad(0, "save", (2.0, 1.9), ("0", "1"), 1.026, 1.026)
    history.add_batch(BatchRecord("q", 8, 1.7e9 + 8, 3_000, 6, 71.0, 2, (load,)))
    text = read_text(page_of(history))
    for drawn in ("1 is perfect", "input rows in a batch", "backlog: rows that wait"):
        assert drawn in text


def test_a_run_without_rows_has_no_tile_that_says_none(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    for number in range(3):
        history.add_batch(BatchRecord("q", number, 1.7e9 + number, 3_000, 0, None, 2, ()))
    page = page_of(history)
    assert 'class="tile"' not in page
    history.add_batch(BatchRecord("q", 3, 1.7e9 + 3, 3_000, 7, None, 2, ()))
    assert re.findall(r'<div class="figure">(.*?)</div>', page_of(history)) == ["3 s", "7"]


def going(history: History) -> str:
    """The text of the page of a run that goes on."""
    return " ".join(read_text(render_live_page(history)).split())


def test_from_the_first_second_a_page_says_what_it_waits_for_and_what_comes_next(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    text = going(history)
    assert "Waits for the first micro-batch of a streaming query to finish" in text
    assert "Next decides as soon as loads are measured" in text
    assert "Under way" not in text
    history.add_batch(BatchRecord("q", 0, 1.7e9, 900, 5, None, 2, (), has_state=True))
    assert "Waits for a batch of q whose tasks are measured" in going(history)


def test_a_page_counts_the_batches_that_a_comparison_waits_for(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    move = MoveRecord("q", 0, 0, "0", "1", 1.7e9 + 7.5, "hot", 7, settled_s=1.7e9 + 8.2)
    for number in range(14):
        load = OperatorBatchLoad(0, "save", (1.0, 2.0), ("0", "1"), 1.3, 1.3)
        history.add_batch(BatchRecord("q", number, 1.7e9 + number, 900, 5, None, 2, (load,)))
        if number == 8:
            history.add_move(move)
        if number > 8:
            missing = 5 - (number - 8)
            waits = f"{missing} more batch{'es' if missing > 1 else ''} after the moves of q"
            assert (waits in going(history)) is (missing > 0)
    assert "Waits for the next micro-batch" in going(history)


def test_moves_under_way_are_listed_until_they_end_with_what_each_waits_for(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    load = OperatorBatchLoad(0, "save", (1.0, 2.0), ("0", "1"), 1.3, 1.3)
    history.add_batch(BatchRecord("q", 0, 1.7e9, 900, 5, None, 2, (load,)))
    move = MoveRecord("q", 0, 3, "0", "<b>", 1.7e9, "hot", 0)
    history.add_move(move)
    where = "Under way partition 3 of q, operator 0: executor 0 to <b>; "
    assert f"{where}the first batch on the target restores the state" in going(history)
    history.change_move(move.place, preparing=True)
    assert f"{where}the target loads the state, beside the batches" in going(history)
    history.change_move(move.place, preparing=False, prepared_s=1.5)
    assert f"{where}the target has the state" in going(history)
    for partition in range(4, 15):
        history.add_move(replace(move, partition=partition))
    assert "and 4 more" in going(history)
    for partition in range(3, 15):
        history.settle_move(("q", 0, partition), settled_s=1.7e9 + 1, restore_s=0.1)
    assert "Under way" not in going(history)


def test_a_page_has_the_latest_decision_on_each_operator_and_on_the_executors(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    load = OperatorBatchLoad(0, "save", (1.0, 2.0), ("0", "1"), 1.3, 1.3)
    history.add_batch(BatchRecord("q", 0, 1.7e9, 900, 5, None, 2, (load,)))
    for kind in get_args(DecisionKind):
        history.add_decision(DecisionRecord(1.7e9, "q", 0, kind, f"for {kind}"))
        history.add_decision(DecisionRecord(1.7e9, "", None, kind, f"also {kind}"))
        now = going(history).partition("Where the load was")[0]
        assert re.findall(r"\((for|also) (\w+)\)", now) == [("also", kind), ("for", kind)]
    history.end(1.7e9 + 5)
    assert "Next" not in going(history)


def test_an_application_that_cannot_be_balanced_is_not_waited_for(
    empty_history: Callable[[], History],
) -> None:
    page = render_unbalanced_live_page(empty_history(), ["Spark 3.4 is <too> old."])
    text = read_text(page)
    assert "This application is not balanced" in text
    assert "Spark 3.4 is <too> old." in text
    assert "Waiting" not in text
    assert 'http-equiv="refresh"' in page


def test_a_query_in_real_time_mode_is_shown_as_what_it_is_and_not_measured(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    for number in range(6):
        for query in ("live", "also"):
            record = BatchRecord(query, number, 1000.0, 5000, 10, None, 2, (), has_state=True)
            history.add_batch(replace(record, trigger="real-time"))
    page = page_of(history)
    assert "every query is real-time, and left alone" in page
    assert "no task of a query with state was seen" not in page
    assert "real-time" in [text.strip() for text in outline(page).text]
