"""A module that the script imports is seen, and stays as Python makes it."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from balancedstream.launch.imports import when_imported


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "late_module.py").write_text("WHAT = 'text'\n\n\ndef f():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "late_module"
    sys.modules.pop("late_module", None)


def test_a_module_is_seen_when_it_is_imported_and_has_its_own_loader(module: str) -> None:
    seen: list[ModuleType] = []
    finders = list(sys.meta_path)
    when_imported(frozenset({module, "another_that_never_comes"}), seen.append)
    assert seen == []
    imported = importlib.import_module(module)
    assert seen == [imported]
    assert sys.meta_path == finders
    assert imported.__spec__ is not None
    assert type(imported.__spec__.loader).__name__ == "SourceFileLoader"
    assert imported.__loader__ is imported.__spec__.loader
    assert inspect.getsource(imported.f).startswith("def f")


def test_a_module_that_is_there_already_is_seen_at_once() -> None:
    seen: list[ModuleType] = []
    when_imported(frozenset({"json"}), seen.append)
    assert [m.__name__ for m in seen] == ["json"]


def test_a_module_that_is_missing_stays_missing_and_is_waited_for(
    module: str, tmp_path: Path
) -> None:
    (tmp_path / "late_module.py").rename(tmp_path / "hidden")
    seen: list[ModuleType] = []
    when_imported(frozenset({module}), seen.append)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(module)
    (tmp_path / "hidden").rename(tmp_path / "late_module.py")
    importlib.invalidate_caches()
    assert importlib.import_module(module) in seen
