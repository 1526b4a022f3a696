"""The operator's pod answers probes, on every address family that there is."""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable

import pytest

from balancedstream_operator.process.health import serve_health


def ask(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def run(act: Callable[[int], Awaitable[None]], hindrance: str = "") -> None:
    async def go() -> None:
        server = await serve_health(0, lambda: hindrance)
        port = next(s for s in server.sockets if s.family == socket.AF_INET).getsockname()[1]
        try:
            await act(port)
        finally:
            server.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("path", "hindrance", "status", "text"),
    [
        ("/healthz", "no definition", 200, "ok\n"),
        ("/readyz", "no definition", 503, "no definition\n"),
        ("/readyz", "", 200, "ok\n"),
        ("/readyz?verbose", "", 200, "ok\n"),
        ("/", "", 404, "ask for /healthz or /readyz\n"),
    ],
)
def test_probes_get_an_answer(path: str, hindrance: str, status: int, text: str) -> None:
    async def act(port: int) -> None:
        assert await asyncio.to_thread(ask, port, path) == (status, text)

    run(act, hindrance)


@pytest.mark.parametrize("sent", [b"", b"\r\n\r\n", b"\xff" * 100_000, b"GET\r\n\r\n"])
def test_rubbish_does_not_keep_the_next_probe_from_its_answer(sent: bytes) -> None:
    def talk(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(sent)

    async def act(port: int) -> None:
        await asyncio.to_thread(talk, port)
        assert (await asyncio.to_thread(ask, port, "/healthz"))[0] == 200

    run(act)


def test_it_listens_for_ipv6_where_there_is_any() -> None:
    async def go() -> set[int]:
        server = await serve_health(0, str)
        families = {int(s.family) for s in server.sockets}
        server.close()
        return families

    expected = {int(socket.AF_INET)} | ({int(socket.AF_INET6)} if socket.has_ipv6 else set())
    assert asyncio.run(go()) == expected
