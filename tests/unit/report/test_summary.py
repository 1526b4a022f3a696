from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from simulated_runs import Scenario

from balancedstream.errors import InvalidInputError
from balancedstream.record.history import History
from balancedstream.record.history_lines import read_history, write_history
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    KeyMoveRecord,
    MoveRecord,
    OperatorBatchLoad,
    RestartRecord,
    ScaleRecord,
)
from balancedstream.report import (
    describe_outcome,
    prepare_directory,
    publish_report,
    render_json,
    summarize,
    write_report,
)
from balancedstream.report.figures import (
    CostSummary,
    OperatorSummary,
    QuerySummary,
    RunSummary,
    Window,
)
from balancedstream.report.page import render_page
from balancedstream.report.windows import MIN_AFTER_BATCHES, MIN_BEFORE_BATCHES

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "report.md"


def run_of(history: History, durations_ms: list[int], **changes: Any) -> None:
    """Adds batches whose imbalance is their duration in seconds."""
    for number, duration_ms in enumerate(durations_ms):
        imbalance = duration_ms / 1_000
        record = BatchRecord(
            "q", number, 1_700_000_000.0 + number, duration_ms, 100, None, 2,
            (OperatorBatchLoad(0, "save", (1.0, 2.0), ("0", "1"), imbalance, 1.25),),
        )  # fmt: skip
        history.add_batch(replace(record, **changes))


def move_after(number: int) -> MoveRecord:
    return MoveRecord(
        "q", 0, 1, "0", "1", 1_700_000_000.5 + number, "hot", number,
        settled_s=1_700_000_001.0 + number,
    )  # fmt: skip


