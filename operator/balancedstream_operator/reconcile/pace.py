"""How often a stream is looked at and decided on: pure."""

from __future__ import annotations

from math import inf

from balancedstream_operator.kube.retry import RESTING_S

REST = 5.0
"""A pass is followed by a pause of at least so many times as long: a stream whose Prometheus takes
its time has a sixth of a thread at most."""


class Pace:
    """When a stream is decided on: at each interval, and at once where something is new."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Lets it be decided on at the next look."""
        self._seen: object = None
        self._at_s = -inf

    def note(self, seen: object, now_s: float) -> None:
        """Notes that it is decided on, and by what; `now_s` counts from the Unix epoch."""
        self._seen, self._at_s = seen, now_s

    def is_due(self, seen: object, interval_s: float, now_s: float) -> bool:
        """Whether something is new, or the interval is over; a clock may be set back."""
        return seen != self._seen or not 0.0 <= now_s - self._at_s < interval_s

    def choose_pause_s(self, interval_s: float, now_s: float) -> float:
        """The seconds until the next look: what crashes is noticed, however long the interval is.

        >>> pace = Pace()
        >>> pace.note("a", 0.0)
        >>> [pace.choose_pause_s(75.0, now_s) for now_s in (0.0, 60.0, 90.0)]
        [60.0, 15.0, 60.0]
        """
        left_s = self._at_s + interval_s - now_s
        return min(left_s if 0.0 < left_s <= interval_s else interval_s, RESTING_S)


def choose_rest_s(interval_s: float, took_s: float) -> float:
    """The pause after a pass, in seconds.

    Args:
        interval_s: until the next pass, if the passes are short.
        took_s: how long the pass took.

    >>> choose_rest_s(15.0, 0.3), choose_rest_s(15.0, 20.0)
    (15.0, 100.0)
    """
    return max(interval_s, REST * took_s)
