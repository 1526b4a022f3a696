"""In which order the driver's classes are compiled."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from balancedstream.engine import jvm
from balancedstream.engine.jvm.listener import list_needed

SOURCES = {
    file.name.removesuffix(".java"): file.read_text("utf-8")
    for file in resources.files(jvm).iterdir()
    if file.name.endswith(".java")
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_class_is_compiled_after_those_that_it_uses(name: str) -> None:
    order = list_needed([name])
    assert order[-1] == name
    for place, each in enumerate(order):
        code = re.sub(r"/\*.*?\*/|//[^\n]*", "", SOURCES[each], flags=re.DOTALL)
        later = [other for other in order[place + 1 :] if re.search(rf"\b{other}\b", code)]
        assert not later, f"{each} and {later} use each other"