def test_the_figures_are_medians_and_percentiles_over_their_windows(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    before_ms, after_ms = [6_000, 8_000, 7_000, 6_500, 7_500], [2_000, 4_000, 3_000, 2_500, 3_500]
    run_of(history, [90_000, *before_ms, 9_999, *after_ms])
    history.add_move(move_after(5))
    summary = summarize(history)
    assert summary.imbalance_before == 7.0
    assert summary.imbalance_after == 3.0
    assert summary.bound == 1.25
    assert summary.median_batch_ms_before == 7_000
    assert summary.median_batch_ms_after == 3_000
    assert summary.p99_batch_ms_before == 8_000
    assert summary.p99_batch_ms_after == 4_000
    query = summary.queries[0]
    assert query.before == Window(1, 5, 5, 100, 2)
    assert query.after == Window(7, 11, 5, 100, 2)
    assert (query.batches_before, query.batches_after) == (5, 5)


def test_if_nothing_moved_both_sides_are_equal(empty_history: Callable[[], History]) -> None:
    history = empty_history()
    run_of(history, [90_000, 3_000, 4_000, 5_000])
    summary = summarize(history)
    assert summary.moves == 0
    assert summary.imbalance_before == summary.imbalance_after == 4.0
    assert summary.median_batch_ms_before == summary.median_batch_ms_after == 4_000


def test_a_figure_that_cannot_be_had_is_null_and_a_note_says_why(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    run_of(history, [90_000, 3_000, 4_000])
    history.add_move(replace(move_after(0), settled_s=None))
    summary = summarize(history)
    assert summary.imbalance_before is None
    assert summary.median_batch_ms_after is None
    assert summary.notes == (
        "q: too few batches before the first move (0, at least 5 are needed).",
        "q: too few batches after the moves (0, at least 5 are needed).",
    )


def sides_of(summary: RunSummary) -> tuple[list[float | None], list[float | None]]:
    """All figures before, and all figures after, of a run with one query and operator."""
    (query,) = summary.queries
    (operator,) = query.operators
    sides: tuple[list[float | None], list[float | None]] = ([], [])
    for side, name in zip(sides, ("before", "after"), strict=True):
        for figures in (summary, query):
            side += [
                getattr(figures, f"{kind}_{name}")
                for kind in ("imbalance", "median_batch_ms", "p99_batch_ms")
            ]
        side.append(getattr(operator, f"imbalance_{name}"))
    return sides


@pytest.mark.parametrize("warm", [1, MIN_BEFORE_BATCHES - 1, MIN_BEFORE_BATCHES])
def test_fewer_than_five_warm_batches_before_the_first_move_give_no_figure(
    empty_history: Callable[[], History], warm: int
) -> None:
    history = empty_history()
    run_of(history, [90_000, *[6_000] * warm, 9_999, *[3_000] * 8])
    history.add_move(move_after(warm))
    summary = summarize(history)
    before, after = sides_of(summary)
    (query,) = summary.queries
    assert (query.batches_before, query.batches_after) == (warm, 8)
    assert None not in after
    enough = warm == MIN_BEFORE_BATCHES
    assert (None not in before) is enough
    assert (before == [None] * 7) is not enough
    assert (query.before is not None) is enough
    note = f"q: too few batches before the first move ({warm}, at least 5 are needed)."
    assert (note in summary.notes) is not enough


@pytest.mark.parametrize("quiet", [1, MIN_AFTER_BATCHES - 1, MIN_AFTER_BATCHES])
def test_fewer_than_five_batches_after_the_moves_give_no_figure(
    empty_history: Callable[[], History], quiet: int
) -> None:
    history = empty_history()
    run_of(history, [90_000, *[6_000] * 8, 9_999, *[3_000] * quiet])
    history.add_move(move_after(8))
    summary = summarize(history)
    before, after = sides_of(summary)
    (query,) = summary.queries
    assert (query.batches_before, query.batches_after) == (8, quiet)
    assert None not in before
    enough = quiet == MIN_AFTER_BATCHES
    assert (None not in after) is enough
    assert (after == [None] * 7) is not enough
    assert (query.after is not None) is enough
    note = f"q: too few batches after the moves ({quiet}, at least 5 are needed)."
    assert (note in summary.notes) is not enough


def test_batches_without_rows_do_not_make_enough(empty_history: Callable[[], History]) -> None:
    history = empty_history()
    run_of(history, [90_000, *[6_000] * 4])
    history.add_batch(replace(history.batches[-1], batch=5, finished_s=1_700_000_005.0,
                              input_rows=0))  # fmt: skip
    history.add_move(move_after(5))
    (query,) = summarize(history).queries
    assert (query.batches_before, query.before) == (4, None)


def test_a_run_says_its_outcome_in_one_sentence_or_why_it_cannot(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    run_of(history, [90_000, *[6_000] * 5, 9_999, *[3_000] * 5])
    history.add_move(move_after(5))
    assert describe_outcome(summarize(history)) == (
        "Batches take 50 % less time: the median went from 6 s to 3 s. The hottest executor's "
        "load went from 6.00 to 3.00 times the mean. 1 state partition move, without a restart."
    )
    history = empty_history()
    run_of(history, [90_000, *[6_000] * 2, 9_999, *[3_000] * 4])
    history.add_move(move_after(2))
    assert describe_outcome(summarize(history)) == (
        "What 1 state partition move brought cannot be said yet: too few batches before the first "
        "move (2, at least 5 are needed); too few batches after the moves (4, at least 5 are "
        "needed)."
    )


def test_a_run_in_which_nothing_changed_says_so_and_why(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    run_of(history, [90_000, *[6_000] * 12])
    reason = "imbalance 1.05 is within 1.10"
    history.add_decision(DecisionRecord(1.7e9, "q", 0, "none", reason))
    history.add_decision(DecisionRecord(1.7e9, "", None, "none", "executors are busy for 0.5"))
    history.end(1.7e9 + 20)
    said = describe_outcome(summarize(history))
    assert said.startswith("Nothing moved: the imbalance was 6.00")
    assert said.endswith(f"The last decision says why: {reason}.")
    history = empty_history()
    run_of(history, [90_000, *[6_000] * 12])
    history.add_move(move_after(5))
    assert describe_outcome(summarize(history)) == (
        "Batches take as long as before: 6 s in the median. The hottest executor's load stayed at "
        "6.00 times the mean. 1 state partition move, without a restart."
    )


def test_a_run_costs_its_executor_hours_at_the_price_of_its_policy(
    simulate: Callable[..., History], scenario: type[Scenario], empty_history: Callable[[], History]
) -> None:
    assert summarize(simulate(scenario())).cost is None
    priced: dict[str, str | int | float | bool | None]
    priced = {"cost.executor_hour": 0.5, "cost.currency": "EUR", "scaling.max_executors": 6}
    history = simulate(
        scenario(grow_at=30),
        scenario(query="other", batches=30),
        history=History(replace(empty_history().run, settings=priced)),
    )
    cost = summarize(history).cost
    assert cost is not None
    assert 4.0 < cost.executors < 6.0
    took_h = (max(b.finished_s for b in history.batches) - history.run.started_s) / 3_600
    assert cost.executor_hours == pytest.approx(cost.executors * took_h)
    assert cost.spent_a_day == pytest.approx(cost.executors * 12.0)
    assert cost.saved_a_day == pytest.approx((6 - cost.executors) * 12.0)
    read = read_history(write_history(history))
    assert summarize(read).cost == cost
    page = render_page(history, summarize(history))
    assert "Cost a day" in page
    assert "EUR less than a fixed size of 6 executors; " in page
    fixed = {**priced, "scaling.max_executors": 0}
    alone = simulate(scenario(), history=History(replace(history.run, settings=fixed)))
    cost = summarize(alone).cost
    assert cost is not None
    assert cost.spent_a_day == pytest.approx(48.0)
    assert cost.saved_a_day is None


def test_counts_are_sums_and_figures_are_the_busiest_querys(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    history = simulate(
        scenario(query="light", rows=600, batches=30), scenario(query="heavy", seed=5)
    )
    summary = summarize(history)
    light, heavy = sorted(summary.queries, key=lambda query: query.busy_s)
    assert summary.headline_query == heavy.query == "heavy"
    assert summary.imbalance_before == heavy.imbalance_before
    assert summary.median_batch_ms_after == heavy.median_batch_ms_after
    assert summary.rows == light.rows + heavy.rows == history.totals.rows
    assert summary.batches == 90
    assert summary.moves == light.moves + heavy.moves


def test_the_busiest_operator_stands_for_the_query(empty_history: Callable[[], History]) -> None:
    history = empty_history()
    loads = (
        OperatorBatchLoad(0, "light", (0.1, 0.1), ("0", "1"), 1.0, 1.0),
        OperatorBatchLoad(3, "heavy", (5.0, 1.0), ("0", "1"), 1.67, 1.67),
    )
    run_of(history, [1_000] * 5, loads=loads)
    query = summarize(history).queries[0]
    assert query.operator == 3
    assert query.imbalance_before == 1.67
    assert [operator.name for operator in query.operators] == ["heavy", "light"]


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"input_rows": 150}, r"batches after hold 150 rows, batches before 100 \(\+50 %\)"),
        ({"executors": 3}, "2 executors before, 3 after"),
    ],
)
def test_a_note_warns_where_the_two_sides_do_not_compare(
    empty_history: Callable[[], History], changes: dict[str, Any], warning: str
) -> None:
    history = empty_history()
    run_of(history, [1_000] * 6)
    history.add_move(move_after(5))
    for number in range(6, 12):
        history.add_batch(
            replace(
                history.batches[-1], batch=number, finished_s=1_700_000_000.0 + number, **changes
            )
        )
    notes = summarize(history, ["from the caller"]).notes
    assert notes[0] == "from the caller"
    assert re.search(warning, " ".join(notes))


def test_an_even_comparison_gets_no_note(empty_history: Callable[[], History]) -> None:
    history = empty_history()
    loads = (OperatorBatchLoad(0, "save", (1.0, 1.0), ("0", "1"), 1.1, 1.0),)
    run_of(history, [1_000] * 12, loads=loads)
    history.add_move(move_after(5))
    assert summarize(history).notes == ()


def test_lists_are_bounded_and_counts_are_not(empty_history: Callable[[], History]) -> None:
    history = empty_history()
    run_of(history, [1_000] * 3)
    for i in range(1_500):
        history.add_move(replace(move_after(1), partition=i))
        history.add_decision(DecisionRecord(float(i), "q", 0, "none", "fine"))
    summary = summarize(history)
    assert (summary.moves, summary.decisions) == (1_500, 1_500)
    assert [move.partition for move in summary.move_list] == list(range(500, 1_500))
    assert [decision.at_s for decision in summary.decision_list] == [float(i) for i in
        range(1_400, 1_500)]  # fmt: skip


def test_an_empty_run_has_a_summary(empty_history: Callable[[], History]) -> None:
    summary = summarize(empty_history())
    assert (summary.batches, summary.executors, summary.headline_query) == (0, None, None)
    assert summary.imbalance_before is None


def test_the_json_is_strict_and_has_what_others_rely_on(
    empty_history: Callable[[], History],
) -> None:
    history = empty_history()
    loads = (OperatorBatchLoad(0, "save", (0.0, 0.0), ("0", "1"), float("nan"), float("inf")),)
    run_of(history, [1_000] * 4, loads=loads)
    history.add_decision(DecisionRecord(1.0, "q", 0, "hold", "why", float("inf"), float("nan")))
    text = render_json(summarize(history))

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    document = json.loads(text, parse_constant=refuse)
    assert document["decision_list"][0]["imbalance"] is None
    assert {
        "rows", "batches", "query_restarts", "moves", "scale_actions", "imbalance_before",
        "imbalance_after", "bound", "median_batch_ms_before", "median_batch_ms_after",
    } <= set(document)  # fmt: skip


@pytest.mark.parametrize(
    "described",
    [
        RunSummary, CostSummary, QuerySummary, Window, OperatorSummary,
        MoveRecord, KeyMoveRecord, ScaleRecord, DecisionRecord, RestartRecord,
    ],
)  # fmt: skip
def test_the_reference_lists_each_field_of_the_report_and_no_other(described: type[Any]) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    section = re.search(rf"^### {described.__name__}\n(.*?)(?=^##|\Z)", text, re.M | re.S)
    assert section, described.__name__
    documented = re.findall(r"^\| `(\w+)` \|", section[1], re.M)
    assert documented == [field.name for field in fields(described)]


def test_a_report_is_three_files_that_replace_earlier_ones(
    simulate: Callable[..., History], scenario: type[Scenario], tmp_path: Path
) -> None:
    directory = prepare_directory(tmp_path / "new" / "report")
    for seed in (1, 2):
        history = simulate(scenario(seed=seed))
        summary = write_report(history, directory, ["a note"])
    assert sorted(path.name for path in directory.iterdir()) == [
        "history.jsonl", "report.html", "report.json",
    ]  # fmt: skip
    assert (directory / "report.json").read_text(encoding="utf-8") == render_json(summary)


def test_a_report_can_be_made_again_from_its_history(
    simulate: Callable[..., History], scenario: type[Scenario], tmp_path: Path
) -> None:
    first, again = prepare_directory(tmp_path / "1"), prepare_directory(tmp_path / "2")
    write_report(simulate(scenario(shift_at=30), scenario(query="b", seed=3)), first)
    with (first / "history.jsonl").open(encoding="utf-8") as lines:
        write_report(read_history(lines), again)
    for name in ("report.json", "report.html", "history.jsonl"):
        assert (first / name).read_bytes() == (again / name).read_bytes()


def test_a_directory_that_cannot_be_written_to_is_refused_before_the_run(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(InvalidInputError, match=r"^report: .*file.* cannot be written to"):
        prepare_directory(taken)
    assert prepare_directory(tmp_path) == tmp_path
    assert list(tmp_path.iterdir()) == [taken]


def test_a_report_makes_its_folder(
    simulate: Callable[..., History], scenario: type[Scenario], tmp_path: Path
) -> None:
    write_report(simulate(scenario(batches=3)), tmp_path / "runs" / "again")
    assert (tmp_path / "runs" / "again" / "report.html").is_file()


def test_the_last_lines_of_a_run_without_figures_agree_that_there_is_a_report(
    empty_history: Callable[[], History], tmp_path: Path
) -> None:
    run = empty_history().run
    said: list[str] = []
    publish_report(History(replace(run, ended_s=run.started_s + 1.0)), tmp_path, said.append)
    assert said == [
        "No micro-batch finished in this run, so there are no figures.",
        f"report: {tmp_path / 'report.html'}",
    ]
