"""Periods that begin again and again by a cron expression, and which of them hold at a time.

The parser of cron's five fields is our own: the core imports the standard library only, and fields,
lists, ranges and steps are all that a period needs. The rules for days are those of Vixie's cron.
Times are those of the wall clock. When clocks are set back, a time that comes twice begins two
periods. When clocks are set forward, a skipped time begins its period later by as much as they
skip. Times that are numbers are in seconds since the Unix epoch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from balancedstream.errors import InvalidInputError

MIN_DURATION_S = 60
MAX_DURATION_S = 7 * 86_400
"""The longest period. A period that begins again before it ends continues."""

MAX_EXECUTORS = 10_000
MAX_TEXT = 200
"""Maximum number of characters in a cron expression."""

MAX_ZONE = 64
"""Maximum number of characters in the name of a time zone."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST = dict(enumerate((31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), start=1))
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)}),
    ("day of week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
_PART = re.compile(r"(\*|([0-9a-z]+)(-([0-9a-z]+))?)(/([0-9]{1,2}))?")

_SHIFT = timedelta(hours=3)
"""Longer than any step by which a clock is set back or forward."""

_YEAR_DAYS = 367
"""A leap year, and the day on which the search begins."""

_CHAIN = 4
"""`find_exclusion` follows at most this many periods that each begin before the last one ends."""


@dataclass(frozen=True, slots=True)
class Cron:
    """The times of the wall clock at which a period begins.

    Attributes:
        minutes: minutes of the hour, sorted.
        hours: hours of the day, sorted.
        days: days of the month.
        months: months of the year.
        weekdays: days of the week; 0 is Sunday.
        either: whether a matching day of the month or of the week is enough, because the expression
            restricts both; otherwise both must match.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    def has_day(self, day: date) -> bool:
        """Whether a period begins on a day.

        >>> parse_cron("0 8 * * 1-5").has_day(date(2026, 11, 29))  # a Sunday
        False
        """
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either else of_month and of_week


@lru_cache(maxsize=256)
def parse_cron(text: str) -> Cron:
    """Read a cron expression: minute, hour, day of the month, month and day of the week.

    Raises:
        InvalidInputError: the text is no cron expression, or its time never comes; the message
            names the field.

    >>> parse_cron("*/20 8-10 * * mon").minutes, parse_cron("*/20 8-10 * * mon").hours
    ((0, 20, 40), (8, 9, 10))
    >>> parse_cron("0 24 * * *")
    Traceback (most recent call last):
    balancedstream.errors.InvalidInputError: cron: hour must be *, or numbers from 0 to 23 with \
commas, ranges and steps, not '24'
    """
    words = text.lower().split() if len(text) <= MAX_TEXT else []
    if len(words) != len(_FIELDS):
        message = (
            "cron: must be five fields: minute, hour, day of the month, month, day of the week, "
            f"such as '0 8 * * 1-5', not {text[:MAX_TEXT]!r}"
        )
        raise InvalidInputError(message)
    numbers = [_parse_field(word, *field) for word, field in zip(words, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = numbers
    either = not (words[2].startswith("*") or words[4].startswith("*"))
    if not either and all(min(days) > _LONGEST[month] for month in months):
        message = f"cron: no month of {words[3]!r} has a day {min(days)}, in {text!r}"
        raise InvalidInputError(message)
    weekdays = {number % 7 for number in weekdays}
    return Cron(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(weekdays),
        either,
    )


def _parse_field(text: str, name: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise _refuse(text, name, low, high)
        every, first, _, last, _, step = match.groups()
        begin = low if every == "*" else _read_number(first, names)
        end = high if every == "*" or (step and last is None) else begin
        if last is not None:
            end = _read_number(last, names)
        if not low <= begin <= end <= high or step in {"0", "00"}:
            raise _refuse(text, name, low, high)
        found |= set(range(begin, end + 1, int(step or 1)))
    return found


def _read_number(text: str, names: dict[str, int]) -> int:
    return int(text) if re.fullmatch("[0-9]{1,2}", text) else names.get(text, -1)


def _refuse(text: str, name: str, low: int, high: int) -> InvalidInputError:
    message = (
        f"cron: {name} must be *, or numbers from {low} to {high} with commas, ranges and steps, "
        f"not {text!r}"
    )
    return InvalidInputError(message)


@lru_cache(maxsize=256)
def find_zone(name: str) -> tzinfo:
    """A time zone by its name in the IANA database.

    Raises:
        InvalidInputError: there is no time zone of this name.

    >>> find_zone("Mars/Olympus")
    Traceback (most recent call last):
    balancedstream.errors.InvalidInputError: time_zone: must be a name of the IANA time zone \
database, such as Europe/Berlin, not 'Mars/Olympus'
    """
    if name == "UTC":
        return UTC
    # Zones are read from files: another text, such as one with dots, may name any other file.
    if (
        re.fullmatch(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}", name)
        and len(name) <= MAX_ZONE
    ):
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass
    message = (
        "time_zone: must be a name of the IANA time zone database, such as Europe/Berlin, not "
        f"{name!r}"
    )
    raise InvalidInputError(message)


@dataclass(frozen=True)
class Period:
    """A period that begins at each time of a cron expression and lasts for a fixed duration.

    Attributes:
        cron: minute, hour, day of the month, month and day of the week on the wall clock.
        duration_s: seconds that each period lasts, 60 to 604,800.
        time_zone: time zone of the wall clock, by its name in the IANA database.

    Raises:
        InvalidInputError: a value has the wrong type or is out of range; the message names the
            field.

    >>> night = Period("0 22 * * *", 8 * 3600, "Europe/Berlin")
    >>> night.find_end_s(0.0), night.find_end_s(43_200.0)  # from 1 and 13 o'clock there
    (18000.0, None)
    """

    cron: str
    duration_s: int
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        for name in ("cron", "time_zone"):
            if not isinstance(getattr(self, name), str):
                message = f"{name}: must be text, not {getattr(self, name)!r}"
                raise InvalidInputError(message)
        _check_whole("duration_s", self.duration_s, MIN_DURATION_S, MAX_DURATION_S)
        parse_cron(self.cron)
        find_zone(self.time_zone)

    def find_end_s(self, now_s: float) -> float | None:
        """The end of the period that holds at a time; None if no period holds.

        Returns:
            The end, in seconds since the Unix epoch.
        """
        starts = [start_s for start_s in self._list_starts(now_s) if start_s <= now_s]
        end_s = max(starts, default=now_s - self.duration_s) + self.duration_s
        return end_s if end_s > now_s else None

    def find_begin_s(self, now_s: float) -> float | None:
        """When the next period begins after a time; None if none does within a year.

        Returns:
            The begin, in seconds since the Unix epoch.
        """
        cron, zone = parse_cron(self.cron), find_zone(self.time_zone)
        first = (datetime.fromtimestamp(now_s, zone).replace(tzinfo=None) - _SHIFT).date()
        begin_s = math.inf
        for number in range(_YEAR_DAYS):
            day = first + timedelta(days=number)
            for hour in cron.hours if cron.has_day(day) else ():
                time = datetime(day.year, day.month, day.day, hour)  # noqa: DTZ001 - of any zone
                starts = [at_s for at_s in _list_hour(time, cron.minutes, zone) if at_s > now_s]
                if starts and min(starts) > begin_s + _SHIFT.total_seconds():
                    return begin_s
                begin_s = min(begin_s, *starts) if starts else begin_s
        return begin_s if begin_s < math.inf else None

    def _list_starts(self, now_s: float) -> Iterator[float]:
        """Times near `now_s` at which periods begin, among them the last that may hold."""
        cron, zone = parse_cron(self.cron), find_zone(self.time_zone)
        now = datetime.fromtimestamp(now_s, zone).replace(tzinfo=None)
        day = (now + _SHIFT).date()
        first = (now - timedelta(seconds=self.duration_s) - _SHIFT - timedelta(days=1)).date()
        enough: datetime | None = None
        while day >= first:
            for hour in reversed(cron.hours) if cron.has_day(day) else ():
                time = datetime(day.year, day.month, day.day, hour)  # noqa: DTZ001 - of any zone
                if enough is not None and time < enough:
                    return
                if time > now + _SHIFT:
                    continue
                yield from _list_hour(time, cron.minutes, zone)
                if enough is None and time <= now - _SHIFT:
                    enough = time - _SHIFT
            day -= timedelta(days=1)


def _list_hour(hour: datetime, minutes: tuple[int, ...], zone: tzinfo) -> Iterator[float]:
    """The instants at which a wall clock shows these minutes of an hour, in Unix seconds."""
    firsts, lasts = (tuple(_list_instants(hour.replace(minute=at), zone)) for at in (0, 59))
    if lasts == tuple(first_s + 59 * 60 for first_s in firsts):
        # The clock is not set within this hour, so its minutes are evenly spaced.
        yield from (first_s + 60 * minute for first_s in set(firsts) for minute in minutes)
        return
    for minute in minutes:
        yield from _list_instants(hour.replace(minute=minute), zone)


def _list_instants(time: datetime, zone: tzinfo) -> Iterator[float]:
    """The instants at which a wall clock shows a time: one, or two if clocks are set back.

    A skipped time has one: as much later as the clocks skip.
    """
    first_s = time.replace(tzinfo=zone).timestamp()
    yield first_s
    if datetime.fromtimestamp(first_s, zone).replace(tzinfo=None) == time:
        yield time.replace(tzinfo=zone, fold=1).timestamp()


@dataclass(frozen=True)
class Floor(Period):
    """A period with a minimum number of executors.

    Attributes:
        min_executors: the minimum number while the period holds, 1 to 10,000.

    Raises:
        InvalidInputError: a value has the wrong type or is out of range; the message names the
            field.

    >>> Floor("0 22 * * *", 8 * 3600, min_executors=3).min_executors
    3
    """

    min_executors: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_whole("min_executors", self.min_executors, 1, MAX_EXECUTORS)


def find_exclusion(periods: Iterable[Period], now_s: float) -> str:
    """Until when periods exclude all moves and scaling, for people; empty if none does now.

    >>> find_exclusion([Period("0 8 * * *", 36_000, "Europe/Berlin")], 43_200.0)
    'excluded until 18:00 Europe/Berlin'
    """
    known = tuple(periods)
    end_s, last = now_s, None
    for _ in range(_CHAIN):
        ends = [(end, n) for n, p in enumerate(known) if (end := p.find_end_s(end_s)) is not None]
        if not ends or max(ends)[0] <= end_s:
            break
        end_s, number = max(ends)
        last = known[number]
    return f"excluded until {describe_time(end_s, last.time_zone, now_s)}" if last else ""


def find_floor(floors: Iterable[Floor], now_s: float) -> tuple[int, str]:
    """The minimum number of executors that periods require now, and until when, for people.

    Returns:
        The highest minimum and its text; 0 and an empty text if no period holds.

    >>> find_floor([Floor("0 8 * * *", 36_000, "Europe/Berlin", 6)], 43_200.0)
    (6, '6 until 18:00 Europe/Berlin')
    >>> find_floor([], 43_200.0)
    (0, '')
    """
    holding = [
        (floor.min_executors, end_s, floor.time_zone)
        for floor in floors
        if (end_s := floor.find_end_s(now_s)) is not None
    ]
    if not holding:
        return 0, ""
    least, end_s, zone = max(holding)
    return least, f"{least} until {describe_time(end_s, zone, now_s)}"


def describe_time(time_s: float, zone: str, now_s: float) -> str:
    """A time as a clock in a time zone shows it, with the date unless that is today.

    Args:
        time_s: the time, in seconds since the Unix epoch.
        zone: name of the time zone in the IANA database.
        now_s: current time, in seconds since the Unix epoch.

    >>> describe_time(90_000.0, "UTC", 0.0)
    '1970-01-02 01:00 UTC'
    """
    then, now = (datetime.fromtimestamp(at_s, find_zone(zone)) for at_s in (time_s, now_s))
    clock = "%H:%M" if then.date() == now.date() else "%Y-%m-%d %H:%M"
    return f"{then.strftime(clock)} {zone}"


def _check_whole(name: str, value: object, minimum: int, maximum: int) -> None:
    if type(value) is not int or not minimum <= value <= maximum:
        message = f"{name}: must be an integer from {minimum} to {maximum}, not {value!r}"
        raise InvalidInputError(message)
