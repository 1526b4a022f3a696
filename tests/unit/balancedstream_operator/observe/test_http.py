"""A server may be slow, huge or curious: answers end in time, and secrets go where they belong."""

from __future__ import annotations

import base64
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from loopback import Request, Response, serve

from balancedstream.core.policy import Policy
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe import http as sessions
from balancedstream_operator.observe.endpoints import Endpoint, Subject
from balancedstream_operator.observe.http import AnswerBudget, AnswerBudgets
from balancedstream_operator.observe.prometheus import Prometheus

NOTHING = Response({"status": "success", "data": {"resultType": "matrix", "result": []}})
NO_METRICS = "Prometheus has no metrics of this stream"


def why_missing(
    url: str, secret: dict[str, str] | None = None, budgets: AnswerBudgets | None = None
) -> str:
    """Why there is no measurement; a server that answers as it should has no metrics."""
    prometheus = Prometheus(
        Endpoint(url, tuple((secret or {}).items())), budgets or AnswerBudgets()
    )
    with pytest.raises(MissingMeasurementsError) as raised:
        prometheus.observe(Subject("shop/clicks"), Policy(), 1_000.0)
    return str(raised.value)


@contextmanager
def drip(text: bytes, pause_s: float) -> Iterator[str]:
    """A server that sends one byte after the other, for ever."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def run() -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(65536)
            connection.sendall(text)
            while not stop.wait(pause_s):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stop.set()
        listener.close()
        thread.join()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nX-Long: ", id="headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", id="a body with a length"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", id="a body without one"),
    ],
)
@pytest.mark.parametrize("path", ["", "/.", "/%7e"])
def test_a_server_that_drips_bytes_is_given_up_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, path: str
) -> None:
    with drip(sent, 0.05) as url:
        expect_end(monkeypatch, f"{url}{path}")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_drips_bytes_is_given_up_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    with drip(b"HTTP/1.1 200 OK\r\nX-Long: ", 0.05) as url:
        monkeypatch.setenv(f"{scheme}_proxy", url)
        expect_end(monkeypatch, f"{scheme}://prometheus.example")


def expect_end(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """A measurement does not hold its thread for ever."""
    monkeypatch.setattr(sessions, "DEADLINE_S", 0.5)
    ended = threading.Event()

    def ask() -> None:
        why_missing(url)
        ended.set()

    thread = threading.Thread(target=ask)
    thread.start()
    assert ended.wait(30.0), "the thread is held for ever"
    thread.join()


def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    budgets = AnswerBudgets(others=AnswerBudget(100_000))
    with serve(lambda _: Response("x" * 300_000)) as url:
        assert why_missing(url, budgets=budgets).endswith("its answers have more than 100000 bytes")


def test_an_answer_of_more_values_than_a_real_one_can_have_is_not_taken_in() -> None:
    with serve(lambda _: Response('{"data":{"result":[' + "[]," * 2_000_000 + "[]]}}")) as url:
        assert why_missing(url).endswith("its answer has more than 3355443 values")


def test_a_redirect_is_not_followed() -> None:
    asked = []

    def answer(request: Request) -> Response:
        asked.append(request.path)
        return Response("secret of another server", 302, {"Location": "/elsewhere"})

    with serve(answer) as url:
        said = why_missing(url)
    assert "it answered with status 302 (Found)" in said
    assert "/elsewhere" not in said
    assert "secret" not in said
    assert asked == ["/api/v1/query"]


@pytest.mark.parametrize(
    "response",
    [
        Response("password of the database", 500),
        Response("password of the database"),
        Response({"data": {"result": [{"metric": {}, "values": [["password", "of"]]}]}}),
        Response({"data": {"result": [{"metric": {}, "values": [[10**400, "password"]]}]}}),
        Response("[" * 100_000 + "password"),
    ],
)
def test_nothing_of_an_answer_or_of_the_users_name_in_the_url_is_told(response: Response) -> None:
    with serve(lambda _: response) as url:
        said = why_missing(url.replace("http://", "http://me:hush@"))
    assert said.startswith(f"Prometheus at {url} cannot be queried: ")
    assert not re.search("password|hush|me:", said)


def test_a_stream_authenticates_with_a_token_a_password_or_headers() -> None:
    seen: list[dict[str, str]] = []

    def answer(request: Request) -> Response:
        seen.append(request.headers)
        return NOTHING

    with serve(answer) as url:
        assert why_missing(url, {"token": "t0ken\n"}).startswith(NO_METRICS)
        assert seen[-1]["authorization"] == "Bearer t0ken"
        assert why_missing(url, {"username": "me", "password": "hush"}).startswith(NO_METRICS)
        expected = base64.b64encode(b"me:hush").decode()
        assert seen[-1]["authorization"] == f"Basic {expected}"
        headers = "X-Scope-OrgID: shop\nX-Other: a:b\n"
        assert why_missing(url, {"headers": headers}).startswith(NO_METRICS)
        assert (seen[-1]["x-scope-orgid"], seen[-1]["x-other"]) == ("shop", "a:b")
        assert why_missing(url).startswith(NO_METRICS)
        assert "authorization" not in seen[-1]


def test_a_token_that_is_no_header_is_not_told() -> None:
    with serve(lambda _: NOTHING) as url:
        assert "sec" not in why_missing(url, {"token": "sec\nret"})


def make_certificate(folder: Path) -> tuple[str, str]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "cert.pem").read_text("ascii"), (folder / "key.pem").read_text("ascii")


def test_a_server_and_a_stream_know_each_other_by_their_certificates(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    context.load_verify_locations(cadata=certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    ours: dict[str, Any] = {"tls.crt": certificate, "tls.key": key}
    with serve(lambda _: NOTHING, context) as url:
        assert "CERTIFICATE_VERIFY_FAILED" in why_missing(url, ours).upper()
        assert why_missing(url, {"ca.crt": certificate, **ours}).startswith(NO_METRICS)
        assert not why_missing(url, {"ca.crt": certificate}).startswith(NO_METRICS)
