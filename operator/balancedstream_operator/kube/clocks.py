"""Times that were written down, against clocks that jump, and pauses before retries: pure.

A node's clock may be set back or ahead by hours, or the operator may move to a node with another
clock. So the operator believes no written time that lies in the future.
"""

from __future__ import annotations

from math import inf

WAITING_S = 5.0
"""The shortest pause before another try; pauses grow with the time since the first try."""

PATIENCE = 4.0
"""A pause is the time since the first try, divided by this."""

RESTING_S = 60.0
"""The longest pause before another try."""


def has_passed(length_s: float, since_s: float, now_s: float) -> bool:
    """Whether a length of time has passed; also True if the clock was set back since.

    >>> has_passed(60.0, 100.0, 130.0), has_passed(60.0, 100.0, 160.0), has_passed(60.0, 100.0, 9.0)
    (False, True, True)
    """
    return not 0.0 <= now_s - since_s < length_s


def find_age_s(stamp_s: float, now_s: float, seen_s: float) -> float:
    """For how long a state has lasted, if another machine wrote when it began.

    Args:
        stamp_s: when the state began, by the other machine's clock.
        now_s: by this machine's clock.
        seen_s: for how long this process has seen the state; infinite if it has not looked.

    >>> find_age_s(0.0, 90.0, 200.0), find_age_s(0.0, 7200.0, 5.0), find_age_s(7200.0, 0.0, 5.0)
    (90.0, 5.0, 5.0)
    """
    age_s = now_s - stamp_s
    if age_s < 0.0:
        return seen_s if seen_s < inf else 0.0
    return min(age_s, seen_s)


def choose_retry_s(tried_s: float) -> float:
    """The pause before another try, in seconds.

    >>> choose_retry_s(0.0), choose_retry_s(40.0), choose_retry_s(9_000.0)
    (5.0, 10.0, 60.0)
    """
    return max(WAITING_S, min(tried_s / PATIENCE, RESTING_S))
