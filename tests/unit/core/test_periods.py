"""Periods follow the wall clock of their zone, also where it is set forward or back."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from balancedstream.core.periods import (
    MAX_DURATION_S,
    Cron,
    Floor,
    Period,
    describe_time,
    find_exclusion,
    find_floor,
    parse_cron,
)
from balancedstream.errors import InvalidInputError

BERLIN = "Europe/Berlin"
ZONES = ("UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia")


def at(text: str, zone: str = BERLIN, fold: int = 0) -> float:
    """Seconds since the epoch at which a wall clock shows a time."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def holds(period: Period, text: str, zone: str = BERLIN, fold: int = 0) -> bool:
    return period.find_end_s(at(text, zone, fold)) is not None


def test_a_period_holds_from_its_first_moment_to_just_before_its_last() -> None:
    period = Period("30 8 * * 1-5", 1800, BERLIN)
    monday, end_s = "2026-11-30T08:30", at("2026-11-30T09:00")
    assert period.find_end_s(at(monday)) == end_s
    assert period.find_end_s(end_s - 0.001) == end_s
    assert period.find_end_s(at(monday) - 0.001) is None
    assert period.find_end_s(end_s) is None
    assert not holds(period, "2026-11-29T08:45"), "a Sunday"


def test_a_time_that_comes_twice_begins_a_period_twice() -> None:
    period = Period("30 2 * * *", 1800, BERLIN)
    assert holds(period, "2026-10-25T02:45")
    assert not holds(period, "2026-10-25T02:15", fold=1), "between the two"
    assert holds(period, "2026-10-25T02:45", fold=1)
    assert not holds(period, "2026-10-25T03:00")


def test_a_time_that_is_skipped_begins_a_period_as_much_later() -> None:
    period = Period("30 2 * * *", 1800, BERLIN)
    assert not holds(period, "2026-03-29T03:15")
    assert period.find_end_s(at("2026-03-29T03:30")) == at("2026-03-29T04:00")
    assert not holds(period, "2026-03-29T04:00")
    every_hour = Period("0 * * * *", 600, BERLIN)
    assert every_hour.find_end_s(at("2026-03-29T03:05")) == at("2026-03-29T03:10")


def test_a_day_with_a_set_clock_is_an_hour_longer_or_shorter_to_a_period() -> None:
    day = Period("0 0 * * *", 24 * 3600, BERLIN)
    # It lasts as long as it says: of the day with 25 hours, the last one is left.
    assert not holds(day, "2026-10-25T23:30")
    assert holds(day, "2026-03-29T23:30")


RARE_AND_OFTEN = ("*/7 * * * *", "30 1-3 * * *", "0 0,23 * * 1", "59 23 * * *", "15 2 29 * *")


