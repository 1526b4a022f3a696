"""The whole process against an API server: nothing that one namespace has or lacks ends it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import waiting
from apiserver import ApiServer, path_of, refuse, write_kubeconfig
from kubernetes.config import kube_config
from loopback import Request, Response, serve
from manifests import make_resource

from balancedstream_operator import main as process
from balancedstream_operator.kube import responses
from balancedstream_operator.main import operate
from balancedstream_operator.process import following
from balancedstream_operator.process.metrics import OperatorMetrics
from balancedstream_operator.process.operator import Operator
from balancedstream_operator.settings import Settings

PATH = "/apis/balancedstream.io/v1alpha1"
DEEP = "@deep@"
"""Where an answer has it, the server sends what is nested deep."""


def wait_until(holds: Callable[[], object], what: str) -> None:
    waiting.wait_until(what, holds, timeout_s=60.0, interval_s=0.02)


def stream_path(name: str = "clicks", namespace: str = "shop") -> str:
    return path_of("BalancedStream", name, namespace)


def list_path(namespace: str) -> str:
    return f"{PATH}/namespaces/{namespace}/balancedstreams"


def has_driver(server: ApiServer, name: str = "clicks", namespace: str = "shop") -> bool:
    return path_of("StatefulSet", f"{name}-driver", namespace) in server.objects


def wait_for_driver(server: ApiServer, name: str) -> None:
    wait_until(lambda: has_driver(server, name), f"a driver of {name}")


def put(server: ApiServer, name: str = "clicks", namespace: str = "shop", **spec: Any) -> None:
    server.put(stream_path(name, namespace), make_resource(name, namespace, **spec))


class DeepServer(ApiServer):
    """Sends what is nested so deep that the test itself could not."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self._deep = '{"a":' * depth + "1" + "}" * depth

    def answer(self, request: Request) -> Response:
        found = super().answer(request)
        if isinstance(found.body, Iterator):
            body: Any = (self._deepen(line) for line in found.body)
        else:
            body = self._deepen(found.body)
        return Response(body, found.status, found.headers)

    def _deepen(self, value: Any) -> bytes:
        return json.dumps(value).replace(f'"{DEEP}"', self._deep).encode()


@contextmanager
def connect(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ApiServer]:
    with serve(server.answer) as url:
        path = tmp_path / "kubeconfig"
        path.write_text(write_kubeconfig(url), "utf-8")
        # The client's own, and kopf's.
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        monkeypatch.setenv("KUBECONFIG", str(path))
        # The client keeps what it discovered in the folder for temporary files.
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        monkeypatch.setattr(OperatorMetrics, "start", lambda *_: None)
        monkeypatch.setattr(following, "BACKOFFS_S", ())
        monkeypatch.setattr(following, "LOOK_AGAIN_S", 0.05)
        monkeypatch.setattr(following, "MAX_LOOK_AGAIN_S", 0.1)
        monkeypatch.setattr("balancedstream_operator.kube.clocks.WAITING_S", 0.2)
        monkeypatch.setattr("balancedstream_operator.process.passes.RETRY_S", 0.1)
        yield server
        server.close_watches()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with connect(ApiServer(), tmp_path, monkeypatch) as found:
        yield found


@contextmanager
def run_operator(monkeypatch: pytest.MonkeyPatch, *namespaces: str) -> Iterator[Operator]:
    """Runs the process until the block ends; it must not have ended by itself."""
    made: list[Operator] = []
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    errors: list[BaseException] = []

    class Known(Operator):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            made.append(self)

    monkeypatch.setattr(process, "Operator", Known)

    async def go() -> None:
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        await operate(Settings(namespaces=namespaces or ("",)), stop, health_port=0)

    def run() -> None:
        try:
            asyncio.run(go())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: made or errors, "the operator")
        yield made[0]
        assert thread.is_alive(), errors
    finally:
        for loop, stop in loops:
            loop.call_soon_threadsafe(stop.set)
        thread.join(60.0)
    assert not thread.is_alive()
    assert not errors


