"""When the operator measures and decides on a stream: pure."""

from __future__ import annotations

from math import inf


class Pace:
    """The time of the next decision: after an interval, or at once if something is new."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Lets the next pass decide."""
        self._seen: object = None
        self._at_s = -inf

    def note(self, seen: object, now_s: float) -> None:
        """Notes a decision and what it depends on."""
        self._seen, self._at_s = seen, now_s

    def is_due(self, seen: object, interval_s: float, now_s: float) -> bool:
        """Whether something is new, or the interval is over, or the clock was set back."""
        return seen != self._seen or not 0.0 <= now_s - self._at_s < interval_s

    def left_s(self, interval_s: float, now_s: float) -> float:
        """The seconds until the next decision, if nothing is new by then.

        >>> pace = Pace()
        >>> pace.note("a", 0.0)
        >>> [pace.left_s(75.0, now_s) for now_s in (0.0, 60.0, 90.0)]
        [75.0, 15.0, 75.0]
        """
        left_s = self._at_s + interval_s - now_s
        return left_s if 0.0 < left_s <= interval_s else interval_s
