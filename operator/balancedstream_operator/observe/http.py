"""HTTP sessions for servers that are not trusted: bounded in time and size, and without redirects.

The time-outs of requests are for one read each, so a server that drips bytes would hold a thread
for ever. Here one deadline counts for the whole answer. What is made of an answer takes several
times its size in memory, so large ones are taken in one after the other.
"""

from __future__ import annotations

import http.client
import io
import json
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from balancedstream_operator.kube.proxies import explain_status

DEADLINE_S = 10.0
"""From the request to the last byte of the answer."""

MIB = 1024 * 1024

_WORDS_BYTES = 8192
"""Part of an error page that the operator searches for words."""

SMALL_BYTES = MIB
"""A question with larger answers than this waits for every other such question."""


class AnswerError(requests.RequestException):
    """A server sent no usable answer; the message quotes nothing of it."""


BYTES_PER_VALUE = 5
"""An answer of nothing but brackets would take 20 times its size in memory. A sample, which is
three values to JSON, has some 20 bytes."""


class AnswerBudget:
    """Bounds the memory of answers: one large answer at a time, and any number of small ones.

    Args:
        max_bytes: of all answers to one question.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._large = threading.Lock()
        self._mine = threading.local()

    @property
    def has_large(self) -> bool:
        """Whether a question with large answers is under way."""
        return self._large.locked()

    @contextmanager
    def question(self) -> Iterator[None]:
        """A question of this thread: its requests, and the objects made from their answers."""
        self._mine.bytes, self._mine.is_large = 0, False
        try:
            yield
        finally:
            if self._mine.is_large:
                self._mine.is_large = False
                self._large.release()

    def take(self, count: int, deadline_s: float) -> None:
        """Takes bytes for this thread's question; may wait until another large question ends.

        Raises:
            AnswerError: the answers are too large, or the other question outlasts the deadline.
        """
        mine = self._mine
        mine.bytes += count
        if mine.bytes > self.max_bytes:
            message = f"its answers have more than {self.max_bytes} bytes"
            raise AnswerError(message)
        if mine.bytes > SMALL_BYTES and not mine.is_large:
            if not self._large.acquire(timeout=max(deadline_s - time.monotonic(), 0.0)):
                message = "other streams' large answers came first; the next look asks again"
                raise AnswerError(message)
            mine.is_large = True

    def check(self, text: str) -> None:
        """Refuses an answer with more values than the largest answer of a real Prometheus.

        Raises:
            AnswerError: the answer has too many values.
        """
        most = self.max_bytes // BYTES_PER_VALUE
        if sum(map(text.count, ",[{")) > most:
            message = f"its answer has more than {most} values"
            raise AnswerError(message)


@dataclass(frozen=True, slots=True)
class AnswerBudgets:
    """The budgets of a process: no server that a stream names uses up the operator's own.

    Attributes:
        own: for the operator's own Prometheus; 2,000 partitions, scraped every 5 s, make 16 MB.
        others: for all servers that streams name, together.
        queries: for the queries of streams: a number, and what a server says beside it.
    """

    own: AnswerBudget = field(default_factory=lambda: AnswerBudget(32 * MIB))
    others: AnswerBudget = field(default_factory=lambda: AnswerBudget(16 * MIB))
    queries: AnswerBudget = field(default_factory=lambda: AnswerBudget(MIB // 16))


class BoundedSession(requests.Session):
    """A session whose answers end in time and fit into memory; other answers than 200 raise.

    Its requests belong to a question, see `AnswerBudget`.

    Args:
        secret: how to authenticate each request, by the keys of a Secret: `token` (bearer);
            `username` and `password`; `headers`, one a line; `ca.crt`, certificates to trust
            instead of the usual ones; `tls.crt` and `tls.key`, the client's certificate.
        budget: for the memory of its answers.
        read: parses the text of an answer, for `json` of its response.
        explains: whether errors quote the answer; only for a trusted server.

    Attributes:
        clock_ahead_s: how far the server's clock was ahead at the last answer; 0.0 if unknown.
    """

    def __init__(
        self,
        secret: Mapping[str, str],
        budget: AnswerBudget,
        read: Callable[[str], Any] = json.loads,
        *,
        explains: bool = False,
    ) -> None:
        super().__init__()
        self._budget = budget
        self._read = read
        self._explains = explains
        self.clock_ahead_s = 0.0
        lines = [line.partition(":") for line in secret.get("headers", "").splitlines()]
        self.headers.update({name.strip(): value.strip() for name, _, value in lines if name})
        if token := secret.get("token", "").strip():
            self.headers["Authorization"] = f"Bearer {token}"
        if username := secret.get("username", "").strip():
            self.auth = username, secret.get("password", "").rstrip("\r\n")
        # Python's TLS takes certificates from files only; they go with the session.
        pem = {key: text for key in ("ca.crt", "tls.crt", "tls.key") if (text := secret.get(key))}
        if not pem.keys() & {"ca.crt", "tls.crt"}:
            return
        folder = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        for key in ("ca.crt", "tls.crt", "tls.key"):
            (folder / key).write_text(pem.get(key, ""), "utf-8")
        if "ca.crt" in pem:
            self.verify = str(folder / "ca.crt")
        if "tls.crt" in pem:
            self.cert = str(folder / "tls.crt"), str(folder / "tls.key")

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Sends a request and reads the whole answer.

        Raises:
            AnswerError: the answer is too large, too late, or has another status than 200.
        """
        deadline_s = time.monotonic() + DEADLINE_S
        response = super().request(*args, **{**kwargs, "stream": True, "allow_redirects": False})
        try:
            if response.status_code != 200:
                own = self._explains
                body = response.raw.read(_WORDS_BYTES, decode_content=True) if own else b""
                raise AnswerError(
                    explain_status(response.status_code, response.headers, body, own=own)
                )
            with io.BytesIO() as body:
                for chunk in response.raw.stream(2**16, decode_content=True):
                    self._budget.take(len(chunk), deadline_s)
                    body.write(chunk)
                    if time.monotonic() > deadline_s:
                        message = f"its answer took more than {DEADLINE_S:.0f} s"
                        raise AnswerError(message)
                texts = [str(body.getbuffer(), "utf-8", "replace")]
            self._budget.check(texts[0])
            self.clock_ahead_s = _read_clock(response.headers, time.time())
        except Exception:
            response.close()
            raise
        # Only once: requests itself would hold the answer three times in memory.
        response.json = lambda **_: self._read(texts.pop())  # type: ignore[method-assign]
        return response

    def resolve_redirects(self, *_: Any, **__: Any) -> Generator[requests.Response, None, None]:
        """Follows no redirect."""
        yield from ()


