"""The HTTP server for Prometheus and for browsers, and what it says when it cannot serve."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from balancedstream.errors import InvalidInputError, PortInUseError
from balancedstream.listening import choose_address
from balancedstream.metrics.live_report import LiveReport

_OTHER_PORT = "Choose another port with --metrics-port; 0 picks a free one."
_OTHER_ADDRESS = "Use one of this machine's: 127.0.0.1, or 0.0.0.0 for all of them."


class Server:
    """Serves one collector's metrics at `/metrics`, a report and probes, from a daemon thread.

    The address without a path leads to the report.

    Kubernetes' probes ask whether a query runs, and whether a restart would mend something. A query
    that hangs, or an executor that is missing, is no reason to restart a driver: the next one would
    find the same sink or cluster. A process without Spark is. The answers are made of what the loop
    said, and take no lock, so that no scrape can delay a probe.

    Attributes:
        report: the page at `/report`.
    """

    def __init__(self, collector: Collector) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        self._server: WSGIServer | None = None
        self._running: set[str] = set()
        self._without_spark = False
        self.report = LiveReport()

    def start(self, port: int, addr: str) -> None:
        """Starts to serve; a server that already runs is closed first.

        Args:
            port: TCP port; 0 picks a free one.
            addr: address to listen on; any of 0.0.0.0 and :: is all of both families.

        Raises:
            PortInUseError: something else listens on that port.
            InvalidInputError: the port is no port or not permitted, or the address is not one of
                this machine's.
        """
        self.close()
        if not 0 <= port <= 65_535:
            message = _not_served(f"--metrics-port: {port} is not a port, 0 to 65535", _OTHER_PORT)
            raise InvalidInputError(message)
        try:
            self._server, _ = start_http_server(port, choose_address(addr), registry=self._registry)
        except PermissionError as error:
            message = _not_served(f"--metrics-port: {port} is not for this user", _OTHER_PORT)
            raise InvalidInputError(message) from error
        except (OSError, UnicodeError) as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                message = _not_served(f"--metrics-port: {port} on {addr} is in use", _OTHER_PORT)
                raise PortInUseError(message) from error
            message = _not_served(f"metrics address: {addr!r}: {error}", _OTHER_ADDRESS)
            raise InvalidInputError(message) from error
        self._server.set_app(partial(self._answer, self._server.get_app()))

    @property
    def port(self) -> int | None:
        """The TCP port; None before `start` and after `close`."""
        return None if self._server is None else self._server.server_port

    def close(self) -> None:
        """Stops serving and frees the port; does nothing if nothing is served."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

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

    def _answer(
        self, metrics: Any, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answers a request as a WSGI application; `metrics` is one for all other paths."""
        match environ["PATH_INFO"]:
            case "/":
                # Who types the address without a path is a person.
                start_response("302 Found", [("Location", "/report"), ("Content-Length", "0")])
                return []
            case "/report" | "/report/":
                return self.report.answer(environ, start_response)
            case "/readyz":
                good = bool(self._running)
                said = "a query runs" if good else "no query runs"
            case "/healthz":
                good = not self._without_spark
                said = "alive" if good else "Spark has stopped, and the script has not ended"
            case _:
                answer: Iterable[bytes] = metrics(environ, start_response)
                return answer
        status = "200 OK" if good else "503 Service Unavailable"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{said}\n".encode()]


def _not_served(problem: str, remedy: str) -> str:
    return (
        f"{problem}; /metrics cannot be served, so the job was not started: no data was read, "
        f"changed or lost. {remedy}"
    )
