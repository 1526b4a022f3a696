"""Calls back when the script has imported a module, and imports nothing that it does not."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any


def when_imported(names: frozenset[str], then: Callable[[ModuleType], None]) -> None:
    """Calls `then` with the first of these modules that is imported, before its importer goes on.

    Args:
        names: full names of modules.
        then: is called once, at once if one of them was imported already.
    """
    for name in names & set(sys.modules):
        then(sys.modules[name])
        return
    sys.meta_path.insert(0, _Finder(names, then))


@dataclass(eq=False)
class _Finder(importlib.abc.MetaPathFinder):
    _names: frozenset[str]
    _then: Callable[[ModuleType], None]

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._names:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)
            return spec
        spec.loader = _Loader(spec.loader, self._then)
        return spec


@dataclass(eq=False)
class _Loader(importlib.abc.Loader):
    """Loads as the usual loader does, which the module then names as its own."""

    _usual: Any
    _then: Callable[[ModuleType], None]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._usual.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._usual
        if module.__spec__ is not None:
            module.__spec__.loader = self._usual
        self._usual.exec_module(module)
        self._then(module)
