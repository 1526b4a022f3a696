"""Threads for passes: no server that a stream names holds up the passes over other streams."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from balancedstream_operator.observe.endpoints import has_query, names_own_prometheus
from balancedstream_operator.settings import Settings

THREADS = 8
"""Passes at the same time; each mostly waits for Prometheus and the API server."""

OTHER_THREADS = 4
"""Passes at the same time over streams that name a Prometheus, or have a query, of their own."""


class PassThreads:
    """Threads for passes.

    Whoever names a server can let it drip bytes, up to the deadline of each question. So passes
    that ask another server than the operator's own, or a query that somebody wrote, wait for
    threads among themselves only.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="pass")
        self._others = ThreadPoolExecutor(OTHER_THREADS, thread_name_prefix="other-pass")

    def choose(self, resource: Mapping[str, Any]) -> Executor:
        """The threads for a pass over a BalancedStream."""
        other = names_own_prometheus(resource, self._settings) or has_query(resource)
        return self._others if other else self._threads

    def wait(self) -> None:
        """Returns when the passes that run have ended, and lets no other begin; it blocks."""
        for threads in (self._threads, self._others):
            threads.shutdown(wait=True, cancel_futures=True)
