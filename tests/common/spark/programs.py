"""The programs that tests need beside Python's packages."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

PROMETHEUS = (
    "it comes with Prometheus: `apt-get install --no-install-recommends prometheus` on Debian and "
    "Ubuntu, `brew install prometheus` on macOS, elsewhere from https://prometheus.io/download/"
)


def find_tool(name: str, how: str) -> str:
    """The path of a program; without it CI fails, and a laptop skips."""
    # tests/cluster builds Helm into its own folder.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bare-cluster"
    built = Path(os.environ.get("CLUSTER_CACHE") or cache) / "bin"
    found = shutil.which(name) or shutil.which(name, path=str(built))
    if found is None:
        message = f"{name} is not installed; {how}."
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found
