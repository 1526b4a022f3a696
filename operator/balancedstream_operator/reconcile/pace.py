"""Lets no stream, and no server that a stream names, hold up the passes over the others."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from math import inf
from typing import Any

from balancedstream_operator.observe.endpoints import Defaults, has_query, names_own_prometheus

WAITING_S = 5.0
"""Pause before what was tried in vain is tried again; it grows with the time that this takes."""

PATIENCE = 4.0
"""What has been tried for this many pauses is tried again after one more."""

RESTING_S = 60.0
"""The longest such pause."""

THREADS = 8
"""Passes at the same time; each mostly waits for Prometheus and the API server."""

OTHER_THREADS = 4
"""Passes at the same time over streams that name a Prometheus, or have a query, of their own."""

REST = 5.0
"""A pass is followed by a pause of at least so many times as long: a stream whose Prometheus takes
its time has a sixth of a thread at most."""


class PassThreads:
    """Threads for passes.

    Whoever names a server can let it drip bytes, up to the deadline of each question. So passes
    that ask another server than the operator's own, or a query that somebody wrote, wait for
    threads among themselves only.

    Args:
        defaults: which server is the operator's own.
    """

    def __init__(self, defaults: Defaults) -> None:
        self._defaults = defaults
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="pass")
        self._others = ThreadPoolExecutor(OTHER_THREADS, thread_name_prefix="other-pass")

    def choose(self, resource: Mapping[str, Any]) -> Executor:
        """Those for a pass over a BalancedStream."""
        other = names_own_prometheus(resource, self._defaults) or has_query(resource)
        return self._others if other else self._threads

    def wait(self) -> None:
        """Returns when the passes that run have ended, and lets no other begin; it blocks."""
        for threads in (self._threads, self._others):
            threads.shutdown(wait=True, cancel_futures=True)


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


def choose_retry_s(tried_s: float) -> float:
    """The pause before what has been tried for so long is tried again, in seconds.

    >>> choose_retry_s(0.0), choose_retry_s(40.0), choose_retry_s(9_000.0)
    (5.0, 10.0, 60.0)
    """
    return max(WAITING_S, min(tried_s / PATIENCE, RESTING_S))


def choose_rest_s(interval_s: float, took_s: float) -> float:
    """The pause after a pass, in seconds.

    Args:
        interval_s: until the next pass, if the passes are short.
        took_s: how long the pass took.

    >>> choose_rest_s(15.0, 0.3), choose_rest_s(15.0, 20.0)
    (15.0, 100.0)
    """
    return max(interval_s, REST * took_s)
