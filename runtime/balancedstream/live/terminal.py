"""The live view: executors and their partitions, batch time, moves and reasons, in place."""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean, median

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from balancedstream.live.plain import KEPT_QUERIES, say_about
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    MoveRecord,
    OperatorBatchLoad,
    RunInfo,
    ScaleRecord,
)
from balancedstream.record.wording import (
    NOTHING,
    format_clock,
    format_count,
    format_duration,
    format_elapsed,
    format_ratio,
    format_short_count,
    format_short_duration,
    plural,
    printable,
)

REFRESHES_PER_S = 4
RECENT_BATCHES = 20
KEPT_LINES = 6
LISTED_MOVES = 12


MIN_HEIGHT = 12
_COLUMNS = (
    ("batch", 9),
    ("last", 9),
    ("median", 9),
    ("rows", 11),
    ("backlog", 11),
    ("imbalance", 10),
)
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class _QueryState:
    """What the live view remembers of a query."""

    latest: BatchRecord
    durations_ms: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT_BATCHES))
    busy_s: dict[int, float] = field(default_factory=dict)  # per operator, all batches


class LiveView:
    """Shows executors and their partitions, batch time, backlog, moves and reasons, in place.

    The frame fits the terminal: with little room the hottest executors and partitions are shown
    and the others counted. What the job prints appears above it.

    Args:
        run: where and with what the run takes place.
        console: the terminal; standard output if not given.
        clock: seconds since the Unix epoch.
    """

    def __init__(
        self,
        run: RunInfo,
        console: Console | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._run = run
        self._clock = clock
        self._lock = threading.Lock()
        self._queries: dict[str, _QueryState] = {}
        self._under_way: dict[tuple[str, int, int], MoveRecord] = {}
        self._decisions: deque[DecisionRecord] = deque(maxlen=KEPT_LINES)
        self._notes: deque[str] = deque(maxlen=2)
        self._moves = self._scale_actions = 0
        self._ended_s: float | None = None
        # a stream that the user sent to a file must stay there
        self._live = Live(
            self,
            console=console,
            refresh_per_second=REFRESHES_PER_S,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        with suppress(OSError, ValueError):
            self._live.start()
        atexit.register(self.close)  # a hidden cursor must not outlive the job

    def on_batch(self, record: BatchRecord) -> None:
        """Takes the batch as the query's present state."""
        with self._lock:
            query = self._queries.pop(record.query, _QueryState(record))
            self._queries[record.query] = query  # the latest is last
            if len(self._queries) > KEPT_QUERIES:
                del self._queries[next(iter(self._queries))]
            query.latest = record
            query.durations_ms.append(record.duration_ms)
            for load in record.loads:
                busy_s = query.busy_s.get(load.operator, 0.0)
                query.busy_s[load.operator] = busy_s + sum(load.partition_busy_s)

    def on_decision(self, record: DecisionRecord) -> None:
        """Shows the decision as the latest; one that only repeats replaces the last."""
        with self._lock:
            for earlier in self._decisions:
                same = (earlier.query, earlier.operator) == (record.query, record.operator)
                if same and earlier.kind == record.kind not in ("move", "scale"):
                    self._decisions.remove(earlier)
                    break
            self._decisions.append(record)

    def on_move(self, record: MoveRecord) -> None:
        """Shows the move for as long as it is under way."""
        with self._lock:
            partition = record.place
            if record.under_way():
                self._moves += partition not in self._under_way
                self._under_way[partition] = record
            else:
                self._under_way.pop(partition, None)

    def on_scale(self, record: ScaleRecord) -> None:
        """Counts the action; its decision has the reason."""
        with self._lock:
            self._scale_actions += 1

    def note(self, text: str) -> None:
        """Shows the text under the decisions."""
        with self._lock:
            self._notes.append(f"{format_clock(self._clock())[11:19]} {printable(text)}")

    def close(self) -> None:
        """Leaves the last frame on the terminal and gives the terminal back."""
        with self._lock:
            if self._ended_s is not None:
                return
            self._ended_s = self._clock()
        with suppress(OSError, ValueError):
            self._live.stop()
        atexit.unregister(self.close)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            yield from self._lines(options.max_width, max(MIN_HEIGHT, console.height) - 1)

    def _lines(self, width: int, height: int) -> Iterator[Text]:
        """Yields at most `height` lines of at most `width` cells."""
        roomy = height >= 36
        head = [self._headline(), *self._query_lines(width, 8 if roomy else 3)]
        tail = [
            *self._move_lines(2 if roomy else 1),
            *self._decision_lines(KEPT_LINES if roomy else 3),
            *(Text(f"{note}", style="yellow") for note in self._notes),
        ]
        tail = tail[: max(0, height - len(head) - 4)]
        body = self._load_lines(width, height - len(head) - len(tail))
        for line in (*head, *body, *tail):
            line.no_wrap = True
            line.truncate(width, overflow="ellipsis")
            yield line

    def _headline(self) -> Text:
        until_s = self._clock() if self._ended_s is None else self._ended_s
        latest = list(self._queries.values())[-1:]
        executors = latest[0].latest.executors if latest else 0
        facts = [
            _crop(printable(self._run.app.rsplit("/", 1)[-1]), 24),
            f"{plural(executors, 'executor')} on {plural(self._run.cores, 'core')}",
            format_elapsed(until_s - self._run.started_s),
            plural(self._moves, "move"),
            plural(self._scale_actions, "scaling"),
        ]
        return Text.assemble(("BalancedStream", "bold"), " ", " · ".join(facts))

    def _query_lines(self, width: int, limit: int) -> list[Text]:
        if not self._queries:
            return [Text("waiting for the first batch", style="dim")]
        name_width = max(8, min(32, width - 65))
        head = Text(f"{'query':<{name_width}}", style="dim")
        for title, column_width in _COLUMNS:
            head.append(f"{title:>{column_width}}")
        head.append("/bound")
        lines = [head]
        by_load = sorted(self._queries.values(), key=lambda query: -sum(query.busy_s.values()))
        for query in by_load[:limit]:
            latest = query.latest
            worst = max(latest.loads, key=lambda load: load.imbalance, default=None)
            line = Text(f"{_crop(printable(latest.query), name_width):<{name_width}}")
            cells = (
                f"{latest.batch:,}",
                format_short_duration(latest.duration_ms / 1_000),
                format_short_duration(median(query.durations_ms) / 1_000),
                _rows(latest.input_rows),
                _rows(latest.backlog_rows),
            )
            for cell, (_, column_width) in zip(cells, _COLUMNS, strict=False):
                line.append(f"{cell:>{column_width}}")
            if worst is None:
                line.append(f"{NOTHING:>10}")
            else:
                line.append(f"{format_ratio(worst.imbalance):>10}", style=_heat(worst.imbalance))
                line.append(f"/{format_ratio(worst.bound)}")
            lines.append(line)
        if len(by_load) > limit:
            lines.append(Text(f"and {len(by_load) - limit} more", style="dim"))
        return lines

    def _load_lines(self, width: int, height: int) -> list[Text]:
        """Shows as many operators as there is room for, the busiest first."""
        operators = sorted(
            (
                (query.busy_s[load.operator], query.latest, load)
                for query in self._queries.values()
                for load in query.latest.loads
                if load.partition_busy_s
            ),
            key=lambda entry: -entry[0],
        )
        lines: list[Text] = []
        for _, batch, load in operators:
            room = height - len(lines)
            if lines and room < 4:
                break
            lines += self._operator_lines(batch, load, width, room)
        return lines[:height]

    def _operator_lines(
        self, batch: BatchRecord, load: OperatorBatchLoad, width: int, height: int
    ) -> list[Text]:
        busy_s = load.executor_busy_s()
        held: dict[str, list[int]] = {}
        for partition, executor in enumerate(load.partition_executor):
            held.setdefault(executor, []).append(partition)
        mean_s = sum(busy_s.values()) / max(1, batch.executors, len(busy_s))
        title = Text(
            f"{say_about(batch.query, load.operator)} {printable(load.name)}, "
            f"{plural(len(load.partition_busy_s), 'partition')}: load in batch "
            f"{batch.batch:,}, / mean",
            style="bold",
        )
        idle = batch.executors - len(busy_s)
        room = max(1, height - 1 - (idle > 0))
        shown = sorted(busy_s, key=lambda executor: -busy_s[executor])
        others: list[str] = []
        if len(shown) > room:
            shown, others = shown[: room - 1], shown[room - 1 :]
        else:
            shown.sort(key=lambda e: (not e.isdecimal(), int(e) if e.isdecimal() else 0, e))
        scale = _Scale(
            executor_s=max(busy_s.values(), default=0.0),
            partition_s=max(load.partition_busy_s),
            mean_s=mean_s,
            bar_width=16 if width < 110 else 28,
        )
        moving = {
            partition
            for query, operator, partition in self._under_way
            if (query, operator) == (batch.query, load.operator)
        }
        lines = [title]
        lines += [
            _executor_line(
                executor, held[executor], load.partition_busy_s, scale, moving=moving, width=width
            )
            for executor in shown
        ]
        if others:
            least, most = busy_s[others[-1]], busy_s[others[0]]
            partitions = sum(len(held[executor]) for executor in others)
            lines.append(
                Text(
                    f"{plural(len(others), 'other executor')}: {format_short_duration(least)} to "
                    f"{format_short_duration(most)}, mean "
                    f"{format_short_duration(fmean(busy_s[e] for e in others))}, "
                    f"{plural(partitions, 'partition')}",
                    style="dim",
                )
            )
        if idle > 0:
            lines.append(Text(f"{plural(idle, 'executor')} without a partition", style="dim"))
        return lines

    def _move_lines(self, limit: int) -> list[Text]:
        groups: dict[tuple[str, int, str], list[MoveRecord]] = {}
        for move in self._under_way.values():
            groups.setdefault((move.query, move.operator, move.reason), []).append(move)
        lines = []
        for (query, operator, reason), moves in list(groups.items())[-limit:]:
            listed = ", ".join(
                f"{move.partition}: {printable(move.source) or 'nowhere'}→{printable(move.target)}"
                for move in moves[:LISTED_MOVES]
            )
            more = f" and {len(moves) - LISTED_MOVES} more" if len(moves) > LISTED_MOVES else ""
            waited_s = max(0.0, self._clock() - moves[0].decided_s)
            lines.append(
                Text.assemble(
                    ("moving", "bold magenta"),
                    f" {say_about(query, operator)}, for {format_duration(waited_s)}: "
                    f"{listed}{more}",
                )
            )
            lines.append(Text(f"  because {printable(reason)}"))
        return lines

    def _decision_lines(self, limit: int) -> list[Text]:
        lines = []
        for decision in list(self._decisions)[-limit:]:
            style = "bold" if decision.kind in ("move", "scale") else "dim"
            lines.append(
                Text.assemble(
                    (format_clock(decision.at_s)[11:19], "dim"),
                    f" {say_about(decision.query, decision.operator)}: ",
                    (printable(decision.reason), style),
                )
            )
        return lines


@dataclass(frozen=True, slots=True)
class _Scale:
    """What bars and cells of one operator are measured by."""

    executor_s: float
    partition_s: float
    mean_s: float
    bar_width: int


def _executor_line(
    executor: str,
    partitions: Sequence[int],
    busy_s: Sequence[float],
    scale: _Scale,
    *,
    moving: set[int],
    width: int,
) -> Text:
    """Writes an executor's bar, its load, and a cell for each of its partitions."""
    total_s = sum(busy_s[partition] for partition in partitions)
    ratio = total_s / scale.mean_s if scale.mean_s > 0 else 1.0
    line = Text(f"exec {_crop(printable(executor), 6):<4} ")
    line.append(_bar(total_s, scale.executor_s, scale.bar_width), style=_heat(ratio))
    line.append(f" {format_short_duration(total_s):>8}")
    line.append(f" {format_ratio(ratio):>6} ", style=_heat(ratio))
    room = width - len(line) - 1
    named = " ".join(f"{partition}{_LEVELS[0]}" for partition in partitions)
    if len(named) <= room:
        for partition in partitions:
            line.append(" ")
            line.append(str(partition), style="underline" if partition in moving else "dim")
            line.append(*_cell(busy_s[partition], scale))
        return line
    hottest = sorted(partitions, key=lambda partition: -busy_s[partition])
    fitting = hottest if len(hottest) <= room else hottest[: max(0, room - 7)]
    line.append(" ")
    for partition in fitting:
        line.append(*_cell(busy_s[partition], scale))
    if len(fitting) < len(hottest):
        line.append(f" +{len(hottest) - len(fitting):,}", style="dim")
    return line


def _cell(partition_s: float, scale: _Scale) -> tuple[str, str]:
    """Picks a partition's block by its load, and its colour by its part of an executor's share."""
    share = partition_s / scale.partition_s if scale.partition_s > 0 else 0.0
    part = partition_s / scale.mean_s if scale.mean_s > 0 else 0.0
    style = "red" if part > 0.5 else "yellow" if part > 0.25 else "green"
    return _LEVELS[min(7, int(share * 8))], style


def _bar(value: float, highest: float, width: int) -> str:
    eighths = round(value / highest * width * 8) if highest > 0 else 0
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def _heat(imbalance: float) -> str:
    """Picks a colour: red above 1.20 times the mean, yellow above 1.05."""
    return "red" if imbalance > 1.2 else "yellow" if imbalance > 1.05 else "green"


def _rows(count: float | None) -> str:
    """Writes a count of rows in at most ten cells."""
    short = count is not None and abs(count) >= 10_000_000
    return format_short_count(count) if short else format_count(count)


def _crop(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
