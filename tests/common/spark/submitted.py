"""Applications with the plugin, and Pythons for its agent, as users have them."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from patience import PATIENCE_S
from processes import SETTINGS
from waiting import wait_until

ROOT = Path(__file__).parents[3]
SPARK = Path(pyspark.__file__).parent
PLUGIN = "io.balancedstream.Plugin"
AGENT = r"agent in process (\d+)"


@dataclass
class Started:
    """An application, or a sidecar, on its way.

    Attributes:
        process: the driver's, or the sidecar's.
        folder: of its files.
    """

    process: subprocess.Popen[bytes]
    folder: Path

    def read_log(self) -> str:
        return (self.folder / "log").read_text("utf-8")

    def find(self, pattern: str, count: int = 1) -> list[str]:
        """Waits until a pattern is that often in the log; what its group has found.

        An application that has failed says nothing more, and is not waited for.
        """

        def has_failed() -> bool:
            return self.process.poll() not in {None, 0}

        self.wait(lambda: self._has_said(pattern, count) or has_failed(), pattern)
        assert self._has_said(pattern, count), f"it ended without: {pattern}\n{self.read_log()}"
        return re.findall(pattern, self.read_log())

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        wait_until(what, is_so, timeout_s=PATIENCE_S, interval_s=0.2, last_seen=self.read_log)

    def _has_said(self, pattern: str, count: int) -> bool:
        return len(re.findall(pattern, self.read_log())) >= count

    def end(self) -> dict[str, Any]:
        """Lets an application end by itself; what it has left as its result."""
        (self.folder / "stop").touch()
        assert self.process.wait(PATIENCE_S) == 0, self.read_log()
        result: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return result

    def close(self) -> None:
        """Ends it, whatever it does."""
        self.process.kill()
        self.process.wait()


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


def submit(script: Path, folder: Path, settings: Mapping[str, str], *arguments: str) -> Started:
    """Starts an application in a cluster of its own, as a user does who has spark-submit."""
    given = {
        **SETTINGS,
        "spark.master": "local-cluster[3,1,1024]",
        "spark.plugins": PLUGIN,
        "spark.balancedstream.python": sys.executable,
        **settings,
    }
    options = [word for pair in given.items() for word in ("--conf", "=".join(pair))]
    return start(folder, [SPARK / "bin/spark-submit", *options, script, folder, *arguments])


def start(
    folder: Path, command: list[str | Path], *, cwd: Path | None = None, **environment: str
) -> Started:
    """Starts a driver whose log is in a folder; in `cwd`, or where the tests run."""
    own = {"SPARK_HOME": str(SPARK), "PYSPARK_PYTHON": sys.executable}
    with (folder / "log").open("wb") as log:
        driver = subprocess.Popen(
            command, env=os.environ | own | environment, stdout=log, stderr=log, cwd=cwd
        )
    return Started(driver, folder)


def make_python(folder: Path, *lines: str) -> Path:
    """A Python without packages, unless lines of a `.pth` file bring them."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "test.pth").write_text("\n".join(lines))
    return folder / "bin" / "python3"


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
