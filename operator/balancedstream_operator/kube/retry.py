"""When what the API server did not do is tried again: pure."""

from __future__ import annotations

WAITING_S = 5.0
"""Pause before what was tried in vain is tried again; it grows with the time that this takes."""

PATIENCE = 4.0
"""What has been tried for this many pauses is tried again after one more."""

RESTING_S = 60.0
"""The longest such pause."""


def choose_retry_s(tried_s: float) -> float:
    """The pause before what has been tried for so long is tried again, in seconds.

    >>> choose_retry_s(0.0), choose_retry_s(40.0), choose_retry_s(9_000.0)
    (5.0, 10.0, 60.0)
    """
    return max(WAITING_S, min(tried_s / PATIENCE, RESTING_S))
