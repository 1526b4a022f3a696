"""Applications on a standalone cluster are balanced, and scaled unless Spark does it itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.request import urlopen

import pytest
from submitted import AGENT, SPARK, Started, build_jar, start, submit

APP = Path(__file__).with_name("plugin_app.py")
CORES = 3
DEPLOY = "org.apache.spark.deploy"

pytestmark = [pytest.mark.integration, pytest.mark.turn]


@pytest.fixture
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster with one worker."""
    with ExitStack() as stack:

        def run(kind: str, *arguments: str) -> Started:
            folder = tmp_path_factory.mktemp(kind)
            name = f"{DEPLOY}.{kind}.{kind.capitalize()}"
            options = ["--host", "127.0.0.1", "--webui-port", "0"]
            command: list[str | Path] = [SPARK / "bin/spark-class", name, *options, *arguments]
            return stack.enter_context(closing(start(folder, command)))

        (address,) = run("master", "--port", "0").find(r"Starting Spark master at (\S+)")
        work = tmp_path_factory.mktemp("work")
        size = ["--cores", str(CORES), "--memory", "3g", "--work-dir", str(work)]
        run("worker", *size, address).find("Successfully registered with master")
        yield address


def write_policy(file: Path, executors: int) -> None:
    file.write_text(f"scaling: {{min_executors: {executors}, max_executors: {executors}}}\n")


def test_an_application_on_a_standalone_cluster_is_balanced_and_scaled(
    master: str, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    write_policy(policy, CORES)
    settings = {"spark.balancedstream.policy": str(policy)}
    with closing(submit(APP, tmp_path, choose_settings(master) | settings)) as app:
        app.find(r"counts, operator 0: \d+ moves? .*settled")

        restart_agent_with(app, policy, executors=CORES - 1)
        app.find(f"scale from {CORES} to {CORES - 1} executors")
        app.find(r"executor \d+ left")

        restart_agent_with(app, policy, executors=CORES)
        app.find(f"scale from {CORES - 1} to {CORES} executors")
        url = app.find(r"metrics: (\S+)", 3)[-1]
        app.wait(lambda: f"balancedstream_executors {CORES}.0" in read(url), "it has joined")

        end(app)


def test_where_spark_sets_the_number_of_executors_those_that_it_adds_get_partitions(
    master: str, tmp_path: Path
) -> None:
    settings = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": str(CORES),
        "spark.balancedstream.scaling.max_executors": "1",
    }
    with closing(submit(APP, tmp_path, choose_settings(master) | settings)) as app:
        app.find("Spark sets the number of executors, and partitions are placed on those")
        app.find("auto: it moves, and does not scale")
        (url,) = app.find(r"metrics: (\S+)")
        joined = f"balancedstream_executors {CORES}.0"
        app.wait(lambda: joined in read(url), "Spark has added executors")
        app.find(r"counts, operator 0: \d+ moves? .*settled")
        end(app)
    assert "scale from" not in app.read_log()


def choose_settings(master: str) -> dict[str, str]:
    return {
        "spark.jars": str(build_jar()),
        "spark.master": master,
        "spark.executor.cores": "1",
        "spark.executor.memory": "1g",
        "spark.balancedstream.metrics.port": "0",
        "spark.balancedstream.mode": "auto",
    }


def end(app: Started) -> None:
    """Lets it end, and looks at its result."""
    result = app.end()
    assert result["wrong"] == []
    assert result["batches"] == [*range(len(result["batches"]))]


def read(url: str) -> str:
    with urlopen(url) as page:  # noqa: S310 - the test's own
        text: str = page.read().decode()
        return text


def restart_agent_with(app: Started, policy: Path, executors: int) -> None:
    """An agent reads its policy when it starts."""
    write_policy(policy, executors)
    os.kill(int(app.find(AGENT)[-1]), signal.SIGKILL)
