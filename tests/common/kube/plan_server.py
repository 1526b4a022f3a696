"""An API server on loopback that knows what a driver asks of it, and fails where a test wants it.

It lists and watches one ConfigMap, keeps another one, and lists and deletes pods. A watch stays
open until the test cuts it.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any
from urllib.parse import parse_qsl, urlsplit

CUT = b""
"""Ends the open watch, as a connection that is cut does."""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked.

    Attributes:
        at_s: monotonic clock.
        method: HTTP's.
        path: without the query.
        query: its parameters.
        body: the JSON that came with it; None where none did.
    """

    at_s: float
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"


class PlanServer(ThreadingHTTPServer):
    """Serves on a free port of 127.0.0.1 until it is closed.

    Attributes:
        data: of the one ConfigMap that is listed; None while there is none.
        patched: what patches made of the other one; None while there is none.
        version: what a list gives as `resourceVersion`.
        failures: status codes that the next requests are refused with, in this order.
        requests: what was asked so far, oldest first.
        pods: names of the pods that are there.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.data: dict[str, str] | None = None
        self.patched: dict[str, str] | None = {}
        self.version = 1
        self.failures: deque[int] = deque()
        self.requests: list[Request] = []
        self.pods: list[str] = []
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def lists(self) -> list[Request]:
        """The requests that listed ConfigMaps."""
        lists = [r for r in self.requests if r.path.endswith("/configmaps") and not r.is_watch]
        return [r for r in lists if r.method == "GET"]

    def watches(self) -> list[Request]:
        return [r for r in self.requests if r.is_watch]

    def watches_after(self, count: int) -> Callable[[], bool]:
        """Whether there have been more than so many watches."""
        return lambda: len(self.watches()) > count

    def patches(self) -> list[Request]:
        return [r for r in self.requests if r.method == "PATCH"]

    def say(self, kind: str, content: Any) -> None:
        """Sends an event to the open watch, or to the next one."""
        self._lines.put(json.dumps({"type": kind, "object": content}).encode() + b"\n")

    def say_bytes(self, line: bytes) -> None:
        """Sends a watch anything at all; `CUT` ends it."""
        self._lines.put(line)

    def config_map(self, data: dict[str, str] | None) -> dict[str, Any]:
        """The ConfigMap with this content."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "clicks-plan", "resourceVersion": str(self.version)},
            "data": data,
        }

    def cut_all(self) -> None:
        """Ends every watch; one that a client has left is still open here."""
        for _ in range(1 + len(self.watches())):
            self.say_bytes(CUT)

    def close(self) -> None:
        """Ends all watches and the server."""
        self.cut_all()
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: PlanServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        request = self._take_down()
        if self._fails():
            return
        if request.is_watch:
            self._serve_watch()
            return
        if request.path.endswith("-answer"):
            if self.server.patched is None:
                self._answer(404, {"kind": "Status", "status": "Failure", "code": 404})
            else:
                self._answer(200, self.server.config_map(self.server.patched))
            return
        kind, items = "ConfigMapList", []
        if request.path.endswith("/pods"):
            kind, items = "PodList", [{"metadata": {"name": name}} for name in self.server.pods]
        elif self.server.data is not None:
            items = [self.server.config_map(self.server.data)]
        version = {"resourceVersion": str(self.server.version)}
        self._answer(200, {"kind": kind, "apiVersion": "v1", "metadata": version, "items": items})

    def do_PATCH(self) -> None:
        request = self._take_down()
        if not self._fails():
            self.server.patched = {**(self.server.patched or {}), **request.body["data"]}
            self._answer(200, self.server.config_map(self.server.patched))

    def do_DELETE(self) -> None:
        name = self._take_down().path.rpartition("/")[2]
        if not self._fails():
            self.server.pods.remove(name)
            self._answer(200, {"kind": "Pod", "metadata": {"name": name}})

    def _take_down(self) -> Request:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        request = Request(time.monotonic(), self.command, url.path, query, body)
        self.server.requests.append(request)
        return request

    def _fails(self) -> bool:
        if not self.server.failures:
            return False
        code = self.server.failures.popleft()
        self._answer(code, {"kind": "Status", "status": "Failure", "code": code})
        return True

    def _answer(self, code: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _serve_watch(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while (line := self.server._lines.get()) != CUT:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the class has it
        pass
