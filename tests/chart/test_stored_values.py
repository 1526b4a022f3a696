"""`helm upgrade --reuse-values`, which brings what an older chart has stored and nothing else.

Helm then takes the stored values in the place of values.yaml, so what it renders is a copy of the
chart whose values.yaml lacks something.
"""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from charts import CHART, EVERYTHING, Manifest, load, template

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]

VALUES: Manifest = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
ALWAYS_THERE = {"podSecurityContext", "securityContext", "resources"}
"""Of every chart; without them an object has none."""

USERS_OWN = {"labels", *ALWAYS_THERE}
"""Maps that are taken as they are."""


def walk(values: Manifest, where: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all values and sections."""
    for name, value in values.items():
        yield (*where, name)
        if isinstance(value, dict) and name not in USERS_OWN:
            yield from walk(value, (*where, name))


PATHS = list(walk(VALUES))


def store(folder: Path, values: Manifest) -> Path:
    """The chart with other values of its own."""
    chart = folder / "balancedstream"
    shutil.copytree(CHART, chart)
    (chart / "values.yaml").write_text(yaml.safe_dump(values), "utf-8")
    return chart


def remove(values: Manifest, path: tuple[str, ...]) -> None:
    *above, name = path
    for section in above:
        values = values.get(section, {})
    values.pop(name, None)


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_a_value_that_is_not_stored_has_its_default(
    helm: str, tmp_path: Path, path: tuple[str, ...]
) -> None:
    values = copy.deepcopy(VALUES)
    remove(values, path)
    without = load(template(helm, {}, *EVERYTHING, chart=store(tmp_path, values)))
    if path[0] not in ALWAYS_THERE:
        assert without == load(template(helm, {}, *EVERYTHING))


def test_the_values_of_the_first_chart_are_enough(helm: str, tmp_path: Path) -> None:
    values = {name: VALUES[name] for name in ALWAYS_THERE}
    stored = load(template(helm, {}, *EVERYTHING, chart=store(tmp_path, values)))
    assert stored == load(template(helm, {}, *EVERYTHING))


@pytest.mark.parametrize("_", range(10))
def test_any_values_may_be_missing_or_null(helm: str, tmp_path: Path, _: int) -> None:
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")
    rng = random.Random(seed)
    values = copy.deepcopy(VALUES)
    nulls: Manifest = {}
    for path in rng.sample(PATHS, rng.randint(2, 20)):
        remove(values, path)
        *above, name = path
        section: Manifest | None = nulls
        for outer in above:
            section = section.setdefault(outer, {}) if section is not None else None
        if section is not None:
            section[name] = None
    load(template(helm, {}, *EVERYTHING, chart=store(tmp_path, values)))
    load(template(helm, nulls))
