"""A cluster with one stream whose operator acts as soon as somebody asks for something."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from apiserver import ApiServer, path_of, write_kubeconfig
from loopback import Request, Response, serve
from supervised import Scene

from balancedstream_operator.api.resource import API_VERSION, KIND
from balancedstream_operator.kubectl.main import main

STREAM = path_of(KIND, "clicks")


class Site:
    """An API server, a stream on it, and the stream's operator.

    Attributes:
        server: keeps all objects.
        scene: the operator, and the stream that it looks after.
        operated: whether the operator runs.
    """

    def __init__(self, **spec: Any) -> None:
        self.server = ApiServer()
        self.scene = Scene(**spec)
        self.scene.resource |= {"apiVersion": API_VERSION, "kind": KIND}
        self.operated = True

    def answer(self, request: Request) -> Response:
        """The API server's answer; the operator sees an annotation before it is sent."""
        response = self.server.answer(request)
        if request.method == "PATCH" and request.path == STREAM and self.operated:
            self.scene.resource["metadata"] = self.server.objects[STREAM]["metadata"]
            self.scene.run_pass()
            self.publish()
        return response

    def publish(self) -> None:
        """The API server has the stream as the operator left it."""
        self.server.put(STREAM, copy.deepcopy(self.scene.resource))


@contextmanager
def _reach(server: Callable[[Request], Response], folder: Path) -> Iterator[None]:
    with serve(server) as url, pytest.MonkeyPatch.context() as patch:
        path = folder / "kubeconfig"
        path.write_text(write_kubeconfig(url), "utf-8")
        patch.setenv("KUBECONFIG", str(path))
        # The client keeps what it discovered in the folder for temporary files.
        patch.setattr("tempfile.tempdir", str(folder))
        yield


@pytest.fixture
def kubectl_bst(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Types `kubectl bst ARGUMENTS` at a site; returns exit status, output and errors."""
    monkeypatch.setenv("COLUMNS", "1000")

    def run(site: Site, *arguments: str) -> tuple[int, str, str]:
        with _reach(site.answer, tmp_path):
            status = main(arguments)
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def make_site() -> type[Site]:
    return Site
