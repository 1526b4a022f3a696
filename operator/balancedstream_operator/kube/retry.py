"""When the operator tries again what the API server did not do: pure."""

from __future__ import annotations

WAITING_S = 5.0
"""The shortest pause before another try; pauses grow with the time since the first try."""

PATIENCE = 4.0
"""A pause is the time since the first try, divided by this."""

RESTING_S = 60.0
"""The longest pause before another try."""


def choose_retry_s(tried_s: float) -> float:
    """The pause before another try, in seconds.

    >>> choose_retry_s(0.0), choose_retry_s(40.0), choose_retry_s(9_000.0)
    (5.0, 10.0, 60.0)
    """
    return max(WAITING_S, min(tried_s / PATIENCE, RESTING_S))
