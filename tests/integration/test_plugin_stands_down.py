"""Where the user balances too, the plugin stands down: nothing is done twice."""

from __future__ import annotations

import socket
import sys
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest
from processes import SETTINGS, write_submit_arguments
from submitted import AGENT, PLUGIN, Started, build_jar, is_alive, start, submit

from balancedstream.engine.session.settings import PROVIDER, ROCKSDB, SHUFFLE_PARTITIONS

SCRIPT = Path(__file__).with_name("taking_over_app.py")
STANDS_DOWN = "the plugin stands down: the application balances itself"

pytestmark = [pytest.mark.integration, pytest.mark.turn]


def end(app: Started) -> None:
    """Lets it end, and looks at what it found."""
    result = app.end()
    assert result["wrong"] == []
    for batches in result["batches"]:
        assert batches
        assert batches == [*range(len(batches))]
    assert result["listeners"] == 1


def is_served(port: int, text: str) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            return text in page.read().decode()
    except OSError:
        return False


def test_a_script_that_calls_balanced_takes_over_from_the_agent_with_its_settings(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "spark.jars": str(build_jar()),
        "spark.master": "local-cluster[2,1,1024]",
        PROVIDER: ROCKSDB,
        SHUFFLE_PARTITIONS: "4",
        "spark.balancedstream.mode": "auto",
        "spark.balancedstream.metrics.port": str(port),
    }
    with closing(submit(SCRIPT, tmp_path, settings)) as app:
        (agent,) = app.find(AGENT)
        app.wait(lambda: is_served(port, 'batches_total{query="counts"}'), "the agent serves")
        (tmp_path / "balance").touch()
        app.find(STANDS_DOWN)
        assert not is_alive(int(agent))
        app.wait(lambda: is_served(port, 'batches_total{query="keyed"}'), "the script serves")
        end(app)
        assert len(app.find(AGENT)) == 1, "none was started again"


def test_where_balancedstream_run_balances_no_agent_starts(tmp_path: Path) -> None:
    with_plugin = {"spark.driver.extraClassPath": str(build_jar()), "spark.plugins": PLUGIN}
    run = ["-m", "balancedstream.cli", "run", "--local", "2"]
    command: list[str | Path] = [sys.executable, *run, SCRIPT, tmp_path]
    arguments = write_submit_arguments(SETTINGS | with_plugin)
    with closing(start(tmp_path, command, PYSPARK_SUBMIT_ARGS=arguments)) as app:
        app.find("counts: first batch on 2 executors")
        (tmp_path / "balance").touch()
        app.find("keyed: first batch on 2 executors")
        end(app)
        log = app.read_log()
        assert log.count(STANDS_DOWN) == 1
        assert "agent in process" not in log
