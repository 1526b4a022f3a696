from __future__ import annotations

import doctest
from types import ModuleType

import pages
import pytest

from balancedstream.record import wording
from balancedstream.report import colours, svg

MODULES = [wording, colours, svg, pages]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_examples_in_docstrings_hold(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0
