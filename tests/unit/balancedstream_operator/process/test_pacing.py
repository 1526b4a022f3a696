"""A Prometheus that takes its time takes that of its own streams."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from apiserver import ApiServer, path_of, write_kubeconfig
from kubernetes.config import kube_config
from loopback import Request, Response, serve
from waiting import wait_until

from balancedstream_operator.observe import http as sessions
from balancedstream_operator.observe.endpoints import names_own_prometheus
from balancedstream_operator.process.metrics import OperatorMetrics
from balancedstream_operator.process.operator import Operator
from balancedstream_operator.process.passes import REST, choose_rest_s
from balancedstream_operator.process.threads import OTHER_THREADS, THREADS
from balancedstream_operator.settings import Settings

PATIENCE_S = 60.0
NOTHING = Response({"status": "success", "data": {"resultType": "matrix", "result": []}})


class Dripping:
    """A server that sends one byte after the other on each connection, for ever.

    Attributes:
        url: of it.
        held: connections that have asked something.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.held = 0

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self._stop.is_set():
                connection.close()
                return
            thread = threading.Thread(target=self._drip, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _drip(self, connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            self.held += 1
            while not self._stop.wait(0.05):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

    def stop(self) -> None:
        """Ends all connections."""
        self._stop.set()

    @classmethod
    @contextmanager
    def serve(cls) -> Iterator[Dripping]:
        """Serves until the block ends."""
        dripping = cls()
        dripping._threads[0].start()
        try:
            yield dripping
        finally:
            dripping.stop()
            # Wakes the thread that accepts.
            socket.create_connection(dripping._listener.getsockname()).close()
            for thread in dripping._threads:
                thread.join()
            dripping._listener.close()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    server = ApiServer()
    with serve(server.answer) as url:
        path = tmp_path / "kubeconfig"
        path.write_text(write_kubeconfig(url), "utf-8")
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        yield server


def put_stream(server: ApiServer, name: str, url: str | None) -> dict[str, Any]:
    """A stream whose driver runs, so that its Prometheus is asked."""
    stream = {
        "apiVersion": "balancedstream.io/v1alpha1",
        "kind": "BalancedStream",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-of-{name}", "generation": 1},
        "spec": {
            "image": "clicks:1",
            "application": {"file": "/app/clicks.py"},
            "executors": {"min": 1, "max": 2},
            "checkpoints": {"uri": f"s3a://b/{name}"},
            "metrics": {"prometheusUrl": url} if url else {},
        },
    }
    server.put(path_of("BalancedStream", name), stream)
    pod = f"{name}-driver-0"
    running = {"containerStatuses": [{"name": "driver", "state": {"running": {}}}]}
    server.put(
        path_of("Pod", pod),
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "namespace": "shop", "labels": {}},
            "status": running,
        },
    )
    return stream


def is_reported(server: ApiServer, name: str) -> bool:
    return "status" in server.objects[path_of("BalancedStream", name)]


async def happens(what: str, condition: Callable[[], bool | list[float]]) -> None:
    """Waits without holding the operator's event loop."""
    await asyncio.to_thread(wait_until, what, condition, timeout_s=PATIENCE_S, interval_s=0.02)


async def end(operator: Operator, dripping: Dripping) -> None:
    operator.close()
    dripping.stop()
    await asyncio.to_thread(operator.wait)


def test_servers_that_drip_hold_no_pass_over_a_stream_of_the_operators_own(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "DEADLINE_S", 3600.0)
    asked: list[Request] = []

    def answer(request: Request) -> Response:
        asked.append(request)
        return NOTHING

    async def go(dripping: Dripping, own: str) -> None:
        operator = Operator(Settings(own, allowed_urls=("*",)), OperatorMetrics())
        for number in range(THREADS + OTHER_THREADS):
            operator.update(put_stream(server, f"slow-{number}", dripping.url))
        await happens("slow passes", lambda: dripping.held == OTHER_THREADS)
        operator.update(put_stream(server, "clicks", None))
        await happens("a pass", lambda: is_reported(server, "clicks"))
        assert asked, "of the operator's own Prometheus"
        assert dripping.held == OTHER_THREADS
        await end(operator, dripping)

    with serve(answer) as own, Dripping.serve() as dripping:
        asyncio.run(go(dripping, own))


def test_one_server_that_drips_holds_no_stream_with_another_server(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "DEADLINE_S", 3600.0)

    async def go(dripping: Dripping, good: str) -> None:
        operator = Operator(Settings(allowed_urls=("*",)), OperatorMetrics())
        operator.update(put_stream(server, "slow", dripping.url))
        await happens("a slow pass", lambda: dripping.held == 1)
        for number in range(2 * THREADS):
            operator.update(put_stream(server, f"good-{number}", good))
        for number in range(2 * THREADS):
            name = f"good-{number}"
            await happens(name, partial(is_reported, server, name))
        assert not is_reported(server, "slow")
        await end(operator, dripping)

    with serve(lambda _: NOTHING) as good, Dripping.serve() as dripping:
        asyncio.run(go(dripping, good))


def test_after_a_pass_that_took_long_the_next_one_comes_later(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline_s = 3.0
    monkeypatch.setattr(sessions, "DEADLINE_S", deadline_s)
    pauses: list[float] = []
    timeout = asyncio.timeout

    def note(pause_s: float) -> asyncio.Timeout:
        pauses.append(pause_s)
        return timeout(pause_s)

    monkeypatch.setattr("balancedstream_operator.process.operator.asyncio.timeout", note)

    async def go(dripping: Dripping) -> None:
        operator = Operator(Settings(allowed_urls=("*",)), OperatorMetrics())
        operator.update(put_stream(server, "slow", dripping.url))
        await happens("a pass", lambda: pauses)
        await end(operator, dripping)

    with Dripping.serve() as dripping:
        asyncio.run(go(dripping))
    assert pauses[0] >= REST * deadline_s > 5.0, "5 s is the pause of a stream that starts"


@pytest.mark.parametrize(
    ("took_s", "pause_s"), [(0.0, 15.0), (3.0, 15.0), (10.0, 50.0), (20.0, 100.0)]
)
def test_a_slow_stream_has_a_sixth_of_a_thread_at_most(took_s: float, pause_s: float) -> None:
    assert choose_rest_s(15.0, took_s) == pause_s


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ({}, False),
        ({"spec": None}, False),
        ({"spec": {"metrics": None}}, False),
        ({"spec": {"metrics": {"prometheusUrl": "http://own/"}}}, False),
        ({"spec": {"metrics": {"prometheusUrl": "http://own/other"}}}, True),
        ({"spec": {"metrics": {"prometheusUrl": 7}}}, True),
    ],
)
def test_a_stream_with_a_server_of_its_own_is_known_before_its_spec_is_checked(
    resource: dict[str, Any], expected: bool
) -> None:
    assert names_own_prometheus(resource, Settings("http://own")) is expected
