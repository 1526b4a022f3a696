"""The figures that pages give of the flights are those of the flights."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest
from pages import ROOT

from balancedstream.engine.session.settings import SHUFFLE_PARTITIONS, tune

FLIGHTS = ROOT / "examples" / "01-flights"


def load(name: str) -> ModuleType:
    spec = spec_from_file_location(f"flights-{name}", FLIGHTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_say_how_many_flights_the_demo_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    # As where Python comes without setuptools, as it does from 3.12 on.
    monkeypatch.setitem(sys.modules, "pkg_resources", None)
    replay, days = load("replay"), load("demo").DAYS
    count = f"{len(replay.first_days(replay.read_flights(), days)):,} flights"
    assert count in (ROOT / "README.md").read_text("utf-8")
    page = (FLIGHTS / "README.md").read_text("utf-8")
    assert f"{days} days, {count}" in " ".join(page.split())


def test_the_demo_runs_with_settings_that_nobody_warns_of() -> None:
    demo = load("demo")
    added, warnings = tune({SHUFFLE_PARTITIONS: str(demo.PARTITIONS)}, demo.EXECUTORS)
    assert added
    assert warnings == []
