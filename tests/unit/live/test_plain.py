from __future__ import annotations

import io
import re
from collections.abc import Callable

from simulated_runs import Scenario
from view_records import NOW_S, RUN, decision, move, replay

from balancedstream.live.plain import PlainView
from balancedstream.record.history import History
from balancedstream.record.records import BatchRecord, OperatorBatchLoad


def plain_lines(tell: Callable[[PlainView], None]) -> list[str]:
    file = io.StringIO()
    view = PlainView(RUN, file, clock=lambda: NOW_S)
    tell(view)
    return file.getvalue().splitlines()


def test_plain_lines_tell_a_run_from_start_to_end(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    history = simulate(scenario(shift_at=30, grow_at=45))

    def tell(view: PlainView) -> None:
        replay(history, view)
        view.note("a note")
        view.on_preparation("used", 206_000_000, 3.5)
        view.on_preparation("wasted", 1_000_000, 0.25)
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
        r"1 scale action, state loaded ahead: 206 MB in 3.5 s used \(1 move\), 1 MB in 250 ms "
        r"wasted \(1 move\)$",
        lines[-1],
    )
    moving = [line for line in lines if re.search(r"operator 0: .* is hottest", line)]
    assert len(moving) == sum(d.kind == "move" for d in history.decisions)
    assert sum("scale from 4 to 6 executors (capacity): utilization" in line for line in lines) == 1
    assert len(lines) < len(history.decisions)


def test_a_decision_that_changes_nothing_is_a_line_once_in_half_an_hour() -> None:
    def tell(view: PlainView) -> None:
        for minute in range(65):
            view.on_decision(decision("none", NOW_S + 60.0 * minute))
            view.on_decision(decision("hold", NOW_S + 60.0 * minute))

    lines = plain_lines(tell)
    assert sum("reason to none" in line for line in lines) == 3
    assert sum("reason to hold" in line for line in lines) == 3


def test_what_follows_an_action_is_a_line_again() -> None:
    def tell(view: PlainView) -> None:
        view.on_decision(decision("none"))
        view.on_decision(decision("move", moves=1))
        view.on_decision(decision("none"))
        view.on_decision(decision("none"))

    assert [line.split(": ")[1] for line in plain_lines(tell)[1:]] == [
        "reason to none", "reason to move", "reason to none",
    ]  # fmt: skip


def test_moves_are_one_line_when_the_last_has_ended() -> None:
    def tell(view: PlainView) -> None:
        view.on_move(move(1))
        view.on_move(move(2))
        view.on_move(move(3))
        view.on_move(move(1, settled_s=NOW_S, restore_s=0.2))
        view.on_move(move(2, settled_s=NOW_S + 2, restore_s=0.9))
        view.on_move(move(3, dropped_s=NOW_S + 1, dropped_reason="executor 3 left"))

    assert plain_lines(tell)[1:] == [
        "2023-11-14T22:14:52Z delays, operator 0: 2 moves settled, state restored in at most "
        "900 ms, 1 dropped (executor 3 left)"
    ]


def test_moves_that_were_prepared_say_how_long_that_took() -> None:
    def tell(view: PlainView) -> None:
        view.on_move(move(1, preparing=True))
        view.on_move(move(1, prepared_s=2.5))
        view.on_move(move(1, prepared_s=2.5, settled_s=NOW_S, restore_s=0.0))

    (line,) = plain_lines(tell)[1:]
    assert "1 move settled, state loaded ahead in at most 2.5 s, state restored in" in line


def test_moves_that_are_all_dropped_are_not_said_to_settle() -> None:
    def tell(view: PlainView) -> None:
        view.on_move(move(1))
        view.on_move(move(2))
        view.on_move(move(1, dropped_s=NOW_S, dropped_reason="the query ended"))
        view.on_move(move(2, dropped_s=NOW_S, dropped_reason="the query ended"))

    (line,) = plain_lines(tell)[1:]
    assert line.endswith(" delays, operator 0: 2 moves dropped (the query ended)")


def test_each_event_is_one_line_whatever_its_text() -> None:
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


def test_a_view_whose_reader_is_gone_falls_silent() -> None:
    view = PlainView(RUN, Gone(), clock=lambda: NOW_S)
    view.note("nobody reads this")
    view.on_decision(decision("move", moves=1))
    view.close()


def test_a_query_is_introduced_by_the_first_batch_that_was_measured() -> None:
    load = OperatorBatchLoad(0, "stateStoreSave", (1.0, 2.0), ("0", "1"), 1.33, 1.33)
    seen = BatchRecord("counts", 7, NOW_S, 900, 10, None, 3, (load,), has_state=True)
    joined = BatchRecord("counts", 6, NOW_S, 900, 10, None, 3, has_state=True)
    stateless = BatchRecord("copy", 1, NOW_S, 900, 10, None, 3)
    live = BatchRecord("live", 1, NOW_S, 900, 10, None, 3, has_state=True, trigger="real-time")

    def tell(view: PlainView) -> None:
        for record in (joined, seen, seen, stateless, stateless, live, live):
            view.on_batch(record)

    lines = [line.partition("Z ")[2] for line in plain_lines(tell)[1:]]
    assert lines == [
        "counts: first batch on 3 executors: operator 0 (stateStoreSave) with 2 state partitions",
        "copy: first batch on 3 executors: no stateful operator",
        "live: first batch on 3 executors: real-time, not measured",
    ]
