"""The frame of the live view, from top to bottom: run, what goes on, queries, loads, log."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from balancedstream.core.printing import printable
from balancedstream.live.loads import HOT, draw_operator, heat
from balancedstream.live.state import QueryState, RunState, describe_briefly
from balancedstream.record.records import BatchRecord, DecisionRecord
from balancedstream.record.wording import (
    NOTHING,
    crop,
    describe_preparations,
    format_count,
    format_duration,
    format_elapsed,
    format_ratio,
    format_short_count,
    format_short_duration,
    plural,
)

MIN_HEIGHT = 12
LISTED_MOVES = 12
LINES_AFTER = 3
_WORD = 12
_COLUMNS = (
    ("batch", 9),
    ("last", 9),
    ("median", 9),
    ("rows", 11),
    ("backlog", 11),
    ("imbalance", 10),
)
_WORDS = {
    "move": ("moved", "bold magenta"),
    "scale": ("scaling", "bold cyan"),
    "advise": ("advising", "bold yellow"),
    "hold": ("waiting", "bold yellow"),
    "limited": ("limited", "bold yellow"),
}
_MODES = {"off": ("measuring", "bold yellow"), "advise": ("advising", "bold yellow")}
_ENTRY_STYLES = {"move": "bold magenta", "settled": "magenta", "scale": "bold cyan"}


class Frame:
    """Draws the state of a run for a terminal of some size.

    Rows stay where they are while a run goes on: each part takes as many lines as it will need,
    and what comes and goes is in the log at the end.
    """

    def __init__(
        self, state: RunState, now_s: float, console: Console, width: int, height: int
    ) -> None:
        self._state = state
        self._now_s = now_s if state.ended_s is None else state.ended_s
        self._console = console
        self._width = width
        # What follows a run, such as where its report is, leaves its last frame in sight.
        self._height = height if state.ended_s is None else height - LINES_AFTER
        self._roomy = height >= 36
        self._airy = height >= 20

    def lines(self) -> Iterator[Text]:
        """Yields at most `height` lines of at most `width` cells."""
        head = self._set_apart([self._headline()])
        head += self._set_apart(self._status())
        head += self._set_apart(self._query_table())
        room = self._height - len(head)
        loads = self._loads(room - len(self._log(min(room, 12 if self._roomy else 4))))
        for line in (*head, *loads, *self._log(room - len(loads))):
            line.no_wrap = True
            line.truncate(self._width, overflow="ellipsis")
            yield line

    def _set_apart(self, lines: list[Text]) -> list[Text]:
        """Ends a part with an empty line where there is room."""
        return [*lines, Text()] if self._airy and lines else lines

    def _headline(self) -> Text:
        state = self._state
        cores = plural(state.run.cores, "core")
        facts = [
            crop(printable(state.run.app.rsplit("/", 1)[-1]), 24),
            f"{plural(state.latest.executors, 'executor')} on {cores}" if state.latest else cores,
            format_elapsed(self._now_s - state.run.started_s),
            plural(state.moves.begun, "move"),
        ]
        if state.scale_actions:
            facts.append(plural(state.scale_actions, "scale action"))
        if loaded := describe_preparations(state.preparations):
            facts.append(loaded)
        return Text.assemble(("BalancedStream", "bold"), " ", " · ".join(facts))

    def _status(self) -> list[Text]:
        """Says what goes on: with the operators that there is room for, and with the batches."""
        state = self._state
        if state.ended_s is not None:
            totals = f"{plural(state.batches, 'batch')}, {plural(state.rows, 'row')}"
            return self._paragraph("ended", "bold", totals)
        if state.latest is None:
            return self._paragraph(
                "waiting",
                "bold yellow",
                "for the first batch of a streaming query. Spark starts the query and its Python "
                "workers, which takes longer than a batch.",
                2 if self._airy else 1,
            )
        subjects = state.subjects()
        lines = self._paragraph("last batch", "", self._last_batch(state.latest))
        for i, subject in enumerate(subjects[: 6 if self._roomy else 2 if self._airy else 1]):
            word, style, text = self._judge(*subject)
            lines += self._paragraph(
                word, style, text, 2 if i == 0 and self._airy and self._width < 110 else 1
            )
        if not subjects:
            has_state = any(q.latest.loads or q.latest.has_state for q in state.queries())
            text = "no load yet" if has_state else "no stateful operator: nothing to balance"
            lines += self._paragraph("watching", "bold", text)
        return lines

    def _last_batch(self, latest: BatchRecord) -> str:
        age_s = int(max(0.0, self._now_s - latest.finished_s))
        age = f"{age_s} s" if age_s < 60 else format_duration(age_s)
        return (
            f"{latest.batch:,} of {crop(printable(latest.query), 24)} finished {age} ago; "
            "the next one runs or waits for rows"
        )

    def _judge(self, query: str, operator: int | None) -> tuple[str, str, str]:
        """Says what goes on with an operator, or the number of executors: word, style, reason."""
        about = describe_briefly(query, operator) if query else "executors"
        moving = {} if operator is None else self._state.moves.of(query, operator)
        if moving:
            moves = list(moving.values())
            waited_s = max(0.0, self._now_s - moves[0].decided_s)
            listed = ", ".join(
                f"{move.partition}: {printable(move.source) or 'nowhere'}→{printable(move.target)}"
                for move in moves[:LISTED_MOVES]
            )
            more = f" and {len(moves) - LISTED_MOVES} more" if len(moves) > LISTED_MOVES else ""
            text = f"{about}, for {format_duration(waited_s)}: {listed}{more}"
            preparing = sum(move.preparing for move in moves)
            if 0 < preparing < len(moves):
                text += f" ({preparing} of {len(moves)} preparing)"
            word = "preparing" if preparing == len(moves) else "moving"
            return word, "bold magenta", f"{text}, because {printable(moves[0].reason)}"
        decision = self._state.decisions.get((query, operator))
        if decision is None:
            return (
                "measuring",
                "bold",
                f"{about}: no decision yet, a query's first batch is warm-up",
            )
        reason = printable(decision.reason)
        mode, colon, wish = reason.partition(": ")
        if colon and mode in _MODES:
            return *_MODES[mode], f"{about}: {mode} by policy, else {wish}"
        return *self._word(decision), f"{about}: {reason}"

    def _word(self, decision: DecisionRecord) -> tuple[str, str]:
        """Sums a decision up in a word, with its style."""
        if decision.kind != "none":
            return _WORDS[decision.kind]
        if decision.imbalance is None:
            return "steady", "bold green"
        act_above = self._state.run.settings.get("balance.act_above")
        limit = act_above if isinstance(act_above, float) else HOT
        if decision.imbalance <= limit:
            return "balanced", "bold green"
        return "no change", "bold yellow"

    def _paragraph(self, word: str, style: str, text: str, height: int = 1) -> list[Text]:
        """Writes a word and, beside it, a text that takes `height` lines whatever its length."""
        lines = self._wrap(text, self._width - _WORD, height)
        for i, line in enumerate(lines):
            head = Text(f"{word if i == 0 else '':<{_WORD}}", style=style)
            lines[i] = head.append(line.plain, style="not bold default")
        return [*lines, *(Text() for _ in range(height - len(lines)))]

    def _wrap(self, text: str, width: int, height: int) -> list[Text]:
        """Breaks a text between words; what exceeds the last line is cut there."""
        lines = list(Text(text).wrap(self._console, max(1, width)))
        if len(lines) > height:
            rest = " ".join(line.plain.strip() for line in lines[height - 1 :])
            lines[height - 1 :] = [Text(rest)]
            lines[-1].truncate(max(1, width), overflow="ellipsis")
        for line in lines:
            line.rstrip()
        return lines

    def _query_table(self) -> list[Text]:
        queries = self._state.queries()
        if not queries:
            return []
        limit = 8 if self._roomy else 3
        name_width = max(8, min(32, self._width - 65))
        heading = f"{'query':<{name_width}}" + "".join(f"{t:>{w}}" for t, w in _COLUMNS)
        lines = [Text(f"{heading}/bound", style="dim")]
        lines += [_query_row(query, name_width) for query in queries[:limit]]
        if len(queries) > limit:
            lines.append(Text(f"and {len(queries) - limit} more", style="dim"))
        return lines

    def _loads(self, height: int) -> list[Text]:
        """Draws as many operators as there is room for, the busiest first."""
        lines: list[Text] = []
        for batch, load in self._state.loads():
            room = height - len(lines)
            if lines and room < 6:
                break
            moving = self._state.moves.of(batch.query, load.operator)
            drawn = draw_operator(batch, load, moving, self._width, room - self._airy)
            lines += self._set_apart(drawn)
        return lines[: max(0, height)]

    def _log(self, height: int) -> list[Text]:
        """Writes what happened last, with the time since the start; the newest is last."""
        lines: list[Text] = []
        for entry in reversed(self._state.entries):
            at = format_elapsed(entry.at_s - self._state.run.started_s)
            indent = max(8, len(at)) + 10
            first, *more = self._wrap(entry.text, self._width - indent, 2) or [Text()]
            head = Text.assemble(
                (f"{at:>{indent - 10}}  ", "dim"),
                (f"{entry.kind:<8}", _ENTRY_STYLES.get(entry.kind, "yellow")),
                first.plain,
            )
            if len(lines) + 1 + len(more) > height:
                break
            lines[:0] = [head, *(Text(" " * indent + line.plain) for line in more)]
        return lines


def _query_row(query: QueryState, name_width: int) -> Text:
    latest = query.latest
    cells = (
        f"{latest.batch:,}",
        format_short_duration(latest.duration_ms / 1_000),
        format_short_duration(query.median_s()),
        _rows(latest.input_rows),
        _rows(latest.backlog_rows),
    )
    line = Text(f"{crop(printable(latest.query), name_width):<{name_width}}")
    for cell, (_, column_width) in zip(cells, _COLUMNS, strict=False):
        line.append(f"{cell:>{column_width}}")
    worst = max(latest.loads, key=lambda load: load.imbalance, default=None)
    if latest.trigger != "micro-batch":
        return line.append(f"{latest.trigger:>10}")
    if worst is None:
        return line.append(f"{NOTHING:>10}")
    line.append(f"{format_ratio(worst.imbalance):>10}", style=heat(worst.imbalance))
    return line.append(f"/{format_ratio(worst.bound)}")


def _rows(count: float | None) -> str:
    """Writes a count of rows in at most ten cells."""
    short = count is not None and abs(count) >= 10_000_000
    return format_short_count(count) if short else format_count(count)
