from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
from rich.cells import cell_len
from rich.console import Console

from balancedstream.live import open_view
from balancedstream.live.plain import PlainView
from balancedstream.live.terminal import LiveView
from balancedstream.record.history import History
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    MoveRecord,
    OperatorBatchLoad,
    RunInfo,
    ScaleRecord,
)
from balancedstream.record.spectators import Spectator

RUN = RunInfo("jobs/flights.py", 1_700_000_000.0, 2, "4.3.0", "3.11.7")
NOW_S = RUN.started_s + 90.0


def replay(history: History, view: Spectator, *, until_s: float = float("inf")) -> None:
    """Tells a view what the controller would have told it."""
    events: list[tuple[float, int, object]] = []
    events += [(record.finished_s, 0, record) for record in history.batches]
    events += [(record.at_s, 3, record) for record in history.decisions]
    events += [(record.at_s, 4, record) for record in history.scales]
    for move in history.moves:
        events.append((move.decided_s, 2, replace(move, settled_s=None, restore_s=None)))
        if move.settled_s is not None:
            events.append((move.settled_s, 1, move))
    for at_s, _, record in sorted(events, key=lambda event: event[:2]):
        if at_s > until_s:
            break
        match record:
            case BatchRecord():
                view.on_batch(record)
            case MoveRecord():
                view.on_move(record)
            case DecisionRecord():
                view.on_decision(record)
            case ScaleRecord():
                view.on_scale(record)


def frame_of(view: LiveView, width: int, height: int) -> list[str]:
    """Renders what the view shows now on a terminal of this size."""
    console = Console(
        record=True, width=width, height=height, file=io.StringIO(), force_terminal=True
    )
    console.print(view)
    return console.export_text().splitlines()


def live_view() -> LiveView:
    return LiveView(RUN, Console(file=io.StringIO(), width=80, height=24), clock=lambda: NOW_S)


def decision(kind: str = "none", at_s: float = NOW_S, **changes) -> DecisionRecord:
    return replace(
        DecisionRecord(at_s, "delays", 0, kind, f"reason to {kind}"),  # type: ignore[arg-type]
        **changes,
    )


def move(partition: int = 7, **changes) -> MoveRecord:
    return replace(
        MoveRecord("delays", 0, partition, "1", "3", NOW_S - 4.0, "1.58 is above 1.20", 12),
        **changes,
    )


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (132, 30), (60, 12), (40, 40)])
@pytest.mark.parametrize(("partitions", "executors"), [(4, 2), (64, 6), (10_000, 1_000)])
def test_a_frame_fits_its_terminal(simulate, scenario, size, partitions, executors):
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


def test_a_frame_shows_each_executor_with_its_partitions_and_load(simulate, scenario):
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


def test_the_hottest_executor_has_the_longest_bar(simulate, scenario):
    view = live_view()
    history = simulate(scenario(batches=12))
    replay(history, view)
    busy_s = history.batches[-1].loads[0].executor_busy_s()
    bars = {
        line.split()[1]: line[10:26].count("█")
        for line in frame_of(view, 80, 24)
        if line.startswith("exec")
    }
    assert max(bars, key=bars.__getitem__) == max(busy_s, key=busy_s.__getitem__)


def test_many_executors_are_the_hottest_and_a_sum_of_the_others(simulate, scenario):
    view = live_view()
    history = simulate(scenario(batches=3, partitions=300, executors=100))
    replay(history, view)
    lines = frame_of(view, 80, 24)
    shown = [line.split()[1] for line in lines if line.startswith("exec")]
    busy_s = history.batches[-1].loads[0].executor_busy_s()
    assert shown == sorted(busy_s, key=lambda executor: -busy_s[executor])[: len(shown)]
    assert any(f"{len(busy_s) - len(shown)} other executors: " in line for line in lines)


def test_an_executor_without_partitions_is_counted():
    view = live_view()
    load = OperatorBatchLoad(0, "save", (1.0,), ("0",), 3.0, 3.0)
    view.on_batch(BatchRecord("delays", 0, NOW_S, 900, 10, None, 3, (load,)))
    assert "2 executors without a partition" in frame_of(view, 80, 24)


