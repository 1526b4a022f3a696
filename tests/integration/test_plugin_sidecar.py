"""An application whose agent is in a sidecar, started by spark-submit with the plugin."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from submitted import AGENT, Started, build_jar, is_alive, submit

APP = Path(__file__).with_name("plugin_app.py")

pytestmark = [pytest.mark.integration, pytest.mark.turn]


@contextmanager
def run_sidecar(shared: Path, folder: Path) -> Iterator[Started]:
    """What the sidecar's container runs; it ends with all of its processes, as a container does."""
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "balancedstream.cli", "sidecar", shared],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        yield Started(process, folder)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_sidecar_balances_an_application_that_has_no_python_whatever_ends(
    tmp_path: Path,
) -> None:
    shared, folder = tmp_path / "shared", tmp_path / "app"
    shared.mkdir()
    folder.mkdir()
    settings = {
        "spark.jars": str(build_jar()),
        "spark.balancedstream.mode": "auto",
        "spark.balancedstream.python": "/no/python3",
        "spark.balancedstream.sidecar": str(shared),
    }
    with ExitStack() as started:
        with run_sidecar(shared, tmp_path / "sidecar") as sidecar:
            app = started.enter_context(closing(submit(APP, folder, settings)))
            (first,) = sidecar.find(AGENT)
            sidecar.find(r"counts, operator 0: \d+ moves? .*settled")
            assert [*shared.iterdir()] == [], "the secret is not left there"

            os.kill(int(first), signal.SIGKILL)
            app.find("the agent ended with status 137 and starts again in 1 s")
            second = sidecar.find(AGENT, 2)[-1]
            sidecar.find("counts: first batch on 3 executors", 2)

            app.process.kill()
            app.wait(lambda: not is_alive(int(second)), "the agent ends with the driver")
            app = started.enter_context(closing(submit(APP, folder, settings, "attach")))
            third = sidecar.find(AGENT, 3)[-1]
            sidecar.find("counts: first batch on 3 executors", 3)

        app.find("the agent ended with status 137 and starts again in 1 s")
        assert not is_alive(int(third))
        invitation = shared / "agent.env"
        app.wait(invitation.exists, "the driver waits for another sidecar")
        assert invitation.stat().st_mode & 0o777 == 0o600
        with run_sidecar(shared, tmp_path / "again") as sidecar:
            sidecar.find(AGENT)
            sidecar.find("counts: first batch on 3 executors")
            result = app.end()
            sidecar.find("ended after")
            assert sidecar.process.poll() is None
            assert "Traceback" not in sidecar.read_log()
    assert result["wrong"] == []
    # Beside the agent's listener, nothing of those that were killed; and nothing after the end.
    assert result["seen"]["agent"] == [1, False]
    assert result["seen"]["down"] == [0, True]
    assert [*shared.iterdir()] == []
