"""A driver gets its plans from the API server whatever becomes of the connection.

No Spark runs here: it is the driver's plans, the real API server, and a wire between them that
can be cut or fall silent.
"""

from __future__ import annotations

import functools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from clusters import Cluster
from kube import Kube
from kubernetes import client, config
from storage import Storage
from waiting import wait_until

from balancedstream.core.wire.plan import Answer, Plan
from balancedstream.launch import kubernetes as incluster
from balancedstream.launch.kubernetes import ClusterPlanChannel, StreamName

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]

NAME = "clicks"


class Wire:
    """Forwards TCP connections; `cut` ends those that are open, `mute` swallows what they say."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self._open: list[socket.socket] = []
        self._muted: set[int] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for end in self._open:
            end.close()
        self._open.clear()

    def mute(self) -> None:
        """What is open stays open, and nothing comes through any more."""
        self._muted |= {id(end) for end in self._open}

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            far = socket.create_connection(self._to)
            self._open += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if id(source) not in self._muted:
                    target.sendall(data)
        except OSError:
            pass
        finally:
            if id(source) not in self._muted:
                source.close()
                target.close()


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[Wire]:
    configuration = client.Configuration()
    config.load_kube_config(str(cluster.kubeconfig), client_configuration=configuration)
    address = urlsplit(configuration.host)
    wire = Wire(str(address.hostname), address.port or 443)
    yield wire
    wire.close()


@pytest.fixture
def api(cluster: Cluster, wire: Wire) -> client.CoreV1Api:
    configuration = client.Configuration()
    config.load_kube_config(str(cluster.kubeconfig), client_configuration=configuration)
    configuration.host = f"https://127.0.0.1:{wire.port}"
    return client.CoreV1Api(client.ApiClient(configuration))


@pytest.fixture
def write_plan(kube: Kube, storage: Storage) -> Callable[[int], str]:
    """Writes a plan of that epoch, as the operator does; returns its text."""
    for name in (f"{NAME}-plan", f"{NAME}-answer"):
        kube.apply(_config_map(storage.namespace, name))

    def write(epoch: int) -> str:
        text = Plan(epoch, ("1",), {}).to_json()
        kube.apply(_config_map(storage.namespace, f"{NAME}-plan") | {"data": {"plan.json": text}})
        return text

    return write


@pytest.fixture
def open_plans(storage: Storage) -> Iterator[Callable[[Any], ClusterPlanChannel]]:
    opened: list[ClusterPlanChannel] = []

    def open_one(api: Any) -> ClusterPlanChannel:
        plans = ClusterPlanChannel(api, StreamName(storage.namespace, NAME))
        plans.start()
        opened.append(plans)
        return plans

    yield open_one
    for plans in opened:
        plans.close()


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits as in production, only shorter."""
    monkeypatch.setattr(incluster, "WATCH_S", 4)
    monkeypatch.setattr(incluster, "READ_TIMEOUT_S", 2.0)
    monkeypatch.setattr(incluster, "RETRY_S", (0.1, 0.5))


def _config_map(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
    }


def wait_for_plan(plans: ClusterPlanChannel, text: str) -> None:
    seen: list[str] = []

    def arrived() -> bool:
        plan = plans.take_plan()
        if plan is not None:
            seen.append(plan)
        return text in seen

    wait_until("the plan", arrived, timeout_s=60, last_seen=lambda: seen)


def test_a_plan_that_was_there_before_and_those_that_come_are_taken(
    api: client.CoreV1Api,
    write_plan: Callable[[int], str],
    open_plans: Callable[[Any], ClusterPlanChannel],
) -> None:
    first = write_plan(1)
    plans = open_plans(api)
    wait_for_plan(plans, first)
    wait_for_plan(plans, write_plan(2))
    assert plans.take_plan() is None, "each is taken once"


def test_an_answer_is_written_where_the_operator_reads_it(
    api: client.CoreV1Api,
    kube: Kube,
    storage: Storage,
    write_plan: Callable[[int], str],
    open_plans: Callable[[Any], ClusterPlanChannel],
) -> None:
    plans = open_plans(api)
    for epoch in range(5):
        plans.send_answer(Answer(epoch))

    def written() -> Any:
        found = kube.find("v1", "ConfigMap", f"{NAME}-answer", namespace=storage.namespace)
        return json.loads(((found or {}).get("data") or {}).get("answer.json", "{}"))

    wait_until(
        "the last answer",
        lambda: written().get("epoch") == 4,
        timeout_s=30,
        last_seen=written,
    )


def test_a_connection_that_is_cut_costs_no_plan(
    hurry: None,
    api: client.CoreV1Api,
    wire: Wire,
    write_plan: Callable[[int], str],
    open_plans: Callable[[Any], ClusterPlanChannel],
) -> None:
    plans = open_plans(api)
    wait_for_plan(plans, write_plan(1))
    for epoch in (2, 3, 4):
        wire.cut()
        wait_for_plan(plans, write_plan(epoch))


def test_a_connection_that_falls_silent_is_given_up(
    hurry: None,
    api: client.CoreV1Api,
    wire: Wire,
    write_plan: Callable[[int], str],
    open_plans: Callable[[Any], ClusterPlanChannel],
) -> None:
    plans = open_plans(api)
    wait_for_plan(plans, write_plan(1))
    before = wire.connections
    wire.mute()
    wait_for_plan(plans, write_plan(2))
    assert wire.connections > before, "by a new connection"


def test_a_version_that_is_too_old_to_watch_from_leads_to_a_fresh_list(
    hurry: None,
    api: client.CoreV1Api,
    write_plan: Callable[[int], str],
    open_plans: Callable[[Any], ClusterPlanChannel],
) -> None:
    lists = []
    real = api.list_namespaced_config_map

    @functools.wraps(real)
    def list_as_if_long_ago(*arguments: Any, **more: Any) -> Any:
        answer = real(*arguments, **more)
        if not more.get("watch"):
            lists.append(answer)
            if len(lists) == 1:
                # Etcd has compacted this one away before the cluster was even ready.
                answer.metadata.resource_version = "1"
        return answer

    api.list_namespaced_config_map = list_as_if_long_ago
    plans = open_plans(api)
    wait_for_plan(plans, write_plan(1))
    wait_for_plan(plans, write_plan(2))
    wait_until("a second list", lambda: len(lists) > 1, timeout_s=30, last_seen=lambda: lists)