def test_a_move_is_shown_with_its_reason_until_it_settles():
    view = live_view()
    view.on_move(move())
    text = "\n".join(frame_of(view, 80, 24))
    assert "moving delays, operator 0, for 4 s: 7: 1→3" in text
    assert "because 1.58 is above 1.20" in text
    view.on_move(move(settled_s=NOW_S))
    text = "\n".join(frame_of(view, 80, 24))
    assert "moving" not in text
    assert "1 move" in text


def test_the_reason_of_the_latest_decisions_is_shown_and_repeats_take_no_room():
    view = live_view()
    view.on_decision(decision("move", moves=3))
    for i in range(10):
        view.on_decision(decision("none", reason=f"imbalance 1.{i} is fine"))
    lines = frame_of(view, 80, 24)
    assert any("reason to move" in line for line in lines)
    (unchanged,) = [line for line in lines if "is fine" in line]
    assert unchanged.endswith("imbalance 1.9 is fine")


def test_before_the_first_batch_the_view_says_that_it_waits():
    assert "waiting for the first batch" in frame_of(live_view(), 80, 24)


def test_names_cannot_drive_the_terminal_or_rich_markup():
    view = live_view()
    evil = "\x1b[31m[bold]x[/bold]\nnext"
    load = OperatorBatchLoad(0, evil, (1.0,), ("0",), 1.0, 1.0)
    view.on_batch(BatchRecord(evil, 0, NOW_S, 900, 10, None, 1, (load,)))
    view.on_decision(decision(query=evil, reason=evil))
    view.note(evil)
    lines = frame_of(view, 120, 24)
    assert not [line for line in lines if "\x1b" in line]
    assert sum("[bold]x[/bold] next" in line for line in lines) == 4


def test_queries_are_forgotten_when_there_are_too_many():
    view = live_view()
    for i in range(500):
        view.on_batch(BatchRecord(f"q{i}", 0, NOW_S, 900, 10, None, 1))
    text = "\n".join(frame_of(view, 80, 24))
    assert "and 97 more" in text


def plain_lines(tell) -> list[str]:
    file = io.StringIO()
    view = PlainView(RUN, file, clock=lambda: NOW_S)
    tell(view)
    return file.getvalue().splitlines()


def test_plain_lines_tell_a_run_from_start_to_end(simulate, scenario):
    history = simulate(scenario(shift_at=30, grow_at=45))

    def tell(view: PlainView) -> None:
        replay(history, view)
        view.note("a note")
        view.close()
        view.close()
        view.note("too late")

    lines = plain_lines(tell)
    assert lines[0] == (
        "2023-11-14T22:13:20Z balancing jobs/flights.py: 2 cores, Spark 4.3.0, Python 3.11.7"
    )
    assert lines[1].endswith(
        "delays: first batch on 4 executors: operator 0 (stateStoreSave) with 16 state partitions"
    )
    assert lines[-2].endswith(" a note")
    assert re.search(
        rf"ended after 1 min 30 s: 60 batches, [\d,]+ rows, {history.totals.moves} moves, "
        r"1 scaling$",
        lines[-1],
    )
    moving = [line for line in lines if re.search(r"operator 0: .* is hottest", line)]
    assert len(moving) == sum(d.kind == "move" for d in history.decisions)
    assert sum("scale from 4 to 6 executors (capacity): utilization" in line for line in lines) == 1
    assert len(lines) < len(history.decisions)


def test_a_decision_that_changes_nothing_is_a_line_once_in_half_an_hour():
    def tell(view: PlainView) -> None:
        for minute in range(65):
            view.on_decision(decision("none", NOW_S + 60.0 * minute))
            view.on_decision(decision("hold", NOW_S + 60.0 * minute))

    lines = plain_lines(tell)
    assert sum("reason to none" in line for line in lines) == 3
    assert sum("reason to hold" in line for line in lines) == 3


def test_what_follows_an_action_is_a_line_again():
    def tell(view: PlainView) -> None:
        view.on_decision(decision("none"))
        view.on_decision(decision("move", moves=1))
        view.on_decision(decision("none"))
        view.on_decision(decision("none"))

    assert [line.split(": ")[1] for line in plain_lines(tell)[1:]] == [
        "reason to none", "reason to move", "reason to none",
    ]  # fmt: skip


