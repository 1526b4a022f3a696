from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from simulated_runs import Scenario
from view_records import NOW_S, RUN, decision, move, replay

from balancedstream.live.terminal import LiveView
from balancedstream.record.history import History
from balancedstream.record.records import BatchRecord, OperatorBatchLoad


def frame_of(view: LiveView, width: int, height: int) -> list[str]:
    """Renders what the view shows now on a terminal of this size."""
    console = Console(
        record=True, width=width, height=height, file=io.StringIO(), force_terminal=True
    )
    console.print(view)
    return console.export_text().splitlines()


def batch(number: int = 0, query: str = "delays", executors: int = 2) -> BatchRecord:
    load = OperatorBatchLoad(0, "save", (1.0, 2.0), ("0", "1"), 1.33, 1.33)
    return BatchRecord(query, number, NOW_S - 3.0, 900, 10, None, executors, (load,))


def live_view() -> LiveView:
    return LiveView(RUN, Console(file=io.StringIO(), width=80, height=24), clock=lambda: NOW_S)


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (132, 30), (60, 12), (40, 40)])
@pytest.mark.parametrize(("partitions", "executors"), [(4, 2), (64, 6), (10_000, 1_000)])
def test_a_frame_fits_its_terminal(
    simulate: Callable[..., History],
    scenario: type[Scenario],
    size: tuple[int, int],
    partitions: int,
    executors: int,
) -> None:
    width, height = size
    view = live_view()
    history = simulate(
        scenario(batches=20, partitions=partitions, executors=executors, zipf=0.6),
        scenario(query="a query with a name that is much longer than its column", batches=4),
    )
    replay(history, view)
    for partition in range(30):
        view.on_move(move(partition))
    view.note("executor 3 left: lost")
    lines = frame_of(view, width, height)
    assert len(lines) < height
    assert max(cell_len(line) for line in lines) <= width


