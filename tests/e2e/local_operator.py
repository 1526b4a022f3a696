"""The operator of the working tree as a process of this machine, which a test can kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from apiserver import write_kubeconfig


class LocalOperator:
    """One operator for one namespace; it listens on the ports 8080 and 8081 of this machine.

    Args:
        folder: for its log and its files.
        namespace: that it watches.
        api_url: of an API server that asks for no credentials.
        prometheus_url: for streams that name none.

    Attributes:
        log: what all processes wrote so far.
    """

    def __init__(self, folder: Path, namespace: str, api_url: str, prometheus_url: str) -> None:
        self.log = folder / "operator.log"
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(write_kubeconfig(api_url), "utf-8")
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "TMPDIR": str(folder)}
        self._command = [
            sys.executable, "-m", "balancedstream_operator.main",
            f"--namespace={namespace}", f"--prometheus-url={prometheus_url}",
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts a process; the one before has ended."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )

    def runs(self) -> bool:
        """Whether its process has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """What a lost node does to it: it ends in the middle of what it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def read_log(self) -> str:
        """What all processes wrote."""
        return self.log.read_text("utf-8") if self.log.exists() else ""
