"""The schedule in the spec of a BalancedStream: fields that hold at certain times only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from balancedstream.core.periods import MAX_DURATION_S, MAX_TEXT, MAX_ZONE, MIN_DURATION_S
from balancedstream.core.policy import MAX_PERIODS
from balancedstream_operator.api.schema import Number, Parts, Text


@dataclass(frozen=True)
class Period:
    """A period that begins again and again."""

    cron: Annotated[
        str,
        Text(
            "When the period begins, by the wall clock: minute, hour, day of the month, month, day "
            "of the week, such as 0 8 * * 1-5.",
            MAX_TEXT,
        ),
    ]
    duration_s: Annotated[
        int, Number("Seconds that the period lasts.", MIN_DURATION_S, MAX_DURATION_S)
    ]
    time_zone: Annotated[
        str,
        Text("Time zone of the clock, by its name in the IANA database.", MAX_ZONE),
    ] = "UTC"


@dataclass(frozen=True)
class Floor(Period):
    """A period with a minimum number of executors."""

    min_executors: Annotated[
        int, Number("Minimum number of executors during the period.", 1, 1000)
    ] = 1


@dataclass(frozen=True)
class Schedule:
    """Periods with other rules than the rest of the time."""

    excluded: Annotated[
        tuple[Period, ...],
        Parts(
            "Periods in which nothing is moved or scaled; lost executors and drivers are still "
            "replaced.",
            MAX_PERIODS,
        ),
    ] = ()
    floors: Annotated[
        tuple[Floor, ...],
        Parts(
            "Periods with a higher minimum number of executors than executors.min; executors.max "
            "still applies.",
            MAX_PERIODS,
        ),
    ] = ()
    repartitions: Annotated[
        tuple[Period, ...],
        Parts(
            "Periods in which a proposed number of state partitions is carried out without an "
            "approval; the stream stands still meanwhile.",
            MAX_PERIODS,
            of_the_job=True,
            restarts=False,
        ),
    ] = ()
