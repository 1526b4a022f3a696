"""Applications that know nothing of balancing, started by spark-submit with the plugin."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pyspark
import pytest
from patience import PATIENCE_S
from processes import SETTINGS

ROOT = Path(__file__).parents[2]
APP = Path(__file__).with_name("plugin_app.py")
AGENT = r"agent in process (\d+)"
SPARK = Path(pyspark.__file__).parent

pytestmark = [pytest.mark.integration, pytest.mark.turn]


@dataclass
class App:
    """An application on its way.

    Attributes:
        driver: its process.
        folder: of its files.
    """

    driver: subprocess.Popen[bytes]
    folder: Path

    def read_log(self) -> str:
        return (self.folder / "log").read_text("utf-8")

    def find(self, pattern: str, count: int = 1) -> list[str]:
        """Waits until a pattern is that often in the log; what its group has found."""
        self.wait(lambda: len(re.findall(pattern, self.read_log())) >= count, pattern)
        return re.findall(pattern, self.read_log())

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > deadline_s:
                message = f"not within {PATIENCE_S:.0f} s: {what}\n{self.read_log()}"
                raise AssertionError(message)
            time.sleep(0.2)


def build_jar() -> Path:
    """Builds the jar from the sources as they are now."""
    path = ROOT / "spark-plugin" / "build_jar.py"
    spec = importlib.util.spec_from_file_location("build_jar", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    jar: Path = module.build_jar()
    return jar


def submit(folder: Path, settings: dict[str, str], *arguments: str) -> App:
    """Starts the application in a cluster of its own, as a user does who has spark-submit."""
    given = {
        **SETTINGS,
        "spark.master": "local-cluster[3,1,1024]",
        "spark.plugins": "io.balancedstream.Plugin",
        "spark.balancedstream.python": sys.executable,
        **settings,
    }
    options = [word for pair in given.items() for word in ("--conf", "=".join(pair))]
    with (folder / "log").open("wb") as log:
        driver = subprocess.Popen(
            [SPARK / "bin/spark-submit", *options, APP, folder, *arguments],
            env=os.environ | {"SPARK_HOME": str(SPARK), "PYSPARK_PYTHON": sys.executable},
            stdout=log,
            stderr=log,
        )
    return App(driver, folder)


@pytest.fixture(scope="module")
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


@pytest.fixture(scope="module")
def ui_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def apps(
    tmp_path_factory: pytest.TempPathFactory, taken_port: int, ui_port: int
) -> Iterator[dict[str, App]]:
    """Balanced, watched, and without a Python; side by side, because all wait a lot."""
    jar = str(build_jar())
    # The executors of the first get no jar: they need none.
    balanced = {
        "spark.driver.extraClassPath": jar,
        "spark.balancedstream.mode": "auto",
        "spark.balancedstream.metrics.port": "0",
    }
    watched = {
        "spark.jars": jar,
        "spark.balancedstream.metrics.port": str(taken_port),
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui_port),
    }
    alone = {
        "spark.jars": jar,
        "spark.master": "local[1]",
        "spark.plugins": "io.balancedstream.Plugin,io.balancedstream.Plugin",
        "spark.balancedstream.python": "/no/python3",
    }
    started = {
        "balanced": submit(tmp_path_factory.mktemp("balanced"), balanced, "attach"),
        "watched": submit(tmp_path_factory.mktemp("watched"), watched),
        "alone": submit(tmp_path_factory.mktemp("alone"), alone),
    }
    yield started
    for app in started.values():
        app.driver.kill()
        app.driver.wait()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_application_is_balanced_whatever_becomes_of_the_agent(apps: dict[str, App]) -> None:
    app = apps["balanced"]
    (first,) = app.find(AGENT)
    app.find(r"counts, operator 0: \d+ moves? .*settled")
    (url,) = app.find(r"metrics: (\S+)")
    with urlopen(url) as page:  # noqa: S310 - the test's own
        assert 'balancedstream_batches_total{query="counts"}' in page.read().decode()

    os.kill(int(first), signal.SIGKILL)
    app.find("the agent ended with status 137 and starts again in 1 s")
    second = app.find(AGENT, 2)[-1]
    app.find("counts: first batch on 3 executors", 2)

    (app.folder / "stop").touch()
    assert app.driver.wait(PATIENCE_S) == 0, app.read_log()
    result = json.loads((app.folder / "result.json").read_text())
    assert result["wrong"] == []
    assert result["batches"] == [*range(len(result["batches"]))]
    # Beside the agent's listener, nothing of the one that was killed; and nothing after the end.
    assert result["seen"] == {
        "agent": [1, False],
        "down": [0, True],
        "attached": [1],
        "detached": [0, True],
    }
    app.find("the plugin stands down: a test says so")
    assert not is_alive(int(second))
    assert len(app.find("ended after")) >= 1


def test_without_a_python_the_application_runs_and_one_line_says_what_to_do(
    apps: dict[str, App],
) -> None:
    app = apps["alone"]
    app.find("the agent's Python cannot be started")
    (app.folder / "stop").touch()
    assert app.driver.wait(PATIENCE_S) == 0, app.read_log()
    assert json.loads((app.folder / "result.json").read_text())["wrong"] == []
    # One, though the plugin is named twice.
    (line,) = re.findall(r"^balancedstream: .*", app.read_log(), re.M)
    assert "/no/python3" in line
    assert "Set spark.balancedstream.python to a Python 3.11 or newer" in line


def test_sparks_own_page_of_settings_says_where_the_live_report_is(
    apps: dict[str, App], taken_port: int, ui_port: int
) -> None:
    apps["watched"].find(AGENT)
    url = f"http://127.0.0.1:{ui_port}/api/v1/applications"
    with urlopen(url) as answer:
        (application,) = json.load(answer)
    with urlopen(f"{url}/{application['id']}/environment") as answer:  # noqa: S310 - the test's own
        settings = dict(json.load(answer)["sparkProperties"])
    page = settings["spark.balancedstream.page"]
    assert page == f"http://127.0.0.1:{taken_port}/report"


def test_by_default_it_only_says_what_it_would_do(apps: dict[str, App]) -> None:
    app = apps["watched"]
    (agent,) = app.find(AGENT)
    app.find(r"counts, operator 0: advise: \d+ moves?")
    app.find("metrics.port=.* is in use; 0 picks a free one")
    assert "settled" not in app.read_log()
    app.driver.kill()
    app.wait(lambda: not is_alive(int(agent)), "the agent ends with the driver")
