"""What a driver says of its own clock, held against the scrapes."""

from __future__ import annotations

import pytest

from balancedstream_operator.observe.driver_times import DRIVER_TIMES, SLACK_S, settle_times
from balancedstream_operator.observe.series import Series


@pytest.mark.parametrize(
    "off_s", [0.0, 30.0, -30.0, -86_400.0, -7200.0, -600.0, 600.0, 7200.0, 86_400.0]
)
@pytest.mark.parametrize("jumps_at", [0, 3, 99])
def test_the_times_of_a_driver_are_never_far_from_the_scrapes_between_which_they_were(
    off_s: float, jumps_at: int
) -> None:
    scrapes = [1000.0 + 15.0 * n for n in range(12)]
    ended = [t - 4.0 for t in scrapes]
    said = [t + (off_s if n >= jumps_at else 0.0) for n, t in enumerate(ended)]
    name = DRIVER_TIMES[0]
    series = Series({"__name__": name}, tuple(zip(scrapes, said, strict=True)))
    (found,) = settle_times({name: [series]})[name]
    for (time_s, known_s), true_s in zip(found.samples, ended, strict=True):
        assert known_s <= time_s + SLACK_S
        if abs(off_s) <= SLACK_S:
            assert abs(known_s - true_s) <= abs(off_s)
        elif time_s > scrapes[0]:
            assert abs(known_s - true_s) <= 15.0
