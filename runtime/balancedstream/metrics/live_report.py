"""The report of a run that goes on, at `/report`: what it costs, and who gets it.

The page is drawn in the driver, beside the job. So it is drawn at most every few seconds, only if
something happened, by one thread at a time, and never for more than a twentieth of a core. All who
ask meanwhile get the last one.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from balancedstream.core.printing import printable

log = logging.getLogger(__name__)

LEAST_PAUSE_S = 5.0
"""As often as the page asks a browser to fetch it again."""

PAUSE_FACTOR = 20.0
"""After a page that took a second to draw, the next is drawn 20 seconds later at the earliest."""

_PAGE = (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta http-equiv="refresh" content="{}">\n<meta name="viewport" content="width=device-width, '
    'initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
    "<title>BalancedStream</title>\n</head>\n"
    '<body style="font: 17px/1.5 system-ui, sans-serif; max-width: 42em; margin: 28px auto; '
    'padding: 0 20px">\n<h1 style="font-size: 26px">{}</h1>\n<p>{}</p>\n</body>\n</html>\n'
)

WAITING = _PAGE.format(
    2,
    "Waiting for a Spark session",
    "The job has started. It has not asked for a Spark session yet: when it does, this page shows "
    "what its queries wait for and what is done about their load. It fetches itself again every "
    "two seconds.",
)

FAILED = _PAGE.format(
    30,
    "The report cannot be drawn now",
    "The report cannot be drawn now; the job goes on. Its log says why. This page tries again "
    "every 30 seconds.",
)

_HEADERS = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
]

_LOCAL_DOMAINS = ("localhost", "local", "internal", "svc")
"""Ends of names that nobody can register, so that no stranger's name leads to this machine."""


class LiveReport:
    """Draws the page, and answers for it; `now_s` is a clock that never goes back."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._render: Callable[[], str] | None = None
        self._version: Callable[[], object] = lambda: None
        self._drawing = threading.Lock()
        self._drawn: tuple[bytes, object] | None = None
        self._next_s = 0.0

    def follow(self, render: Callable[[], str], version: Callable[[], object]) -> None:
        """Serves the report of a run from now on; see `Metrics.serve_report`."""
        with self._drawing:
            self._render, self._version = render, version
            self._drawn, self._next_s = None, 0.0

    def page(self) -> bytes:
        """The page, as it was a few seconds ago at the latest if somebody asked then."""
        drawn = self._drawn
        # Who has one need not wait for the thread that draws the next.
        if not self._drawing.acquire(blocking=drawn is None):
            assert drawn is not None  # noqa: S101 - it would have waited
            return drawn[0]
        try:
            return self._draw()
        finally:
            self._drawing.release()

    def _draw(self) -> bytes:
        if self._render is None:
            return WAITING.encode()
        began_s = self._now_s()
        version = self._version()
        if self._drawn is None or (began_s >= self._next_s and version != self._drawn[1]):
            self._drawn = self._try_to_render().encode("utf-8", "replace"), version
            ended_s = self._now_s()
            self._next_s = ended_s + max(LEAST_PAUSE_S, PAUSE_FACTOR * (ended_s - began_s))
        return self._drawn[0]

    def _try_to_render(self) -> str:
        assert self._render is not None  # noqa: S101 - asked before
        try:
            return self._render()
        except Exception:
            # To fail takes as long as to draw, so it is not tried more often either.
            log.exception("the live report cannot be drawn; the job is not affected")
            return FAILED

    def answer(self, environ: Mapping[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answers a request as a WSGI application."""
        refusal = find_refusal(environ)
        if refusal:
            start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{refusal}\n".encode()]
        page = self.page()
        start_response("200 OK", [*_HEADERS, ("Content-Length", str(len(page)))])
        return [] if environ.get("REQUEST_METHOD") == "HEAD" else [page]


def find_refusal(environ: Mapping[str, Any]) -> str:
    """Why a request gets no report; empty if it gets one.

    A page of another site must neither read the report under a name of its own that leads here
    (DNS rebinding), nor have a browser ask for it. A link to the report may be followed.

    >>> find_refusal({"HTTP_HOST": "127.0.0.1:9090"})
    ''
    >>> find_refusal({"HTTP_HOST": "rebound.example.com"}).partition(":")[0]
    'the report is not served under the name rebound.example.com'
    """
    host = str(environ.get("HTTP_HOST", ""))
    if host and not _is_own_name(_cut_port(host)):
        return (
            f"the report is not served under the name {printable(host)[:80]}: open it by an "
            "address, localhost or the name of its machine; a proxy before it must set such a Host"
        )
    is_followed = environ.get("HTTP_SEC_FETCH_MODE") == "navigate" and (
        environ.get("HTTP_SEC_FETCH_DEST") == "document"
    )
    is_foreign = environ.get("HTTP_SEC_FETCH_SITE") in {"cross-site", "same-site"}
    if (is_foreign and not is_followed) or not _is_own_origin(environ):
        return "the report is not for pages of other sites: open it in a window of its own"
    return ""


def _is_own_origin(environ: Mapping[str, Any]) -> bool:
    origin = str(environ.get("HTTP_ORIGIN", ""))
    return not origin or origin.partition("://")[2] == environ.get("HTTP_HOST")


def _cut_port(host: str) -> str:
    """The name or address in a Host header.

    >>> _cut_port("[::1]:80"), _cut_port("spark:80"), _cut_port("10.0.0.7")
    ('::1', 'spark', '10.0.0.7')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


@cache
def _find_own_names() -> frozenset[str]:
    """What this machine calls itself; asked once, because it asks a name server."""
    return frozenset(name.lower() for name in (socket.gethostname(), socket.getfqdn()))


def _is_own_name(name: str) -> bool:
    name = name.lower().removesuffix(".")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        labels = name.split(".")
        return len(labels) == 1 or labels[-1] in _LOCAL_DOMAINS or name in _find_own_names()
    return True
