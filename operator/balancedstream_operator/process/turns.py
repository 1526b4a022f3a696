"""Has drivers replaced one at a time, where an annotation asks for it of many streams."""

from __future__ import annotations

import threading

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.status import Status
from balancedstream_operator.kube.clocks import has_passed

TURN_S = 600.0
"""A stream whose new driver is not ready after this long does not keep the others waiting."""


class Turns:
    """Gives streams their turn, to any thread.

    What is kept here may be lost: a stream that begins after a restart of the operator then does
    not wait for one that had begun before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: Stream | None = None
        self._taken_s = 0.0

    def take(self, stream: Stream, now_s: float) -> Stream | None:
        """Takes the turn for a stream, unless another one has it; then that one is returned.

        >>> turns, first, second = Turns(), Stream("shop", "a", "1"), Stream("shop", "b", "2")
        >>> turns.take(first, 0.0), str(turns.take(second, 9.0)), turns.take(second, 600.0)
        (None, 'shop/a', None)
        """
        with self._lock:
            holder = self._holder
            if holder not in {None, stream} and not has_passed(TURN_S, self._taken_s, now_s):
                return holder
            if holder != stream:
                self._holder, self._taken_s = stream, now_s
            return None

    def see(self, stream: Stream, status: Status) -> None:
        """Ends the turn of a stream whose driver is ready again, or is not to run any more."""
        if status.is_ready or status.phase == "Suspended":
            self.end(stream)

    def end(self, stream: Stream) -> None:
        """Ends the turn of a stream, if it has it."""
        with self._lock:
            if self._holder == stream:
                self._holder = None