def test_moves_are_one_line_when_the_last_has_ended():
    def tell(view: PlainView) -> None:
        view.on_move(move(1))
        view.on_move(move(2))
        view.on_move(move(3))
        view.on_move(move(1, settled_s=NOW_S, restore_s=0.2))
        view.on_move(move(2, settled_s=NOW_S + 2, restore_s=0.9))
        view.on_move(move(3, dropped_s=NOW_S + 1, dropped_reason="executor 3 left"))

    assert plain_lines(tell)[1:] == [
        "2023-11-14T22:14:52Z delays, operator 0: 2 moves settled, state loaded in at most "
        "900 ms, 1 dropped (executor 3 left)"
    ]


def test_each_event_is_one_line_whatever_its_text():
    def tell(view: PlainView) -> None:
        view.on_decision(decision("none", query="a\nb", reason="c\r\nd\x1b[2J"))
        view.note("e\nf")

    lines = plain_lines(tell)
    assert len(lines) == 3
    assert "\x1b" not in "".join(lines)


class Gone(io.StringIO):
    """A pipe whose reader went away after the first line."""

    def write(self, text: str) -> int:
        if self.getvalue():
            raise BrokenPipeError
        return super().write(text)


def test_a_view_whose_reader_is_gone_falls_silent():
    view = PlainView(RUN, Gone(), clock=lambda: NOW_S)
    view.note("nobody reads this")
    view.on_decision(decision("move", moves=1))
    view.close()


def test_output_that_is_no_terminal_gets_plain_lines(capsys):
    view = open_view(RUN)
    view.close()
    assert isinstance(view, PlainView)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "balancing jobs/flights.py" in captured.err


PROGRAM = """
import sys
from balancedstream.record.records import BatchRecord, OperatorBatchLoad, RunInfo
from balancedstream.live import open_view

view = open_view(RunInfo("flights.py", 0.0, 2, "4.3.0", "3.11.7"))
for number in range(5):
    load = OperatorBatchLoad(0, "save", (1.0, 2.0), ("0", "1"), 1.33, 1.33)
    view.on_batch(BatchRecord("delays", number, float(number), 900, 10, None, 2, (load,)))
    print(f"printed by the job: {number}")
    print(f"warned by the job: {number}", file=sys.stderr)
if "close" in sys.argv:
    view.close()
    view.close()
    print(type(view).__name__)
"""


def run_on_terminal(
    *arguments: str, stdout: IO[bytes] | None = None, terminal: str = "xterm"
) -> str:
    """Runs the program on a pseudo-terminal of 80 x 24 and returns all that it wrote there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=theirs,
        stdout=theirs if stdout is None else stdout,
        stderr=theirs,
        env=os.environ
        | {
            "PYTHONPATH": str(Path(__file__).parents[3] / "runtime"),
            "PYTHONUTF8": "1",
            "TERM": terminal,
            "COLUMNS": "80",
            "LINES": "24",
        },
    )
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 65_536):
            written += chunk
    except OSError:  # Linux's way to say that the other side is closed
        pass
    os.close(ours)
    assert process.wait() == 0
    return written.decode()


def cursor_is_back(written: str) -> bool:
    return written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")


def test_on_a_terminal_the_view_is_live_and_the_jobs_own_lines_stay_whole():
    written = run_on_terminal("close")
    for number in range(5):
        assert re.search(rf"printed by the job: {number}\r?\n", written)
        assert re.search(rf"warned by the job: {number}\r?\n", written)
    assert "delays, operator 0 save, 2 partitions: load in batch 4" in written
    assert written.rstrip().endswith("LiveView")
    assert cursor_is_back(written)


def test_a_job_that_ends_without_closing_its_view_gives_the_terminal_back():
    written = run_on_terminal()
    assert "load in batch 4" in written
    assert cursor_is_back(written)


def test_output_that_the_user_sent_to_a_file_goes_there_and_nothing_else_does(tmp_path):
    with (tmp_path / "out").open("wb") as file:
        written = run_on_terminal("close", stdout=file)
    assert (tmp_path / "out").read_text().splitlines() == [
        *(f"printed by the job: {number}" for number in range(5)), "LiveView",
    ]  # fmt: skip
    assert "load in batch 4" in written


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines():
    assert run_on_terminal("close", terminal="dumb").rstrip().endswith("PlainView")
