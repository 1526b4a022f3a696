"""An application with the plugin that ends as applications do leaves its report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from submitted import build_jar, submit

APP = Path(__file__).with_name("plugin_app.py")
WAYS: dict[str, tuple[str, ...]] = {"stopped": (), "unstopped": ("unstopped",)}
"""With and without `spark.stop()` at the script's end."""

pytestmark = [pytest.mark.integration, pytest.mark.turn]


@pytest.mark.parametrize("way", WAYS)
def test_an_application_that_ends_leaves_its_report(way: str, tmp_path: Path) -> None:
    settings = {
        "spark.jars": str(build_jar()),
        "spark.master": "local-cluster[1,1,1024]",
        "spark.balancedstream.report": str(tmp_path / "report"),
    }
    app = submit(APP, tmp_path, settings, *WAYS[way])
    try:
        app.find("counts: first batch on 1 executor")
        result = app.end()
    finally:
        app.close()
    assert result["wrong"] == []
    figures = json.loads((tmp_path / "report" / "report.json").read_text("utf-8"))
    assert figures["batches"] >= 1
    assert "<svg" in (tmp_path / "report" / "report.html").read_text("utf-8")