@given(
    st.sampled_from(RARE_AND_OFTEN),
    st.sampled_from(ZONES),
    st.integers(int(at("2026-01-01T00:00")), int(at("2028-01-01T00:00"))),
)
@example("30 1-3 * * *", BERLIN, int(at("2026-03-29T01:45")))
@example("30 1-3 * * *", BERLIN, int(at("2026-10-25T02:45")))
@example("30 1-3 * * *", "Australia/Lord_Howe", int(at("2026-10-03T15:05", "UTC")))
@settings(max_examples=60, deadline=None)
def test_the_next_begin_is_the_first_minute_at_which_a_period_begins(
    cron: str, zone: str, now_s: int
) -> None:
    period = Period(cron, 60, zone)
    begin_s = period.find_begin_s(now_s)
    assert begin_s is not None
    assert begin_s > now_s
    assert period.find_end_s(begin_s) == begin_s + 60
    # A day of minutes before it, at most: no period begins in between.
    minutes = range(max(now_s // 60 + 1, int(begin_s) // 60 - 1440), int(begin_s) // 60)
    assert all(period.find_end_s(60.0 * minute) is None for minute in minutes)


def test_a_period_that_never_begins_within_a_year_has_no_next_begin() -> None:
    assert Period("0 0 29 2 *", 60).find_begin_s(at("2025-03-01T00:00", "UTC")) is None
    assert Period("0 0 29 2 *", 60).find_begin_s(at("2027-03-01T00:00", "UTC")) == at(
        "2028-02-29T00:00", "UTC"
    )


@pytest.mark.parametrize(
    ("cron", "day", "begins"),
    [
        # Both restricted: one of them is enough, as in Vixie's cron.
        ("0 0 13 * 5", "2026-11-13", True),
        ("0 0 13 * 5", "2026-11-20", True),
        ("0 0 13 * 5", "2026-12-13", True),
        ("0 0 13 * 5", "2026-12-14", False),
        # A field that begins with * restricts nothing by itself.
        ("0 0 */2 * 5", "2026-11-13", True),
        ("0 0 */2 * 5", "2026-11-20", False),
        ("0 0 * * 7", "2026-11-29", True),
        ("0 0 * * sun,MON", "2026-11-30", True),
        ("0 0 * jan-mar *", "2026-02-03", True),
        ("0 0 * 1-3 *", "2026-04-03", False),
        ("0 0 29 2 *", "2028-02-29", True),
    ],
)
def test_days_are_those_of_cron(cron: str, day: str, begins: bool) -> None:
    assert parse_cron(cron).has_day(datetime.fromisoformat(day).date()) == begins


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("", "five fields"),
        ("0 8 * *", "five fields"),
        ("0 0 8 * * *", "five fields"),
        ("@daily", "five fields"),
        ("0 " * 4 + "0" * 300, "five fields"),
        ("60 8 * * *", "minute must be"),
        ("-1 8 * * *", "minute must be"),
        ("*/0 8 * * *", "minute must be"),
        ("5,,6 8 * * *", "minute must be"),
        ("٣ 8 * * *", "minute must be"),
        ("0 8-7 * * *", "hour must be"),
        ("0 8h * * *", "hour must be"),
        ("0 8 0 * *", "day of month must be"),
        ("0 8 L * *", "day of month must be"),
        ("0 8 1W * *", "day of month must be"),
        ("0 8 * 13 *", "month must be"),
        ("0 8 * mon *", "month must be"),
        ("0 8 * * 8", "day of week must be"),
        ("0 8 * * 5#2", "day of week must be"),
        ("0 8 30 2 *", "no month of '2' has a day 30"),
        ("0 8 31 4,6 *", "no month of '4,6' has a day 31"),
    ],
)
def test_what_is_no_cron_expression_is_refused_by_the_name_of_its_field(
    cron: str, said: str
) -> None:
    with pytest.raises(InvalidInputError, match=r"^cron: ") as refusal:
        Period(cron, 3600)
    assert said in str(refusal.value)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    "zone",
    ["", "Europe", "europe/nowhere", "../etc/passwd", "/etc/localtime", "A" * 300, "X\0", "CEST+"],
)
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^time_zone: must be a name of the IANA"):
        Period("0 8 * * *", 3600, zone)


@given(st.text(max_size=30) | st.text("0123456789*/-, ", max_size=30))
def test_any_text_is_a_cron_expression_or_refused_by_name(text: str) -> None:
    try:
        parse_cron(text)
    except InvalidInputError as error:
        assert str(error).startswith("cron: ")  # noqa: PT017 - either is fine


