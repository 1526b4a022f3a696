"""The page on the architecture draws the layers that the contracts hold."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PICTURES = {"layers": 0, "operator-layers": 1, "core-layers": 2, "kubectl-layers": 3}
"""By contract: the number of its picture on the page."""


def read_contract(name: str) -> dict[str, int]:
    """By name of a package or module: how far down its layer is."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter", "utf-8")
    layers = contracts[f"importlinter:contract:{name}"]["layers"].split("\n")
    return {
        part.strip().removeprefix("balancedstream."): depth
        for depth, layer in enumerate(layers)
        for part in layer.split("|")
        if part.strip()
    }


def read_picture(number: int) -> list[str]:
    """The names in a picture of the page, from the top; what they are stands beside them."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    picture = re.findall(r"^```$\n(.*?)^```$", page, re.M | re.S)[number]
    return [name for line in picture.splitlines() for name in re.split(r" {4,}|$", line)[0].split()]


@pytest.mark.parametrize(("name", "number"), PICTURES.items(), ids=list(PICTURES))
def test_the_page_draws_each_layer_where_the_contract_has_it(name: str, number: int) -> None:
    depths, drawn = read_contract(name), read_picture(number)
    assert sorted(drawn) == sorted(depths)
    assert drawn == sorted(drawn, key=depths.__getitem__)


def test_a_paper_that_the_code_cites_has_the_title_that_the_references_give() -> None:
    references = " ".join((ROOT / "docs" / "references.md").read_text("utf-8").split()).lower()
    cited = {}
    for folder in ("runtime", "operator", "benchmarks"):
        for file in (ROOT / folder).rglob("*.py"):
            text = " ".join(file.read_text("utf-8").split())
            for title in re.findall(r'et al\.,? "([^"]+)"', text):
                cited[file.name] = title
    assert len(cited) >= 3
    assert {f: t for f, t in cited.items() if f'"{t.lower()}"' not in references} == {}
