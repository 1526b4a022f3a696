"""Applications that know nothing of balancing, started by spark-submit with the plugin."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from patience import PATIENCE_S
from sockets import find_listening
from submitted import AGENT, PLUGIN, Started, build_jar, is_alive, make_python, submit

APP = Path(__file__).with_name("plugin_app.py")
UNNEEDED = ("numpy", "pandas", "pyarrow")
CALL = "c\nz:java.lang.System\nnanoTime\ne\n"
"""In Py4J's protocol, as are `A` for the secret, and answers that begin with `!y` for yes."""

pytestmark = [pytest.mark.integration, pytest.mark.turn]


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
) -> Iterator[dict[str, Started]]:
    """Balanced and watched, side by side, because both wait a lot."""
    jar = str(build_jar())
    without = f"import sys; sys.modules.update(dict.fromkeys({UNNEEDED}))"
    python = make_python(tmp_path_factory.mktemp("python"), *filter(None, sys.path), without)
    folders = {name: tmp_path_factory.mktemp(name) for name in ("balanced", "watched")}
    # The executors of the first get no jar: they need none.
    balanced = {
        "spark.driver.extraClassPath": jar,
        # Spark loads a plugin once, however often it is named.
        "spark.plugins": f"{PLUGIN},{PLUGIN}",
        "spark.balancedstream.mode": "auto",
        "spark.balancedstream.metrics.port": "0",
    }
    watched = {
        "spark.jars": jar,
        "spark.balancedstream.metrics.port": str(taken_port),
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui_port),
        "spark.balancedstream.python": str(python),
        "spark.balancedstream.report": str(folders["watched"] / "report"),
    }
    started = {
        "balanced": submit(APP, folders["balanced"], balanced, "attach"),
        "watched": submit(APP, folders["watched"], watched),
    }
    yield started
    for app in started.values():
        app.close()


def test_an_application_is_balanced_whatever_becomes_of_the_agent(apps: dict[str, Started]) -> None:
    app = apps["balanced"]
    (first,) = app.find(AGENT)
    app.find(r"counts, operator 0: \d+ moves? .*settled")
    (url,) = app.find(r"metrics: (\S+),")
    with urlopen(url) as page:  # noqa: S310 - the test's own
        assert 'balancedstream_batches_total{query="counts"}' in page.read().decode()
    (url,) = app.find(r"report: (http\S+)")
    with urlopen(url) as page:  # noqa: S310 - the test's own
        report = page.read().decode()
    assert "<svg" in report
    assert "refresh" in report
    assert re.search(r"moves?: imbalance \d", report), "its decisions have reasons"

    os.kill(int(first), signal.SIGKILL)
    app.find("the agent ended with status 137 and starts again in 1 s")
    second = app.find(AGENT, 2)[-1]
    app.find("counts: first batch on 3 executors", 2)

    result = app.end()
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


def test_sparks_own_page_of_settings_says_where_the_live_report_is(
    apps: dict[str, Started], taken_port: int, ui_port: int
) -> None:
    apps["watched"].find(AGENT)
    url = f"http://127.0.0.1:{ui_port}/api/v1/applications"
    with urlopen(url) as answer:
        (application,) = json.load(answer)
    with urlopen(f"{url}/{application['id']}/environment") as answer:  # noqa: S310 - the test's own
        settings = dict(json.load(answer)["sparkProperties"])
    page = settings["spark.balancedstream.page"]
    assert page == f"http://127.0.0.1:{taken_port}/report"


def ask_gateway(port: int, *commands: str) -> bytes:
    """What a gateway of Py4J answers to the last command; nothing if it hangs up before."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE_S) as gateway,
            gateway.makefile("rb") as answers,
        ):
            for command in commands:
                gateway.sendall(command.encode())
                answer = answers.readline()
            return answer
    except ConnectionError:
        return b""


def test_who_is_not_on_this_machine_or_lacks_the_secret_does_not_reach_the_driver(
    apps: dict[str, Started],
) -> None:
    app = apps["watched"]
    (agent,) = map(int, app.find(AGENT))
    words = Path(f"/proc/{agent}/environ").read_text("utf-8").split("\0")
    told = dict(word.split("=", 1) for word in words if word)
    port, secret = int(told["PYSPARK_GATEWAY_PORT"]), told["PYSPARK_GATEWAY_SECRET"]
    addresses = [address for address, on in find_listening(app.process.pid) if on == port]
    assert [address.is_loopback for address in addresses] == [True]
    assert ask_gateway(port, f"A\n{secret}\n", CALL).startswith(b"!y")
    assert not ask_gateway(port, CALL).startswith(b"!y")
    assert not ask_gateway(port, f"A\n{secret[::-1]}\n", CALL).startswith(b"!y")
    assert find_listening(agent) == set(), "nobody reaches the agent"


def test_by_default_it_only_says_what_it_would_do_without_numpy_pandas_or_arrow(
    apps: dict[str, Started],
) -> None:
    app = apps["watched"]
    (agent,) = app.find(AGENT)
    app.find(r"counts, operator 0: advise: \d+ moves?")
    app.find("metrics.port=.* is in use; 0 picks a free one")
    assert "settled" not in app.read_log()
    app.process.kill()
    app.wait(lambda: not is_alive(int(agent)), "the agent ends with the driver")
    figures = json.loads((app.folder / "report" / "report.json").read_text("utf-8"))
    assert "advise" in {decision["kind"] for decision in figures["decision_list"]}
    assert figures["moves"] == 0
