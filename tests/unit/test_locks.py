"""The images contain what was tested, and nothing that was not named by its hash."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "docker" / "locks"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
IMAGES = {
    "operator": ("operator", "aws"),
    "spark-4.3": ("kubernetes",),
    "spark-3.5": ("kubernetes",),
}
"""The lock of each image, and the extras that it installs."""
OF_THE_IMAGES = {
    "python_version": "3.11",
    "python_full_version": "3.11.2",
    "sys_platform": "linux",
    "extra": "",
}
"""Debian 12's Python."""


def read_lock(name: str) -> dict[str, str]:
    """Versions by name of what Linux needs; all that is locked has at least one hash."""
    text = (LOCKS / f"{name}.txt").read_text("utf-8")
    versions: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        line, *hashes = entry.split(" \\\n")
        pinned = re.fullmatch(r"(\S+)==(\S+)(?: ; (.*))?", line)
        assert pinned, line
        assert hashes, line
        assert all(re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}", found) for found in hashes), line
        if pinned[3] is None or Marker(pinned[3]).evaluate(OF_THE_IMAGES):
            versions[canonicalize_name(pinned[1])] = pinned[2]
    return versions


def read_constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def read_pins_of_spark_3() -> dict[str, str]:
    """What `make spark-versions` tests with the oldest Spark."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (spark,) = re.findall(r"^SPARKS := (3\.5\.\d+)", makefile, re.M)
    (pins,) = re.findall(r"^PINS_3\.5 := (.*)$", makefile, re.M)
    return dict(pin.split("==") for pin in [f"pyspark=={spark}", *pins.split()])


def find_needed(extras: tuple[str, ...]) -> set[str]:
    """Every package that extras need, by what the tested packages say of themselves."""
    project = PYPROJECT["project"]
    found: set[str] = set()
    left = [*map(Requirement, project["dependencies"])]
    for extra in extras:
        left += map(Requirement, project["optional-dependencies"][extra])
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        if name == "balancedstream":
            for other in requirement.extras:
                left += map(Requirement, project["optional-dependencies"][other])
            continue
        if name in found:
            continue
        found.add(name)
        for text in metadata.requires(requirement.name) or []:
            needed = Requirement(text)
            environments = [{**OF_THE_IMAGES, "extra": e} for e in {"", *requirement.extras}]
            marker = needed.marker
            if marker is None or any(marker.evaluate(environment) for environment in environments):
                left.append(needed)
    return found


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_the_versions_that_were_tested(image: str) -> None:
    constraints = read_constraints()
    if image == "spark-3.5":
        constraints |= read_pins_of_spark_3()
    lock = read_lock(image)
    assert lock.items() <= constraints.items()
    assert set(lock) == find_needed(IMAGES[image])


def test_what_builds_packages_and_locks_is_pinned_too() -> None:
    (backend,) = PYPROJECT["build-system"]["requires"]
    assert read_lock("build")["hatchling"] == backend.removeprefix("hatchling==")
    tools = (LOCKS / "tools.in").read_text("utf-8").splitlines()
    pinned = dict(line.split("==") for line in tools if not line.startswith("#"))
    assert pinned.items() <= read_lock("tools").items()


def test_no_step_of_the_images_takes_a_package_without_a_hash() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    steps = [step for line in text.splitlines() for step in line.split("&&")]
    steps = [step for step in steps if re.search(r"/pip\b.* (install|wheel) ", step)]
    assert len(steps) == 7
    for step in steps:
        assert "--require-hashes" in step or "--no-index" in step, step
        assert " wheel " not in step or "--no-build-isolation" in step, step


def test_a_release_can_name_the_base_image_by_its_digest() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    assert re.findall(r"^FROM (\S+)", text, re.M)[0] == "${BASE}"
    (default,) = re.findall(r"^ARG BASE=(\S+)$", text, re.M)
    assert default == "debian:bookworm-slim"
    assert text.index("\nARG BASE") < text.index("\nFROM "), "an ARG after FROM is of that stage"