def test_streams_that_are_there_that_come_and_that_change_are_looked_after(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(server)
    with run_operator(monkeypatch) as operator:
        wait_until(lambda: has_driver(server), "a driver of a stream that was there before")
        wait_until(lambda: operator.explain_unready() == "", "readiness")
        put(server, "views")
        wait_until(lambda: has_driver(server, "views"), "another one")
        changed = make_resource(balancing={"mode": "No"})
        changed["metadata"] |= {"generation": 2, "resourceVersion": "2"}
        server.put(stream_path(), {**server.objects[stream_path()], **changed})
        wait_until(
            lambda: server.objects[stream_path()]["status"]["phase"] == "Invalid", "a new status"
        )
        wait_until(
            lambda: any(
                event["reason"] == "InvalidSpec" and event["type"] == "Warning"
                for path, event in list(server.objects.items())
                if "/events/" in path
            ),
            "an event",
        )
        server.remove(stream_path("views"))
        wait_until(lambda: operator.count_streams() == 1, "its end")
    assert not [
        request
        for request in server.requests
        if request.method == "PATCH" and request.path == stream_path() and "final" in request.body
    ], "with a finalizer, streams could not be deleted without the operator"


FAULTS: dict[str, Response] = {
    "rights gone": refuse(403, 'cannot list resource "balancedstreams" in the namespace "bank"'),
    "definition gone": Response("404 page not found\n", 404),
    "not signed in": refuse(401, "Unauthorized"),
    "method not allowed": refuse(405, "the server does not allow this method"),
    "expired": refuse(410, "too old resource version"),
    "too many requests": refuse(429, "too many requests"),
    "storage broken": refuse(500, "etcdserver: no leader"),
    "not available": Response("<html>upstream connect error</html>", 503),
    "a page of a proxy": Response("<html>please log in</html>"),
    "nothing at all": Response(b""),
    "bytes that are no text": Response(b"\xff\xfe\x00"),
    "no list": Response({"kind": "Status"}),
    "items that are none": Response({"items": [1, None]}),
    "items without names": Response({"items": [{"metadata": {}}]}),
    "a list of another kind": Response([1, 2]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_one_namespace_answers_the_others_are_served_and_it_is_looked_at_again(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    put(server, namespace="bank")
    server.broken[list_path("bank")] = FAULTS[fault]
    with run_operator(monkeypatch, "bank", "shop") as operator:
        put(server)
        wait_until(lambda: has_driver(server), "a driver of the other namespace")
        assert not has_driver(server, namespace="bank")
        if fault != "definition gone":
            wait_until(lambda: operator.explain_unready() == "", "readiness")
        del server.broken[list_path("bank")]
        wait_until(lambda: has_driver(server, namespace="bank"), "a driver there, too")
        # Once more, and while it has streams.
        server.broken[list_path("bank")] = FAULTS[fault]
        server.close_watches()
        put(server, "views")
        wait_until(lambda: has_driver(server, "views"), "a new stream elsewhere")
        del server.broken[list_path("bank")]
        put(server, "views", "bank")
        wait_until(lambda: has_driver(server, "views", "bank"), "a new stream there")


@pytest.mark.parametrize(
    "event",
    [
        {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}},
        {"type": "ERROR", "object": {"code": 500, "message": "etcd is gone"}},
        {"type": "ERROR", "object": None},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}},
        {"type": "NEWER", "object": {}},
        {"type": "ADDED"},
        {"type": "MODIFIED", "object": {"metadata": {"name": "x"}}},
        b"<html>",
        b"\xff\xfe",
        b"[" * 100_000,
        b'"' + b"x" * (responses.MAX_LINE_BYTES + 2_000_000) + b'"',
        {},
        [],
        None,
    ],
    ids=lambda event: str(event)[:40],
)
def test_whatever_a_watch_says_streams_are_looked_after(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, event: Any
) -> None:
    put(server)
    with run_operator(monkeypatch):
        wait_until(lambda: has_driver(server) and server._watches, "a watch")
        with server.hold():
            for watch in server._watches:
                watch.put(b"null" if event is None else event)
        put(server, "views")
        wait_until(lambda: has_driver(server, "views"), "a stream that came after it")


def test_a_namespace_that_vanishes_with_its_rights_is_left_out_and_comes_back(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(server)
    put(server, namespace="bank")
    gone = refuse(403, 'cannot list resource "balancedstreams" in the namespace "bank"')
    with run_operator(monkeypatch, "shop", "bank") as operator:
        wait_until(lambda: has_driver(server, namespace="bank"), "a driver")
        with server.hold():
            for path in [p for p in server.objects if "/bank/" in p]:
                del server.objects[path]
            server.broken[list_path("bank")] = gone
        server.close_watches()
        wait_until(lambda: "of namespace bank are not seen" in caplog.text, "a line in the log")
        wait_until(lambda: served(operator) == {"shop": 1.0, "bank": 0.0}, "the metric")
        for name in ("views", "carts"):
            # A pass that had begun ends before the second one.
            asked = len(server.requests)
            put(server, name)
            wait_for_driver(server, name)
        paths = {r.path for r in server.requests[asked:] if "/bank/" in r.path}
        assert paths <= {list_path("bank")}
        server.broken.clear()
        wait_until(lambda: operator.count_streams() == 3, "that the one of then is forgotten")
        put(server, namespace="bank")
        wait_until(lambda: has_driver(server, namespace="bank"), "a driver of the new one")
        wait_until(lambda: served(operator)["bank"] == 1.0, "the metric")
    assert caplog.text.count("of namespace bank are not seen") == 1, "said once"


def test_rights_that_go_while_a_watch_lasts_are_missed_soon(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "CHECK_S", 0.05)
    put(server)
    put(server, namespace="bank")
    with run_operator(monkeypatch, "shop", "bank") as operator:
        wait_until(lambda: has_driver(server, namespace="bank"), "a driver")
        # Nobody ends its watch.
        server.broken[list_path("bank")] = FAULTS["rights gone"]
        wait_until(lambda: served(operator) == {"shop": 1.0, "bank": 0.0}, "that it is missed")
        server.broken[list_path("bank")] = FAULTS["not available"]
        server.broken[list_path("shop")] = FAULTS["not available"]
        put(server, "views")
        wait_until(lambda: has_driver(server, "views"), "a new stream by a watch that goes on")


def served(operator: Operator) -> dict[str, float]:
    return {
        sample.labels["namespace"]: sample.value
        for family in operator._metrics.registry.collect()
        for sample in family.samples
        if sample.name == "balancedstream_operator_namespace_served"
    }


@pytest.mark.parametrize("namespaces", [(), ("shop",)], ids=["cluster-wide", "namespaced"])
def test_a_definition_that_comes_late_goes_and_comes_again_needs_no_restart(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, namespaces: tuple[str, ...]
) -> None:
    lists = [f"{PATH}/balancedstreams", list_path("shop")]
    absent = Response("404 page not found\n", 404)
    server.broken |= dict.fromkeys([*lists, PATH], absent)
    with run_operator(monkeypatch, *namespaces) as operator:
        wait_until(lambda: "(CRD) is not in the cluster" in operator.explain_unready(), "a reason")
        for turn in range(2):
            server.broken.clear()
            put(server, f"clicks{turn}")
            wait_for_driver(server, f"clicks{turn}")
            wait_until(lambda: operator.explain_unready() == "", "readiness")
            with server.hold():
                server.broken |= dict.fromkeys([*lists, PATH], absent)
                for path in [p for p in server.objects if p.startswith(PATH)]:
                    del server.objects[path]
            server.close_watches()
            wait_until(lambda: operator.explain_unready() != "", "that it is not ready")
            wait_until(lambda: operator.count_streams() == 0, "no stream")


def test_an_operator_that_may_see_nothing_is_not_ready_and_says_why(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = 'User "x" cannot list resource "balancedstreams"'
    server.broken[f"{PATH}/balancedstreams"] = refuse(403, said)
    with run_operator(monkeypatch) as operator:
        wait_until(lambda: said in operator.explain_unready(), "a reason")


@pytest.mark.parametrize("depth", [100, 300, 700, 990, 9_000])
def test_a_stream_that_is_nested_deep_is_refused_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, depth: int
) -> None:
    with connect(DeepServer(depth), tmp_path, monkeypatch) as server:
        deep = {"podTemplate": {"spec": {"x": DEEP}}}
        put(server, "before", "bank", driver=deep)
        put(server)
        with run_operator(monkeypatch):
            wait_until(lambda: has_driver(server), "a driver of another stream")
            put(server, "after", "bank", driver=deep)
            put(server, "views")
            wait_until(lambda: has_driver(server, "views"), "a driver of another new stream")
            for name in ("before", "after"):
                wait_until(partial(told, server, name), "a status")
                assert "spec.driver: it is nested deeper" in told(server, name)
                assert not has_driver(server, name, "bank")
    assert "RecursionError" not in caplog.text, "answers to writes hold the whole object"


def told(server: ApiServer, name: str) -> str:
    """What the status of a stream says of its spec."""
    status = server.objects[stream_path(name, "bank")].get("status") or {}
    said = {c["type"]: c["message"] for c in status.get("conditions", ())}
    return str(said.get("Accepted", ""))


def test_a_stream_that_is_huge_is_refused_and_stops_no_other(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(server, "huge", "bank", driver={"podTemplate": {"x": "y" * 1_500_000}})
    with run_operator(monkeypatch):
        put(server)
        wait_until(lambda: has_driver(server), "a driver of another stream")
        wait_until(lambda: told(server, "huge"), "a status")
        assert "KiB, most of them in spec.driver" in told(server, "huge")
