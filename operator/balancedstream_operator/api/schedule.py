"""What of the spec of a BalancedStream holds at certain times only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from balancedstream.core.periods import (
    MAX_DURATION_S,
    MAX_TEXT,
    MAX_ZONE,
    MIN_DURATION_S,
)
from balancedstream.core.policy import MAX_PERIODS
from balancedstream_operator.api.schema import Number, Parts, Text


@dataclass(frozen=True)
class Period:
    """A time that comes again and again."""

    cron: Annotated[
        str,
        Text(
            "When it begins, by the wall clock: minute, hour, day of the month, month, day of the "
            "week, such as 0 8 * * 1-5.",
            MAX_TEXT,
        ),
    ]
    duration_s: Annotated[
        int, Number("For how many seconds it lasts.", MIN_DURATION_S, MAX_DURATION_S)
    ]
    time_zone: Annotated[
        str,
        Text("Time zone of the clock, by its name in the IANA database.", MAX_ZONE),
    ] = "UTC"


@dataclass(frozen=True)
class Floor(Period):
    """A time in which there are more executors at least."""

    min_executors: Annotated[
        int, Number("The least number of executors while it lasts.", 1, 1000)
    ] = 1


@dataclass(frozen=True)
class Schedule:
    """What holds at certain times only."""

    excluded: Annotated[
        tuple[Period, ...],
        Parts(
            "When nothing is moved or scaled; lost executors and drivers are replaced all the "
            "same.",
            MAX_PERIODS,
        ),
    ] = ()
    floors: Annotated[
        tuple[Floor, ...],
        Parts(
            "When there are more executors than executors.min at least, within executors.max.",
            MAX_PERIODS,
        ),
    ] = ()
