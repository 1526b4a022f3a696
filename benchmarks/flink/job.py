"""Flink's REST interface, and the job that is started and changed by it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

from harness.benchmark import MeasurementError
from harness.waiting import wait_until

PATIENCE_S = 120.0
REQUEST_S = 30.0


class Rest:
    """The REST interface of a cluster on this machine.

    Args:
        port: of it.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What it answers.

        Raises:
            OSError: it does not, or refuses.
        """
        data = None if body is None else json.dumps(body).encode()
        return self._send(method, path, data, "application/json")

    def upload(self, jar: Path) -> str:
        """Gives the cluster a jar; returns its id there."""
        border = uuid4().hex
        head = (
            f'--{border}\r\nContent-Disposition: form-data; name="jarfile"; '
            f'filename="{jar.name}"\r\nContent-Type: application/x-java-archive\r\n\r\n'
        )
        body = head.encode() + jar.read_bytes() + f"\r\n--{border}--\r\n".encode()
        answer = self._send("POST", "/jars/upload", body, f"multipart/form-data; boundary={border}")
        return Path(answer["filename"]).name

    def _send(self, method: str, path: str, data: bytes | None, kind: str) -> Any:
        url = f"http://127.0.0.1:{self._port}{path}"
        request = Request(url, data, {"Content-Type": kind}, method=method)
        with urlopen(request, timeout=REQUEST_S) as answer:  # noqa: S310 - our own cluster
            return json.loads(answer.read() or b"{}")


class Job:
    """The one job of a cluster.

    Args:
        rest: of the cluster.
        jar: that has `Submit`.
        statements: of SQL, which it runs.
        savepoints: folder for them.
    """

    def __init__(self, rest: Rest, jar: Path, statements: Sequence[str], savepoints: Path) -> None:
        self._rest = rest
        self._jar = rest.upload(jar)
        self._statements = list(statements)
        self._savepoints = savepoints
        self._id = ""

    def start(self, parallelism: int, savepoint: str | None = None) -> None:
        """Starts it from the beginning or from a savepoint, and waits until it runs."""
        body: dict[str, Any] = {
            "entryClass": "Submit",
            "programArgsList": self._statements,
            "parallelism": parallelism,
        }
        if savepoint is not None:
            body["savepointPath"] = savepoint
        self._id = str(self._rest.ask("POST", f"/jars/{self._jar}/run", body)["jobid"])
        self._await_running(parallelism)

    def rescale(self, parallelism: int) -> None:
        """Declares how many slots it is to have while it runs, and waits until it runs there."""
        bounds = {"parallelism": {"lowerBound": 1, "upperBound": parallelism}}
        requirements = {vertex["id"]: bounds for vertex in self._describe()["vertices"]}
        self._rest.ask("PUT", f"/jobs/{self._id}/resource-requirements", requirements)
        self._await_running(parallelism)

    def stop_with_savepoint(self) -> str:
        """Stops it; returns where its savepoint is.

        Raises:
            MeasurementError: there is none.
        """
        body = {"targetDirectory": self._savepoints.as_uri(), "drain": False}
        trigger = self._rest.ask("POST", f"/jobs/{self._id}/stop", body)["request-id"]
        answer: dict[str, Any] = {}

        def is_over() -> bool:
            answer.update(self._rest.ask("GET", f"/jobs/{self._id}/savepoints/{trigger}"))
            return bool(answer["status"]["id"] == "COMPLETED")

        self._await_that(is_over, "the savepoint was not made")
        if "location" not in answer["operation"]:
            message = f"the savepoint failed: {answer['operation']}"
            raise MeasurementError(message)
        return str(answer["operation"]["location"])

    def check_alive(self) -> None:
        """Raises MeasurementError if it failed."""
        if self._describe()["state"] == "FAILED":
            message = (
                f"the job of Flink failed: {self._rest.ask('GET', self._path + '/exceptions')}"
            )
            raise MeasurementError(message)

    def _await_running(self, parallelism: int) -> None:
        """Waits until every task of the job runs, of each vertex so many."""

        def runs() -> bool:
            vertices = self._describe()["vertices"]
            return bool(vertices) and all(
                vertex["parallelism"] == parallelism == vertex["tasks"]["RUNNING"]
                for vertex in vertices
            )

        self._await_that(runs, f"the job did not run with parallelism {parallelism}")

    def _await_that(self, holds: Callable[[], bool], complaint: str) -> None:
        wait_until(
            holds,
            check=self.check_alive,
            patience_s=PATIENCE_S,
            complain=lambda: f"{complaint} within {PATIENCE_S:.0f} s",
        )

    def _describe(self) -> dict[str, Any]:
        described: dict[str, Any] = self._rest.ask("GET", self._path)
        return described

    @property
    def _path(self) -> str:
        return f"/jobs/{self._id}"
