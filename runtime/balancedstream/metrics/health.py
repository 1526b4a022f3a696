"""What Kubernetes' probes ask: whether a query runs, and whether a restart would mend something.

The answers are made of what the loop said, and cost nothing: rendering `/metrics` instead takes as
long as there are partitions. Nothing here takes a lock, so that no scrape can delay a probe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

_Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Health:
    """Knows which queries run, and whether Spark does.

    A query that hangs, or an executor that is missing, is no reason to restart a driver: the next
    one would find the same sink or cluster. A process without Spark is.
    """

    def __init__(self) -> None:
        self._running: set[str] = set()
        self._without_spark = False

    @property
    def ready(self) -> bool:
        """Whether a query runs."""
        return bool(self._running)

    @property
    def alive(self) -> bool:
        """Whether there is a Spark application, or one can still start."""
        return not self._without_spark

    def start_query(self, query: str) -> None:
        """A query runs; so Spark does, perhaps in another session than before."""
        self._running.add(query)
        self._without_spark = False

    def end_query(self, query: str) -> None:
        """A query ended."""
        self._running.discard(query)

    def end_application(self) -> None:
        """Spark stopped; a script that goes on without it reads and writes nothing any more."""
        self._running.clear()
        self._without_spark = True

    def serve_with(self, metrics: _Wsgi) -> _Wsgi:
        """A WSGI application that answers `/readyz` and `/healthz`, and all else by another one.

        Args:
            metrics: the other one.
        """

        def application(
            environ: dict[str, Any], start_response: Callable[..., Any]
        ) -> Iterable[bytes]:
            match environ["PATH_INFO"]:
                case "/readyz":
                    good, said = self.ready, "a query runs" if self.ready else "no query runs"
                case "/healthz":
                    good = self.alive
                    said = "alive" if good else "Spark has stopped, and the script has not ended"
                case _:
                    return metrics(environ, start_response)
            status = "200 OK" if good else "503 Service Unavailable"
            start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{said}\n".encode()]

        return application
