"""A proxy before the API server that fails as Sieve's do (Sun et al., OSDI 2022).

It answers without TLS and credentials on this machine, speaks to the API server as the
administrator, and can kill its client after a write, show it old streams, lose events, and say that
those which it asks for are gone.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import urllib3
from kubernetes import client, config

Event = dict[str, Any]

_FORWARDED = ("Accept", "Content-Type", "User-Agent")
_STREAMS = re.compile(r"/balancedstreams$")
_NO_OBJECTS = re.compile(r"/(events|leases|localsubjectaccessreviews)(/|$)")
"""Paths of writes that change nothing that a stream consists of."""
_STATUS = {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired"}
_GONE = json.dumps({"type": "ERROR", "object": _STATUS}).encode() + b"\n"
"""What the API server tells a watch that begins before the events that it still has."""


class FaultyApi(ThreadingHTTPServer):
    """Serves on a free port of 127.0.0.1 until it is closed.

    Args:
        kubeconfig: of the cluster's administrator.

    Attributes:
        writes: of which a stream's objects were the aim, oldest first: method and path.
        loses: says of an event on streams whether it gets lost.
        lost: events that got lost.
        old_lists: old lists that were served.
        too_old: watches that were told that their events are gone.
    """

    daemon_threads = True

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        found = client.Configuration()
        config.load_kube_config(str(kubeconfig), client_configuration=found)
        self.upstream = str(found.host)
        self.pool = urllib3.PoolManager(
            cert_file=found.cert_file, key_file=found.key_file, ca_certs=found.ssl_ca_cert,
            maxsize=32, retries=False,
        )  # fmt: skip
        self.writes: list[str] = []
        self.loses: Callable[[Event], bool] = lambda event: False
        self.lost = 0
        self.old_lists = 0
        self.too_old = 0
        self._forgets = False
        self._lock = threading.Lock()
        self._kill: tuple[str, int, Callable[[], None]] | None = None
        self._old: dict[str, bytes] | None = None
        self._lists: dict[str, bytes] = {}
        self._is_fresh = threading.Event()
        self._is_fresh.set()
        self._watches: list[socket.socket] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def kill_after(self, stream: str, count: int, kill: Callable[[], None]) -> None:
        """Calls `kill` when so many more writes to a stream's objects are done.

        The API server has done the last of them, and the client does not get its answer.
        """
        with self._lock:
            self._kill = stream, count, kill

    def serve_old_lists(self) -> None:
        """Streams are listed as they were listed last, and no watch tells of what came since."""
        with self._lock:
            self._old = dict(self._lists)
            self._is_fresh.clear()

    def catch_up(self) -> None:
        """Lists are fresh again, and watches tell of all that they have held back."""
        with self._lock:
            self._old = None
            self._is_fresh.set()

    def cut_watches(self) -> None:
        """Ends the watches that are open; their clients begin new ones."""
        with self._lock:
            watches, self._watches = self._watches, []
        for watch in watches:
            with suppress(OSError):
                watch.shutdown(socket.SHUT_RDWR)

    def forget_events(self) -> None:
        """Ends the watches that are open, and tells the next one that its events are gone (410)."""
        with self._lock:
            self._forgets = True
        self.cut_watches()

    def is_too_old(self) -> bool:
        """Whether a watch that begins asks for events that are gone."""
        with self._lock:
            forgets, self._forgets = self._forgets, False
            self.too_old += forgets
            return forgets

    def close(self) -> None:
        """Ends the server and its watches."""
        self.catch_up()
        self.cut_watches()
        self.shutdown()
        self.server_close()

    def find_old_list(self, path: str) -> bytes | None:
        """What to answer to a list of streams; None asks the API server."""
        with self._lock:
            old = None if self._old is None else self._old.get(path)
            self.old_lists += old is not None
            return old

    def remember_list(self, path: str, body: bytes) -> None:
        """Keeps a list of streams for later."""
        with self._lock:
            self._lists[path] = body

    def add_watch(self, connection: socket.socket) -> None:
        """Has a watch cut when all are."""
        with self._lock:
            self._watches.append(connection)

    def lets_through(self, event: Event) -> bool:
        """Whether a watch tells of an event; returns when nothing is held back."""
        self._is_fresh.wait()
        lost = self.loses(event)
        self.lost += lost
        return not lost

    def add_write(self, method: str, path: str) -> bool:
        """Counts a write that is done; whether the client still gets the answer."""
        if _NO_OBJECTS.search(path):
            return True
        with self._lock:
            self.writes.append(f"{method} {path}")
            if self._kill is None or f"/{self._kill[0]}" not in path:
                return True
            stream, left, kill = self._kill
            self._kill = (stream, left - 1, kill) if left > 1 else None
            if left == 1:
                kill()
            return left > 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is killed leaves broken connections behind."""


class _Handler(BaseHTTPRequestHandler):
    server: FaultyApi
    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        url = urlsplit(self.path)
        lists_streams = self.command == "GET" and bool(_STREAMS.search(url.path))
        if lists_streams and "watch" in parse_qs(url.query):
            self._serve_watch()
            return
        old = self.server.find_old_list(url.path) if lists_streams else None
        if old is not None:
            self._answer(200, "application/json", old)
            return
        response = self._ask()
        body = response.read()
        if lists_streams and response.status == 200:
            self.server.remember_list(url.path, body)
        if self.command != "GET" and not self.server.add_write(self.command, url.path):
            self.close_connection = True
            return
        self._answer(response.status, response.headers.get("Content-Type", ""), body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

    def _ask(self) -> urllib3.BaseHTTPResponse:
        length = int(self.headers.get("Content-Length") or 0)
        return self.server.pool.request(
            self.command,
            f"{self.server.upstream}{self.path}",
            body=self.rfile.read(length) if length else None,
            headers={name: self.headers[name] for name in _FORWARDED if name in self.headers},
            preload_content=False,
            redirect=False,
        )

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _serve_watch(self) -> None:
        response = self._ask()
        self.send_response(response.status)
        self.send_header("Content-Type", response.headers.get("Content-Type", ""))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.server.add_watch(self.connection)
        self.close_connection = True
        lines = [_GONE] if self.server.is_too_old() else _split_lines(response)
        try:
            for line in lines:
                if self.server.lets_through(json.loads(line)):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        finally:
            response.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the class has it
        """Requests are no news."""


def _split_lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The lines of an answer, each as soon as it is there."""
    rest = b""
    for chunk in response.read_chunked(decode_content=True):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in lines)
