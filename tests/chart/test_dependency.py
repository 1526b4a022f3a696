"""The chart as a dependency of another one: under its name, under aliases, and by a condition."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from charts import CHART, Manifest, identity, load, of_kind, only, template

from balancedstream.version import __version__
from balancedstream_operator.kubectl.checks import read_operator

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]


def make_parent(folder: Path, *aliases: str) -> Path:
    """A chart that depends on this one, under each alias; an empty one is the chart's own name."""
    parent = folder / "parent"
    shutil.copytree(CHART, parent / "charts" / "balancedstream")
    dependencies = []
    for alias in aliases:
        name = alias or "balancedstream"
        entry = {"name": "balancedstream", "version": __version__, "condition": f"{name}.enabled"}
        dependencies.append({**entry, "alias": alias} if alias else entry)
    chart = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": dependencies}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(chart), "utf-8")
    return parent


def render_parent(helm: str, folder: Path, values: Manifest, *aliases: str) -> list[Manifest]:
    return load(template(helm, values, chart=make_parent(folder, *aliases)))


@pytest.mark.parametrize("enabled", [True, False])
def test_a_condition_switches_it(helm: str, tmp_path: Path, enabled: bool) -> None:
    values = {"global": {"region": "eu"}, "balancedstream": {"enabled": enabled}}
    manifests = render_parent(helm, tmp_path, values, "")
    assert bool(manifests) is enabled


@pytest.mark.parametrize("alias", ["streams", "Stream_Operator", "-x-", "9", "a" * 70])
def test_an_alias_names_the_objects_and_the_doctor_still_finds_it(
    helm: str, tmp_path: Path, alias: str
) -> None:
    manifests = render_parent(helm, tmp_path, {alias: {"enabled": True}}, alias)
    deployment = only(manifests, "Deployment")
    name = deployment["metadata"]["name"]
    assert name.startswith("bst-")
    assert len(name) <= 63
    assert name == name.lower().strip("-")
    assert "_" not in name
    found = read_operator(deployment)
    assert found is not None
    assert found.version == __version__


def test_two_aliases_are_two_operators(helm: str, tmp_path: Path) -> None:
    values = {
        "shop": {"watch": {"namespaces": ["shop"]}},
        "bank": {"watch": {"namespaces": ["bank"]}, "crds": {"install": False}},
    }
    manifests = render_parent(helm, tmp_path, values, "shop", "bank")
    assert len({identity(d) for d in of_kind(manifests, "Deployment")}) == 2
    first, second = (d["spec"]["selector"]["matchLabels"] for d in of_kind(manifests, "Deployment"))
    assert first != second
