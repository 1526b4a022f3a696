"""An operator's executors as bars, each with the state partitions that it ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.cells import cell_len
from rich.text import Text

from balancedstream.core.printing import printable
from balancedstream.live.plain import describe_subject
from balancedstream.record.records import BatchRecord, MoveRecord, OperatorBatchLoad
from balancedstream.record.wording import crop, format_ratio, format_short_duration, plural

HOT, WARM = 1.2, 1.05
"""From here on an imbalance is red, or yellow."""

MIN_HEIGHT_WITH_HEADING = 6

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"
_BAR_WIDTHS = ((150, 40), (110, 28), (0, 16))


def draw_operator(
    batch: BatchRecord,
    load: OperatorBatchLoad,
    moving: Mapping[int, MoveRecord],
    width: int,
    height: int,
) -> list[Text]:
    """Draws what an operator's executors did in a batch.

    Args:
        batch: the last batch of the query.
        load: the operator's load in it.
        moving: the operator's moves under way, by partition.
        width: cells a line may take.
        height: lines there are; with fewer than executors, the hottest are drawn and the
            others summed up.

    Returns:
        A title and a line an executor, the heading of their columns between where it fits.
    """
    busy_s = load.executor_busy_s()
    held: dict[str, list[int]] = {}
    for partition, executor in enumerate(load.partition_executor):
        held.setdefault(executor, []).append(partition)
    bar_width = next(cells for least, cells in _BAR_WIDTHS if width >= least)
    scale = _Scale(
        executor_s=max(busy_s.values(), default=0.0),
        partition_s=max(load.partition_busy_s),
        mean_s=sum(busy_s.values()) / max(1, batch.executors, len(busy_s)),
        bar_width=bar_width,
    )
    about = describe_subject(batch.query, load.operator)
    what = f"load of {plural(len(load.partition_busy_s), 'partition')} in batch {batch.batch:,}"
    name = crop(printable(load.name), max(8, width - cell_len(about) - len(what) - 3))
    lines = [Text(f"{about} {name}: {what}", style="bold")]
    idle = batch.executors - len(busy_s)
    if height >= MIN_HEIGHT_WITH_HEADING:
        heading = f"{'executor':<{bar_width + 10}} {'busy':>8} {'/ mean':>6}  partitions, by load"
        lines.append(Text(heading, style="dim"))
    shown, others = _choose(busy_s, max(1, height - len(lines) - (idle > 0)))
    lines += [
        _draw_executor(
            executor, held[executor], load.partition_busy_s, scale, moving=moving, width=width
        )
        for executor in shown
    ]
    if others:
        lines.append(_sum_up([busy_s[e] for e in others], sum(len(held[e]) for e in others)))
    if idle > 0:
        lines.append(Text(f"{plural(idle, 'executor')} without a partition", style="dim"))
    return lines


def heat(imbalance: float) -> str:
    """Picks a colour; the figure itself always stands beside it."""
    return "red" if imbalance > HOT else "yellow" if imbalance > WARM else "green"


@dataclass(frozen=True, slots=True)
class _Scale:
    """What bars and cells of one operator are measured by."""

    executor_s: float
    partition_s: float
    mean_s: float
    bar_width: int


def _choose(busy_s: Mapping[str, float], room: int) -> tuple[list[str], list[str]]:
    """Splits executors into those drawn, by id or hottest first, and those summed up."""
    by_load = sorted(busy_s, key=lambda executor: -busy_s[executor])
    if len(by_load) > room:
        return by_load[: room - 1], by_load[room - 1 :]
    return sorted(busy_s, key=lambda e: (not e.isdecimal(), int(e) if e.isdecimal() else 0, e)), []


def _sum_up(busy_s: Sequence[float], partitions: int) -> Text:
    return Text(
        f"{plural(len(busy_s), 'other executor')}: {format_short_duration(min(busy_s))} to "
        f"{format_short_duration(max(busy_s))}, mean {format_short_duration(fmean(busy_s))}, "
        f"{plural(partitions, 'partition')}",
        style="dim",
    )


def _draw_executor(
    executor: str,
    partitions: Sequence[int],
    busy_s: Sequence[float],
    scale: _Scale,
    *,
    moving: Mapping[int, MoveRecord],
    width: int,
) -> Text:
    """Draws an executor's bar, its load, and a cell for each of its partitions."""
    total_s = sum(busy_s[partition] for partition in partitions)
    ratio = total_s / scale.mean_s if scale.mean_s > 0 else 1.0
    line = Text(f"exec {crop(printable(executor), 4):<4} ")
    line.append(_bar(total_s, scale.executor_s, scale.bar_width), style=heat(ratio))
    line.append(f" {format_short_duration(total_s):>8}")
    line.append(f" {format_ratio(ratio):>6} ", style=heat(ratio))
    room = width - line.cell_len
    named = Text()
    for partition in partitions:
        leaves = partition in moving
        named.append(" ")
        named.append(str(partition), style="bold magenta" if leaves else "dim")
        named.append(*_cell(busy_s[partition], scale))
        if leaves:
            named.append(f"→{crop(printable(moving[partition].target), 4)}", style="bold magenta")
    if named.cell_len <= room:
        return line.append_text(named)
    hottest = sorted(partitions, key=lambda partition: -busy_s[partition])
    fitting = hottest if len(hottest) < room else hottest[: max(0, room - 8)]
    line.append(" ")
    for partition in fitting:
        glyph, colour = _cell(busy_s[partition], scale)
        line.append(glyph, style=f"underline {colour}" if partition in moving else colour)
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
