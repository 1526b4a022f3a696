"""Numbers with their units, and names, as a person reads them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from balancedstream.record.records import PreparationTotals

NOTHING = "-"
"""Stands where there is no figure."""

DECISION_LABELS = {
    "move": "move",
    "scale": "scale",
    "advise": "advise",
    "limited": "is limited",
    "hold": "wait",
    "none": "no change",
}
"""How each kind of decision is labelled."""


def format_duration(seconds: float | None) -> str:
    """Writes a duration with three significant digits.

    >>> format_duration(0.0421), format_duration(0.85), format_duration(4.8234)
    ('42.1 ms', '850 ms', '4.82 s')
    >>> format_duration(62.0), format_duration(7_384), format_duration(200_000)
    ('1 min 2 s', '2 h 3 min', '2 d 7 h')
    """
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 0.9995:
        return f"{_significant(seconds * 1_000)} ms"
    if seconds < 59.95:
        return f"{_significant(seconds)} s"
    whole = round(seconds)
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3_600} h {whole % 3_600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3_600} h"


def format_milliseconds(milliseconds: float | None) -> str:
    """Writes a duration that is measured in milliseconds.

    >>> format_milliseconds(4_823.4), format_milliseconds(None)
    ('4.82 s', '-')
    """
    return format_duration(None if milliseconds is None else milliseconds / 1_000)


def format_short_duration(seconds: float | None) -> str:
    """Writes a duration where there is little room.

    >>> format_short_duration(0.85), format_short_duration(423), format_short_duration(9_000)
    ('850 ms', '7.05 min', '2.5 h')
    """
    if seconds is None or not math.isfinite(seconds) or seconds < 59.95:
        return format_duration(seconds)
    if seconds < 3_600:
        return f"{_significant(seconds / 60)} min"
    return f"{_significant(seconds / 3_600)} h"


def format_elapsed(seconds: float) -> str:
    """Writes a time since the start as a clock would.

    >>> format_elapsed(42), format_elapsed(3_723), format_elapsed(90_061)
    ('0:42', '1:02:03', '1 d 1:01:01')
    """
    whole = max(0, int(seconds))
    days, hours, minutes, rest = (
        whole // 86_400,
        whole % 86_400 // 3_600,
        whole % 3_600 // 60,
        whole % 60,
    )
    if days:
        return f"{days} d {hours}:{minutes:02}:{rest:02}"
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}"


def format_count(count: float | None) -> str:
    """Writes a count in full up to ten million, then shortened.

    >>> format_count(336_776), format_count(12_345_678), format_count(4.2e9)
    ('336,776', '12.3 million', '4.2 billion')
    """
    if count is None or not math.isfinite(count):
        return NOTHING
    if abs(count) < 10_000_000:
        return f"{round(count):,}"
    if abs(count) < 1_000_000_000:
        return f"{_significant(count / 1e6)} million"
    return f"{_significant(count / 1e9)} billion"


def format_short_count(count: float | None) -> str:
    """Writes a count where there is little room.

    >>> format_short_count(2_500), format_short_count(12_345_678), format_short_count(4)
    ('2.5 k', '12.3 M', '4')
    """
    if count is None or not math.isfinite(count):
        return NOTHING
    for size, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(count) >= size:
            return f"{_significant(count / size)}{suffix}"
    return _significant(count)


def format_bytes(count: float) -> str:
    """Writes a size.

    >>> format_bytes(206_000_000), format_bytes(1_250), format_bytes(0)
    ('206 MB', '1.25 kB', '0 B')
    """
    short = format_short_count(count)
    return f"{short}B" if " " in short else f"{short} B"


def describe_preparations(preparations: PreparationTotals) -> str:
    """Says how much state was loaded ahead of moves, and what became of it; "" if none was.

    >>> from balancedstream.record.records import start_preparation_totals
    >>> totals = start_preparation_totals()
    >>> totals["used"].add(206_000_000, 3.5)
    >>> totals["wasted"].add(1_000_000, 0.25)
    >>> describe_preparations(totals)
    'state loaded ahead: 206 MB in 3.5 s used (1 move), 1 MB in 250 ms wasted (1 move)'
    """
    parts = [
        f"{format_bytes(loaded.state_bytes)} in {format_duration(loaded.spent_s)} {outcome} "
        f"({plural(loaded.moves, 'move')})"
        for outcome, loaded in preparations.items()
        if loaded.moves
    ]
    return f"state loaded ahead: {', '.join(parts)}" if parts else ""


def format_ratio(ratio: float | None) -> str:
    """Writes a ratio with two decimals.

    >>> format_ratio(1.5789), format_ratio(None)
    ('1.58', '-')
    """
    if ratio is None or not math.isfinite(ratio):
        return NOTHING
    return f"{ratio:.2f}"


def find_change(before: float, after: float) -> int:
    """The relative change in percent, rounded; `before` is above 0.

    >>> find_change(7.3, 4.8), find_change(100.0, 100.2)
    (-34, 0)
    """
    return round((after / before - 1.0) * 100)


def format_change(before: float | None, after: float | None) -> str:
    """Writes a relative change in percent, with its sign.

    >>> format_change(7.3, 4.8), format_change(100.0, 100.2), format_change(0.0, 1.0)
    ('-34 %', '±0 %', '-')
    """
    if before is None or after is None or before <= 0:
        return NOTHING
    percent = find_change(before, after)
    if percent == 0:
        return "±0 %"
    return f"{percent:+} %"


def format_clock(epoch_s: float) -> str:
    """Writes a point in time as ISO 8601 in UTC, to the second.

    >>> format_clock(0.0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(epoch_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def plural(count: int, noun: str) -> str:
    """Writes a count with its noun.

    >>> plural(1, "move"), plural(1_200, "move"), plural(0, "query")
    ('1 move', '1,200 moves', '0 queries')
    """
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        noun = noun[:-1] + "ie"
    elif noun.endswith("ch"):
        noun += "e"
    return f"{count:,} {noun}s"


def crop(text: str, width: int) -> str:
    """Cuts a text to a width in characters.

    >>> crop("stateStoreSave", 6), crop("save", 6)
    ('state…', 'save')
    """
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _significant(value: float) -> str:
    """Writes a value below 1,000 with three significant digits and no trailing zeros."""
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