def list_starts(period: Period, first_s: float, last_s: float) -> set[float]:
    """When a period begins, found by looking at the wall clock each minute."""
    cron, zone = parse_cron(period.cron), ZoneInfo(period.time_zone)
    found, time_s = set(), first_s - first_s % 60
    before = None
    while time_s <= last_s:
        now = datetime.fromtimestamp(time_s, zone).replace(tzinfo=None)
        if before is not None and now - before > timedelta(minutes=1):
            # Skipped times are as much later as the clock skips.
            skipped = now - before - timedelta(minutes=1)
            missing = [
                before + timedelta(minutes=n)
                for n in range(1, int(skipped.total_seconds() // 60) + 1)
            ]
            found |= {time_s + 60 * n for n, t in enumerate(missing) if matches(cron, t)}
        found |= {time_s} if matches(cron, now) else set()
        before, time_s = now, time_s + 60
    return found


def matches(cron: Cron, time: datetime) -> bool:
    return cron.has_day(time.date()) and time.hour in cron.hours and time.minute in cron.minutes


CRONS = st.builds(
    "{} {} {} * {}".format,
    st.sampled_from(["0", "30", "*/15", "5,50", "*"]),
    st.sampled_from(["*", "2", "1-3", "*/6", "0", "23"]),
    st.sampled_from(["*", "29", "1-7"]),
    st.sampled_from(["*", "0", "1-5"]),
)
NIGHTS = [  # each within some hours of a set clock, or far from any
    at("2026-10-25T02:30"),
    at("2026-03-29T01:30"),
    at("2026-03-08T01:30", "America/New_York"),
    at("2026-04-05T01:30", "Australia/Lord_Howe"),
    at("2026-10-04T01:30", "Australia/Lord_Howe"),
    at("2026-12-31T23:30", "UTC"),
]


@given(
    CRONS,
    st.sampled_from(ZONES[:5]),
    st.sampled_from(NIGHTS),
    st.integers(-6 * 3600, 30 * 3600),
    st.integers(1, 26 * 60),
)
@settings(max_examples=150, deadline=None)
@example("0 2 * * *", BERLIN, NIGHTS[0], 1800, 120)
@example("*/15 2 * * *", BERLIN, NIGHTS[1], 3600, 45)
def test_a_period_holds_exactly_as_the_wall_clock_of_each_minute_says(
    cron: str, zone: str, night_s: float, off_s: int, minutes: int
) -> None:
    period, now_s = Period(cron, 60 * minutes, zone), night_s + off_s
    starts = list_starts(period, now_s - 60 * minutes - 4 * 3600, now_s)
    ends = [start_s + 60 * minutes for start_s in starts if start_s <= now_s]
    expected = max((end_s for end_s in ends if end_s > now_s), default=None)
    assert period.find_end_s(now_s) == expected


@given(CRONS, st.sampled_from(ZONES), st.integers(60, MAX_DURATION_S), st.floats(0.0, 4e9))
@settings(max_examples=100, deadline=None)
def test_a_period_that_holds_ends_later_and_within_its_duration(
    cron: str, zone: str, duration_s: int, now_s: float
) -> None:
    end_s = Period(cron, duration_s, zone).find_end_s(now_s)
    assert end_s is None or now_s < end_s <= now_s + duration_s


def test_what_is_said_is_the_end_of_all_that_follow_each_other() -> None:
    early, late = Period("0 8 * * *", 7200, BERLIN), Period("0 9 * * *", 9 * 3600, BERLIN)
    now_s = at("2026-11-30T08:30")
    assert find_exclusion([early], now_s) == "excluded until 10:00 Europe/Berlin"
    assert find_exclusion([early, late], now_s) == "excluded until 18:00 Europe/Berlin"
    assert find_exclusion([late], now_s) == ""
    assert find_exclusion([], now_s) == ""


def test_the_highest_floor_counts() -> None:
    low, high = Floor("0 8 * * *", 7200, BERLIN, 2), Floor("0 9 * * *", 600, BERLIN, 5)
    assert find_floor([low, high], at("2026-11-30T09:05")) == (5, "5 until 09:10 Europe/Berlin")
    assert find_floor([low, high], at("2026-11-30T09:15")) == (2, "2 until 10:00 Europe/Berlin")


def test_floors_that_follow_each_other_leave_no_gap_and_no_sum() -> None:
    # kedacore/keda#6665: where one period ended and the next began, replicas went 10, 12, 11.
    floors = [Floor("0 8 * * *", 7200, BERLIN, 10), Floor("0 10 * * *", 7200, BERLIN, 10)]
    border_s = at("2026-11-30T10:00")
    for late_s in (-60.0, -0.001, 0.0, 0.001, 60.0):
        assert find_floor(floors, border_s + late_s)[0] == 10


def test_a_time_of_another_day_is_said_with_its_day() -> None:
    now_s = datetime(2026, 11, 30, 23, 30, tzinfo=UTC).timestamp()
    assert describe_time(now_s + 60, "UTC", now_s) == "23:31 UTC"
    assert describe_time(now_s + 3600, "UTC", now_s) == "2026-12-01 00:30 UTC"


def test_a_period_of_workdays_ends_on_friday_evening() -> None:
    # kedacore/keda#4677: with a start on workdays and an end each day, it lasted until Sunday.
    period = Period("30 6 * * 1-5", 15 * 3600 + 2400, "Europe/Prague")
    assert holds(period, "2023-06-09T22:09", "Europe/Prague")
    assert not holds(period, "2023-06-09T22:10", "Europe/Prague")
    assert not holds(period, "2023-06-10T12:00", "Europe/Prague")


def test_a_midnight_that_the_clocks_skip_begins_a_period_at_one() -> None:
    # Hexagon/croner#132: in Chile the day of the change was left out.
    period = Period("0 0 * * *", 3600, "America/Santiago")
    assert holds(period, "2022-09-11T01:30", "America/Santiago")
    assert not holds(period, "2022-09-10T23:30", "America/Santiago")
    assert not holds(period, "2022-09-11T02:00", "America/Santiago")


def test_a_midnight_hour_that_comes_twice_belongs_to_the_day_before() -> None:
    period = Period("30 23 * * 6", 900, "America/Santiago")
    for fold in (0, 1):
        assert holds(period, "2022-04-02T23:40", "America/Santiago", fold)
        assert not holds(period, "2022-04-02T23:50", "America/Santiago", fold)


def test_zones_are_known_where_the_machine_has_no_database_of_them() -> None:
    # kedacore/keda#932: an image without one refused Europe/Berlin.
    ask = "from balancedstream.core.periods import Period; Period('0 8 * * *', 60, 'Europe/Berlin')"
    subprocess.run([sys.executable, "-c", ask], env={"PYTHONTZPATH": ""}, check=True)
