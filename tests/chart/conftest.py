"""The programs that these tests need."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import PROMETHEUS, find_tool


@pytest.fixture
def helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # The settings and caches of the user who runs the tests stay as they are.
    for variable in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    return find_tool("helm", "`tests/cluster/cluster build` builds it, or see helm.sh")


@pytest.fixture
def promtool() -> str:
    return find_tool("promtool", PROMETHEUS)
