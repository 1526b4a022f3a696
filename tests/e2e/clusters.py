"""The cluster that the tests run on: the one of KUBECONFIG, or kind, or the one without Docker."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

HERE = Path(__file__).parent
BARE_SCRIPT = HERE.parent / "cluster" / "cluster"
SHARED_FOLDER = Path("/var/tmp/balancedstream-e2e")  # noqa: S108
"""Where persistent volumes are: the same path on the node and on this machine."""
KIND_NAME = "balancedstream-e2e"
KIND_VERSION = "v0.30.0"
KUBERNETES_VERSION = "v1.34.0"


class ClusterUnavailableError(Exception):
    """There is no cluster, and none can be started here."""


class Node(Protocol):
    """Gets images onto the cluster's node."""

    def build(self, tag: str, folder: Path, options: Sequence[str]) -> None:
        """Builds `folder`'s Dockerfile as `localhost/<tag>` and loads it."""
        ...


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        kubeconfig: of an administrator.
        kubectl: the binary.
        helm: the binary.
        node: where images are loaded.
        stop: the command that stops it; empty for somebody else's.
        mend: the command that starts what died of it; empty where it does so itself.
        shared_folder: the same on the node and on this machine.
    """

    kubeconfig: Path
    kubectl: Path
    helm: Path
    node: Node
    stop: str = ""
    mend: str = ""
    shared_folder: Path = SHARED_FOLDER


@contextmanager
def open_cluster(*, keep: bool) -> Iterator[Cluster]:
    """The first cluster that can be had; one that was started for this is stopped at the end.

    Args:
        keep: leave it running.

    Raises:
        ClusterUnavailableError: says how to get one.
    """
    SHARED_FOLDER.mkdir(parents=True, exist_ok=True)
    named = os.environ.get("KUBECONFIG")
    if named:
        yield _join(Path(named))
    elif _docker_runs():
        with _kind(keep=keep) as cluster:
            yield cluster
    elif os.geteuid() == 0 and shutil.which("go"):
        with _bare(keep=keep) as cluster:
            yield cluster
    else:
        message = (
            "no Kubernetes cluster: set KUBECONFIG, or start Docker (the tests then use kind), or "
            "run them as root with Go installed (they then use tests/cluster/cluster up)"
        )
        raise ClusterUnavailableError(message)


@dataclass(frozen=True)
class _BareNode:
    def build(self, tag: str, folder: Path, options: Sequence[str]) -> None:
        _run([str(BARE_SCRIPT), "image", tag, str(folder), *options])


@dataclass(frozen=True)
class _KindNode:
    kind: Path

    def build(self, tag: str, folder: Path, options: Sequence[str]) -> None:
        image = f"localhost/{tag}"
        _run(["docker", "build", "--quiet", "--tag", image, *options, str(folder)])
        _run([str(self.kind), "load", "docker-image", "--name", KIND_NAME, image])


@dataclass(frozen=True)
class _ForeignNode:
    """Somebody else's cluster: how images get there is theirs to know."""

    def build(self, tag: str, folder: Path, options: Sequence[str]) -> None:
        print(f"expecting localhost/{tag} on the cluster's nodes: not built, the cluster is given")


def _join(kubeconfig: Path) -> Cluster:
    bare = _bare_path("kubeconfig")
    if kubeconfig.resolve() == bare.resolve():
        return _bare_cluster(kubeconfig)
    return Cluster(kubeconfig, _on_path("kubectl"), _on_path("helm"), _ForeignNode())


@contextmanager
def _bare(*, keep: bool) -> Iterator[Cluster]:
    kubeconfig = _bare_path("kubeconfig")
    stops = not keep and not kubeconfig.exists()
    down = [str(BARE_SCRIPT), "down"]
    try:
        _run([str(BARE_SCRIPT), "up"])
    except KeyboardInterrupt:
        # One that fails by itself stays, with its logs.
        if stops:
            _run(down)
        raise
    try:
        yield _bare_cluster(kubeconfig)
    finally:
        if stops:
            _run(down)


def _bare_cluster(kubeconfig: Path) -> Cluster:
    binaries = _bare_path("bin")
    return Cluster(
        kubeconfig,
        binaries / "kubectl",
        binaries / "helm",
        _BareNode(),
        stop=f"{BARE_SCRIPT} down",
        mend=f"{BARE_SCRIPT} up",
    )


def _bare_path(command: str) -> Path:
    return Path(_run([str(BARE_SCRIPT), command]).strip())


@contextmanager
def _kind(*, keep: bool) -> Iterator[Cluster]:
    # Only where Docker runs is it needed.
    from pytest_kind import KindCluster  # noqa: PLC0415
    from pytest_kind import cluster as versions  # noqa: PLC0415

    versions.KIND_VERSION = KIND_VERSION
    versions.KUBECTL_VERSION = KUBERNETES_VERSION
    kind = KindCluster(KIND_NAME, image=f"kindest/node:{KUBERNETES_VERSION}")
    configuration = kind.path / "kind.yaml"
    configuration.write_text(
        "{kind: Cluster, apiVersion: kind.x-k8s.io/v1alpha4, nodes: [{role: control-plane, "
        f"extraMounts: [{{hostPath: {SHARED_FOLDER}, containerPath: {SHARED_FOLDER}}}]}}]}}\n"
    )
    kind.ensure_kind()
    binary = kind.kind_path.resolve()
    try:
        kind.create(configuration)
        kind.ensure_kubectl()
        yield Cluster(
            kind.kubeconfig_path.resolve(),
            kind.kubectl_path.resolve(),
            _on_path("helm"),
            _KindNode(binary),
            f"{binary} delete cluster --name {KIND_NAME}",
        )
    finally:
        if not keep:
            kind.delete()


def _docker_runs() -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    return subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0


def _on_path(binary: str) -> Path:
    found = shutil.which(binary)
    if found is None:
        message = f"no `{binary}` on the PATH: install it, the tests use it as a person would"
        raise ClusterUnavailableError(message)
    return Path(found)


def _run(command: Sequence[str]) -> str:
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return ended.stdout