def _read_clock(headers: Mapping[str, str], now_s: float) -> float:
    """How far the server's clock is ahead; 0.0 if the answer does not tell its time.

    >>> _read_clock({"Date": "Thu, 01 Jan 1970 00:01:00 GMT"}, 50.0), _read_clock({}, 5.0)
    (10.0, 0.0)
    """
    try:
        dated_s = parsedate_to_datetime(headers["Date"]).timestamp()
        # A cache sends the date of the original answer.
        return dated_s + float(headers.get("Age") or 0.0) - now_s
    except (KeyError, ValueError, TypeError, OverflowError):
        return 0.0


class BoundedAdapter(HTTPAdapter):
    """Connections on which the deadline counts for headers and body together."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """As its base class, with pools of bounded connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """As its base class, with pools of such connections."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager


class _DeadlineReader(io.RawIOBase):
    def __init__(self, sock: Any, deadline_s: float) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._deadline_s = deadline_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0.0:
            message = f"the answer took more than {DEADLINE_S:.0f} s"
            raise TimeoutError(message)
        self._sock.settimeout(left_s)
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: Any, *args: Any, deadline_s: float, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = io.BufferedReader(_DeadlineReader(sock, deadline_s))


class _Bounded(HTTPConnection):
    def connect(self) -> None:
        # A proxy answers while the connection is made.
        self._set_deadline()
        super().connect()

    def getresponse(self) -> Any:
        self._set_deadline()
        return super().getresponse()

    def _set_deadline(self) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        self.response_class = partial(_Response, deadline_s=deadline_s)  # type: ignore[assignment]


class _TlsBounded(_Bounded, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Bounded


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsBounded


_POOLS = {"http": _Pool, "https": _TlsPool}
