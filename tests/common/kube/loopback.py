"""An HTTP server on 127.0.0.1 that a test scripts: it answers with what a function returns."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Request:
    """What a client sent.

    Attributes:
        method: such as GET.
        path: without the query string.
        query: the last value of each parameter of the query string.
        content_type: of the body; empty for none.
        body: as text; bytes that are none are escaped (`surrogateescape`).
        headers: by their names in lower case.
    """

    method: str
    path: str
    query: dict[str, str]
    content_type: str = ""
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Response:
    """What the server answers.

    Attributes:
        body: JSON, text, bytes, or an iterator of JSON objects, or of bytes, that are sent line by
            line.
        status: of HTTP.
        headers: beside the usual content type, or in its place.
    """

    body: Any = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Answer = Callable[[Request], Response]


@contextmanager
def serve(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serves until the block ends, and yields the URL; `answer` runs in a thread per request."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            query = {
                name: values[-1]
                for name, values in parse_qs(parts.query, keep_blank_values=True).items()
            }
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size).decode(errors="surrogateescape")
            content_type = self.headers.get("Content-Type") or ""
            headers = {name.lower(): value for name, value in self.headers.items()}
            response = answer(Request(self.command, parts.path, query, content_type, body, headers))
            self.send_response_only(response.status)
            if "Date" not in response.headers:
                self.send_header("Date", self.date_time_string())
            text = isinstance(response.body, str)
            usual = {"Content-Type": "text/html" if text else "application/json"}
            for name, value in {**usual, **response.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if isinstance(response.body, Iterator):
                for line in response.body:
                    sent = line if isinstance(line, bytes) else json.dumps(line).encode()
                    self.wfile.write(sent + b"\n")
                    self.wfile.flush()
            elif isinstance(response.body, bytes):
                self.wfile.write(response.body)
            else:
                self.wfile.write((response.body if text else json.dumps(response.body)).encode())

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the base class
            """Requests are no news."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
