"""What strikes a stream under load, and everything that it depends on."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import broker
import installing
import monitoring
from clusters import Cluster
from harness.storage.faulty import FaultyStore
from kube import Kube, Manifest
from nodes import Volume, cutting_network, kill_processes
from streams import Stream
from waiting import wait_until

RELIEF_S = (5.0, 30.0)
"""How long a fault lasts that does not end by itself."""


@dataclass(frozen=True)
class Scene:
    """Where faults strike.

    Attributes:
        cluster: with everything on it.
        kube: its API.
        stream: that runs.
        infrastructure: namespace of the broker and of Prometheus.
        storage: where the stream has its checkpoint.
        chance: draws whom a fault strikes, and for how long.
    """

    cluster: Cluster
    kube: Kube
    stream: Stream
    infrastructure: str
    storage: Volume | FaultyStore
    chance: random.Random

    def pick_executor(self) -> Manifest:
        """One that runs."""
        return self.chance.choice(self.stream.wait_for_executors(2))

    def find_driver(self) -> Manifest:
        """The driver's pod."""
        driver = self.stream.driver()
        assert driver is not None, "there is no driver"
        return driver

    def find_server(self, namespace: str, name: str) -> Manifest:
        """The pod of a server that has one; returns when it runs."""

        def look() -> Manifest | None:
            pods = self.kube.pods(namespace, {"app.kubernetes.io/name": name})
            return next((pod for pod in pods if pod["status"]["phase"] == "Running"), None)

        return wait_until(f"a pod of {name}", look, timeout_s=120)

    def delete(self, pod: Manifest) -> str:
        """Deletes a pod at once, as a node that is lost does."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self.kube.delete("v1", "Pod", name, namespace=namespace, grace_s=0)
        return f"deleted {name}"

    def wait(self) -> float:
        """Lets a fault last; how long it did, in seconds."""
        duration_s = round(self.chance.uniform(*RELIEF_S), 1)
        time.sleep(duration_s)
        return duration_s


Fault = Callable[[Scene], str]
"""Strikes, returns when it is over, and says what it did."""


def delete_executor(scene: Scene) -> str:
    return scene.delete(scene.pick_executor())


def delete_driver(scene: Scene) -> str:
    return scene.delete(scene.find_driver())


def delete_operator(scene: Scene) -> str:
    return scene.delete(scene.find_server(installing.NAMESPACE, installing.RELEASE))


def delete_prometheus(scene: Scene) -> str:
    return scene.delete(scene.find_server(scene.infrastructure, monitoring.NAME))


def kill_executor(scene: Scene) -> str:
    pod = scene.pick_executor()
    kill_processes("java", pod)
    return f"killed the JVM of {pod['metadata']['name']}"


def kill_python(scene: Scene) -> str:
    pod = scene.pick_executor()
    kill_processes("python3", pod)
    return f"killed the Python workers of {pod['metadata']['name']}"


def kill_driver(scene: Scene) -> str:
    kill_processes("java", scene.find_driver())
    return "killed the driver's JVM"


def kill_broker(scene: Scene) -> str:
    kill_processes("java", scene.find_server(scene.infrastructure, broker.NAME))
    return "killed the broker"


def kill_api_server(scene: Scene) -> str:
    kill_processes("kube-apiserver")
    duration_s = scene.wait()
    if scene.cluster.mend:
        subprocess.run(scene.cluster.mend.split(), check=True, stdout=subprocess.DEVNULL)
    return f"killed the API server, and started it after {duration_s} s"


def cut_network(scene: Scene) -> str:
    """Between two of those that talk to each other."""
    server = broker.NAME, scene.infrastructure
    driver = scene.find_driver()
    one, other, addresses = scene.chance.choice(
        [
            (scene.pick_executor(), "the driver", [driver["status"]["podIP"]]),
            (scene.pick_executor(), "the broker", _find_addresses(scene, *server)),
            (driver, "the broker", _find_addresses(scene, *server)),
            (driver, "the API server", [*_find_addresses(scene, "kubernetes", "default")]),
            (
                scene.find_server(installing.NAMESPACE, installing.RELEASE),
                "Prometheus",
                _find_addresses(scene, monitoring.NAME, scene.infrastructure),
            ),
            (
                scene.find_server(scene.infrastructure, monitoring.NAME),
                "the driver",
                [driver["status"]["podIP"]],
            ),
        ]
    )
    with cutting_network(one, addresses):
        duration_s = scene.wait()
    return f"cut {one['metadata']['name']} from {other} for {duration_s} s"


def _find_addresses(scene: Scene, service: str, namespace: str) -> list[str]:
    """A Service's own address; those behind it reach nobody by another one."""
    found = scene.kube.find("v1", "Service", service, namespace=namespace)
    assert found is not None, f"there is no Service {service}"
    return [found["spec"]["clusterIP"]]


def fill_volume(scene: Scene) -> str:
    assert isinstance(scene.storage, Volume)
    with scene.storage.filling():
        return f"filled the checkpoint's volume for {scene.wait()} s"


def protect_volume(scene: Scene) -> str:
    assert isinstance(scene.storage, Volume)
    with scene.storage.protecting():
        return f"made the checkpoint's volume read-only for {scene.wait()} s"


def refuse_objects(scene: Scene) -> str:
    assert isinstance(scene.storage, FaultyStore)
    scene.storage.refuses = True
    duration_s = scene.wait()
    scene.storage.refuses = False
    return f"the object store answered 503 for {duration_s} s"


def delay_objects(scene: Scene) -> str:
    assert isinstance(scene.storage, FaultyStore)
    scene.storage.delay_s = round(scene.chance.uniform(0.2, 2.0), 1)
    duration_s = scene.wait()
    delayed = f"the object store took {scene.storage.delay_s} s more for {duration_s} s"
    scene.storage.delay_s = 0.0
    return delayed


ANYWHERE: tuple[Fault, ...] = (
    delete_executor, delete_driver, delete_operator, delete_prometheus, kill_executor, kill_python,
    kill_driver, kill_broker, kill_api_server, cut_network,
)  # fmt: skip
ON_A_VOLUME: tuple[Fault, ...] = (fill_volume, protect_volume)
IN_AN_OBJECT_STORE: tuple[Fault, ...] = (refuse_objects, delay_objects)