def test_a_frame_shows_each_executor_with_its_partitions_and_load(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    view = live_view()
    history = simulate(scenario(batches=12))
    replay(history, view)
    lines = frame_of(view, 100, 24)
    load = history.batches[-1].loads[0]
    for executor, busy_s in load.executor_busy_s().items():
        (line,) = [line for line in lines if line.startswith(f"exec {executor} ")]
        shown = re.search(r"([\d.]+) (s|ms)\b", line)
        assert shown
        shown_s = float(shown[1]) * (1.0 if shown[2] == "s" else 0.001)
        assert shown_s == pytest.approx(busy_s, rel=0.01)
        held = [p for p, e in enumerate(load.partition_executor) if e == executor]
        assert [int(p) for p in re.findall(r"(\d+)[▁▂▃▄▅▆▇█]", line)] == held
    text = "\n".join(lines)
    assert f"{load.imbalance:.2f}/{load.bound:.2f}" in text
    assert "flights.py · 4 executors on 2 cores · 1:30" in text


def test_the_hottest_executor_has_the_longest_bar(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    view = live_view()
    history = simulate(scenario(batches=12))
    replay(history, view)
    busy_s = history.batches[-1].loads[0].executor_busy_s()
    bars = {
        line.split()[1]: line[10:26].count("█")
        for line in frame_of(view, 80, 24)
        if line.startswith("exec ")
    }
    assert max(bars, key=bars.__getitem__) == max(busy_s, key=busy_s.__getitem__)


def test_many_executors_are_the_hottest_and_a_sum_of_the_others(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    view = live_view()
    history = simulate(scenario(batches=3, partitions=300, executors=100))
    replay(history, view)
    lines = frame_of(view, 80, 24)
    shown = [line.split()[1] for line in lines if line.startswith("exec ")]
    busy_s = history.batches[-1].loads[0].executor_busy_s()
    assert shown == sorted(busy_s, key=lambda executor: -busy_s[executor])[: len(shown)]
    assert any(f"{len(busy_s) - len(shown)} other executors: " in line for line in lines)


def test_an_executor_without_partitions_is_counted() -> None:
    view = live_view()
    load = OperatorBatchLoad(0, "save", (1.0,), ("0",), 3.0, 3.0)
    view.on_batch(BatchRecord("delays", 0, NOW_S, 900, 10, None, 3, (load,)))
    assert "2 executors without a partition" in frame_of(view, 80, 24)


def test_a_move_is_shown_with_its_reason_until_it_settles() -> None:
    view = live_view()
    view.on_batch(batch())
    view.on_move(move())
    text = "\n".join(frame_of(view, 80, 24))
    assert "moving      delays, operator 0, for 4 s: 7: 1→3, because 1.58 is above 1.20" in text
    view.on_move(move(settled_s=NOW_S))
    text = "\n".join(frame_of(view, 80, 24))
    assert "moving" not in text
    assert "1 move" in text


def test_moves_are_preparing_until_the_first_is_due() -> None:
    view = live_view()
    view.on_batch(batch())
    view.on_move(move(7, preparing=True))
    view.on_move(move(8, preparing=True))
    assert "preparing   delays, operator 0, for 4 s: 7: 1→3" in "\n".join(frame_of(view, 90, 24))
    view.on_move(move(7, prepared_s=2.0))
    text = "\n".join(frame_of(view, 90, 24))
    assert "moving      delays, operator 0, for 4 s: 7: 1→3" in text
    assert "(1 of 2 preparing)" in text


def test_the_headline_says_how_much_state_was_loaded_ahead() -> None:
    view = live_view()
    view.on_preparation("used", 4_000_000, 1.5)
    view.on_preparation("used", 2_000_000, 0.5)
    assert frame_of(view, 120, 24)[0].endswith("state loaded ahead: 6 MB in 2 s used (2 moves)")


def test_the_reason_of_the_latest_decisions_is_shown_and_repeats_take_no_room() -> None:
    view = live_view()
    view.on_batch(batch())
    view.on_decision(decision("move", moves=3))
    for i in range(10):
        view.on_decision(decision("none", reason=f"imbalance 1.{i} is fine"))
    lines = frame_of(view, 80, 24)
    assert any("reason to move" in line for line in lines)
    (unchanged,) = [line for line in lines if "is fine" in line]
    assert unchanged.endswith("imbalance 1.9 is fine")


def test_before_the_first_batch_the_view_says_that_it_waits() -> None:
    lines = frame_of(live_view(), 80, 24)
    assert lines[0] == "BalancedStream flights.py · 2 cores · 1:30 · 0 moves"
    assert any(line.startswith("waiting     for the first batch of a streaming") for line in lines)


def test_names_cannot_drive_the_terminal_or_rich_markup() -> None:
    view = live_view()
    evil = "\x1b[31m[bold]x[/bold]\nnext"
    load = OperatorBatchLoad(0, evil, (1.0,), ("0",), 1.0, 1.0)
    view.on_batch(BatchRecord(evil, 0, NOW_S, 900, 10, None, 1, (load,)))
    view.on_decision(decision(query=evil, reason=evil))
    view.note(evil)
    lines = frame_of(view, 120, 24)
    assert not [line for line in lines if "\x1b" in line]
    assert sum("[bold]x[/bold] next" in line for line in lines) == 5


def test_queries_are_forgotten_when_there_are_too_many() -> None:
    view = live_view()
    for i in range(500):
        view.on_batch(BatchRecord(f"q{i}", 0, NOW_S, 900, 10, None, 1))
    text = "\n".join(frame_of(view, 80, 24))
    assert "and 97 more" in text


def test_a_decision_is_summed_up_in_a_word_and_not_by_colour_alone() -> None:
    view = live_view()
    view.on_batch(batch())

    def status(**changes: Any) -> str:
        view.on_decision(decision(**changes))
        return next(line for line in frame_of(view, 80, 24) if "delays, operator 0: " in line)

    assert status(imbalance=1.1).startswith("balanced    delays, operator 0: reason to none")
    assert status(imbalance=1.5).startswith("no change   delays, operator 0: reason to none")
    assert status(kind="hold").startswith("waiting     delays, operator 0: reason to hold")
    assert status(kind="limited").startswith("limited     delays, operator 0: reason to")
    advised = status(kind="advise", reason="advise: 2 moves: imbalance 2.00 → 1.00")
    assert advised.startswith("advising    delays, operator 0: advise by policy, else 2 moves: ")
    off = status(kind="hold", reason="off: 2 moves: imbalance 2.00 → 1.00")
    assert off.startswith("measuring   delays, operator 0: off by policy, else 2 moves: imbalance")


def test_the_frame_says_how_long_ago_the_last_batch_finished() -> None:
    view = live_view()
    view.on_batch(batch(7))
    assert frame_of(view, 80, 24)[2] == (
        "last batch  7 of delays finished 3 s ago; the next one runs or waits for rows"
    )


def test_rows_stay_in_place_while_moves_begin_and_end() -> None:
    view = live_view()
    view.on_batch(batch())

    def places() -> dict[str, int]:
        lines = frame_of(view, 80, 24)
        return {line.split()[0]: i for i, line in enumerate(lines) if line} | {
            f"exec {line.split()[1]}": i for i, line in enumerate(lines) if line[:5] == "exec "
        }

    rows = ("query", "exec 0", "exec 1")
    before = [places()[row] for row in rows]
    view.on_decision(decision("none", imbalance=1.0))
    for partition in range(30):
        view.on_move(move(partition))
    assert [places()[row] for row in rows] == before
    view.on_decision(decision("move", reason="a long reason " * 20))
    assert [places()[row] for row in rows] == before


def test_a_partition_that_moves_shows_its_target() -> None:
    view = live_view()
    view.on_batch(batch())
    view.on_move(move(1))
    (line,) = [line for line in frame_of(view, 80, 24) if line.startswith("exec 1")]
    assert line.endswith("1█→3")


def test_long_reasons_take_two_lines_and_none_is_cut_in_two_at_the_top() -> None:
    view = live_view()
    view.on_batch(batch())
    for number in range(30):
        view.on_decision(decision("move", reason=f"({number}) " + "word " * 40))
    lines = frame_of(view, 80, 24)
    log = lines[lines.index(next(line for line in lines if line[10:].startswith("move "))) :]
    assert [line[10:14] for line in log] == ["move", "    "] * (len(log) // 2)
    assert "(29)" in log[-2]
    assert log[-1].endswith("…")


def test_the_last_frame_sums_up_and_leaves_room_for_what_follows() -> None:
    view = live_view()
    for number in range(3):
        view.on_batch(batch(number))
    for number in range(30):
        view.note(f"note {number}")
    view.close()
    lines = frame_of(view, 80, 24)
    assert "ended       3 batches, 30 rows" in lines
    assert len(lines) <= 20


def test_a_query_without_state_has_nothing_to_balance() -> None:
    view = live_view()
    view.on_batch(BatchRecord("delays", 0, NOW_S, 900, 10, None, 2))
    assert "watching    no stateful operator: nothing to balance" in frame_of(view, 80, 24)


def test_a_batch_that_began_before_it_was_watched_does_not_say_that_there_is_no_state() -> None:
    view = live_view()
    view.on_batch(BatchRecord("delays", 0, NOW_S, 900, 10, None, 2, has_state=True))
    assert "watching    no load yet" in frame_of(view, 80, 24)


def test_a_long_operator_name_is_cut_short_and_the_batch_is_not() -> None:
    view = live_view()
    load = OperatorBatchLoad(0, "FlatMapGroupsInPandasWithState", (1.0,), ("0",), 1.0, 1.0)
    view.on_batch(BatchRecord("clicks", 1_234, NOW_S, 900, 10, None, 1, (load,)))
    (title,) = [line for line in frame_of(view, 80, 24) if "load of" in line]
    assert title.startswith("clicks, operator 0 FlatMapGroups")
    assert title.endswith("…: load of 1 partition in batch 1,234")
    assert cell_len(title) <= 80


def test_a_second_view_on_a_terminal_takes_it_over() -> None:
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    first, second = (LiveView(RUN, console, redirect=False) for _ in range(2))
    first.note("of the first")
    second.note("of the second")
    second.close()
    third = LiveView(RUN, console, redirect=False)
    third.close()
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("\x1b[?25h") == 3, "the cursor is back each time"
