"""A proxy before the object store that can refuse what it is asked, and take its time."""

from __future__ import annotations

import random
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_OF_THE_CONNECTION = {"connection", "expect", "keep-alive", "transfer-encoding"}

_BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
"""What S3 says in its 503."""


class FaultyStore(ThreadingHTTPServer):
    """Serves on a free port until it is closed.

    Args:
        address: of this machine, for the pods.
        upstream: URL of the object store.

    Attributes:
        refuses: says whether the next request is answered with 503.
        refused_share: of requests that are answered so at other times, drawn one by one.
        delay_s: of each request.
        refused: requests so far that were.
    """

    daemon_threads = True

    def __init__(self, address: str, upstream: str) -> None:
        super().__init__((address, 0), _Handler)
        self.url = f"http://{address}:{self.server_port}"
        self.upstream = urlsplit(upstream).netloc
        self.refuses = False
        self.refused_share = 0.0
        self.delay_s = 0.0
        self.refused = 0
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Ends the server."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is killed leaves broken connections behind."""


class _Handler(BaseHTTPRequestHandler):
    server: FaultyStore
    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        body = self._read_body()
        time.sleep(self.server.delay_s)
        if self.server.refuses or random.random() < self.server.refused_share:
            self.server.refused += 1
            self._answer(503, {"Content-Type": "application/xml"}, _BUSY)
            return
        upstream = HTTPConnection(self.server.upstream, timeout=60)
        try:
            # What is signed must not change, and the host is.
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in _forwarded(self.headers):
                upstream.putheader(name, value)
            if "Content-Length" not in self.headers and body:
                upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            self._answer(answer.status, dict(_forwarded(answer.headers)), answer.read())
        finally:
            upstream.close()

    def _read_body(self) -> bytes:
        """All of what was sent; pyarrow does not say before how much it is."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        # A HEAD is answered with the length of what it did not ask for.
        length = {} if "Content-Length" in headers else {"Content-Length": str(len(body))}
        for name, value in {**headers, **length}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the class has it
        """Requests are no news."""


def _forwarded(headers: Any) -> list[tuple[str, str]]:
    return [(n, v) for n, v in headers.items() if n.lower() not in _OF_THE_CONNECTION]
