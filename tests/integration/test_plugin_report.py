"""An application with the plugin that ends as applications do leaves its report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from submitted import Started, build_jar, submit

APP = Path(__file__).with_name("plugin_app.py")
WAYS = {"stopped": (), "unstopped": ("unstopped",)}
"""With and without `spark.stop()` at the script's end."""

pytestmark = [pytest.mark.integration, pytest.mark.turn]


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Started]]:
    jar = str(build_jar())
    started = {}
    for way, arguments in WAYS.items():
        folder = tmp_path_factory.mktemp(way)
        report = {"spark.balancedstream.report": str(folder / "report")}
        started[way] = submit(APP, folder, {"spark.jars": jar} | report, *arguments)
    yield started
    for app in started.values():
        app.close()


@pytest.mark.parametrize("way", WAYS)
def test_an_application_that_ends_leaves_its_report(way: str, apps: dict[str, Started]) -> None:
    app = apps[way]
    app.find("counts: first batch on 3 executors")
    app.find(r"counts, operator 0: advise")
    result = app.end()
    assert result["wrong"] == []
    figures = json.loads((app.folder / "report" / "report.json").read_text("utf-8"))
    assert figures["batches"] >= 2
    assert "<svg" in (app.folder / "report" / "report.html").read_text("utf-8")
