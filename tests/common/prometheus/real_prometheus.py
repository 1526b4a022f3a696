"""Prometheus itself, or what speaks its language, as a child process that listens on 127.0.0.1."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.applications import find_free_port
from patience import PATIENCE_S
from programs import PROMETHEUS, find_tool
from prometheus_api_client import PrometheusConnect
from waiting import wait_until

USER, PASSWORD = "operator", "hush"
PASSWORD_HASH = "$2b$04$bOgJhRSjob66bgma/nAtOeku3sNnZkY9mfK6GBjCEX56JI1ytylWu"  # noqa: S105
"""Bcrypt of the password, as Prometheus wants it."""

_CONFIGURATION = "prometheus.yml"


@contextmanager
def run_prometheus(folder: Path, configuration: Mapping[str, Any], *options: str) -> Iterator[str]:
    """Runs until the block ends, and yields the URL.

    Args:
        folder: of its configuration, data and log; its data may be there already.
        configuration: what `prometheus.yml` says.
        options: of its command line, beside the usual ones.
    """
    address = f"127.0.0.1:{find_free_port()}"
    command = [find_tool("prometheus", PROMETHEUS), f"--config.file={_CONFIGURATION}"]
    command += ["--storage.tsdb.path=data", f"--web.listen-address={address}", *options]
    with _run(command, folder, configuration, "Server is ready to receive web requests."):
        yield f"http://{address}"


@contextmanager
def run_victoria_metrics(
    program: Path, folder: Path, configuration: Mapping[str, Any]
) -> Iterator[str]:
    """The same with VictoriaMetrics, which reads Prometheus' configuration.

    Args:
        program: its single-node version.
        folder: as of `run_prometheus`.
        configuration: what `prometheus.yml` says.
    """
    address = f"127.0.0.1:{find_free_port()}"
    command = [str(program), f"-promscrape.config={_CONFIGURATION}", "-storageDataPath=data"]
    command += [f"-httpListenAddr={address}"]
    with _run(command, folder, configuration, "started VictoriaMetrics in"):
        yield f"http://{address}"


@contextmanager
def run_mimir(program: Path, folder: Path, configuration: Mapping[str, Any]) -> Iterator[None]:
    """The same with Mimir, whose own configuration says where it listens.

    Args:
        program: with all of its parts.
        folder: as of `run_prometheus`.
        configuration: what its file says.
    """
    command = [str(program), f"-config.file={_CONFIGURATION}", "-target=all"]
    with _run(command, folder, configuration, "Application started"):
        yield


@contextmanager
def _run(
    command: Sequence[str], folder: Path, configuration: Mapping[str, Any], ready: str
) -> Iterator[None]:
    """A server until the block ends, which begins when its log says that it is ready."""
    folder.mkdir(exist_ok=True)
    # JSON is YAML.
    (folder / _CONFIGURATION).write_text(json.dumps(configuration), "utf-8")
    log = folder / "log"
    with (
        log.open("w", encoding="utf-8") as output,
        subprocess.Popen(command, cwd=folder, stdout=output, stderr=output) as process,
    ):

        def has_begun() -> bool:
            assert process.poll() is None, log.read_text("utf-8")
            return ready in log.read_text("utf-8")

        try:
            wait_until(command[0], has_begun, timeout_s=PATIENCE_S, interval_s=0.1)
            yield
        finally:
            process.kill()


def scrape(
    page: str, job: str = "drivers", *, honor_labels: bool = False, **labels: str
) -> dict[str, Any]:
    """A job of `prometheus.yml`: one page, twice a second.

    Args:
        page: its URL.
        job: name of the job.
        honor_labels: whether labels of the page replace those of the target.
        labels: of the target; without an `instance` Prometheus takes the page's address.
    """
    return {
        "job_name": job,
        "honor_labels": honor_labels,
        "scrape_interval": "500ms",
        "scrape_timeout": "500ms",
        "static_configs": [{"targets": [urlsplit(page).netloc], "labels": labels}],
    }


def ask(url: str, expression: str, **headers: str) -> list[dict[str, str]]:
    """The labels of what an instant query finds, with its value as `value`."""
    found = PrometheusConnect(url, headers=headers).custom_query(expression)
    return [{**one["metric"], "value": one["value"][1]} for one in found]
