"""The programs that these tests need."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def find_tool(name: str, how: str) -> str:
    """The path of a program; without it CI fails, and a laptop skips."""
    # tests/cluster builds Helm into its own folder.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bare-cluster"
    built = Path(os.environ.get("CLUSTER_CACHE") or cache) / "bin"
    found = shutil.which(name) or shutil.which(name, path=str(built))
    if found is None:
        message = f"{name} is not installed: {how}."
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.fixture
def helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # The settings and caches of the user who runs the tests stay as they are.
    for variable in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    return find_tool("helm", "`tests/cluster/cluster build` builds it, or see helm.sh")


@pytest.fixture
def promtool() -> str:
    return find_tool("promtool", "it comes with Prometheus: `apt-get install prometheus`")
