"""What pages and messages tell to install is what the release's workflow pushes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from artifacts import (
    CHARTS,
    IMAGES,
    REGISTRY,
    SOURCE,
    BrokenReleaseError,
    skip,
)
from page_commands import PROJECT
from pages import PAGES, ROOT, Command, read_commands

from balancedstream.version import __version__

WORKFLOW: dict[Any, Any] = yaml.safe_load(
    (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
)
STEPS = WORKFLOW["jobs"]["publish"]["steps"]
TEXTS = {
    path: path.read_text("utf-8")
    for path in (
        *PAGES,
        ROOT / "Dockerfile",
        *ROOT.glob("examples/**/*.yaml"),
        *ROOT.glob("charts/*/**/*.*"),
        *ROOT.glob("runtime/**/*.py"),
        *ROOT.glob("operator/**/*.py"),
    )
}


def commands() -> list[Command]:
    """What the workflow types, in order; `make` of itself is one of them."""
    lines = "\n".join(str(step.get("run", "")) for step in STEPS)
    values = {"REGISTRY": WORKFLOW["jobs"]["publish"]["env"]["REGISTRY"], "VERSION": __version__}
    for name, value in values.items():
        lines = lines.replace(f"${name}", value)
    simple = [line for line in lines.splitlines() if re.match(r"(docker|helm) push|make ", line)]
    return read_commands("\n".join(simple), prompt=False)


def pushed(program: str) -> list[tuple[str, ...]]:
    return [c.words[2:] for c in commands() if c.words[:2] == (program, "push")]


def test_a_tag_publishes_what_was_checked_before_and_nothing_is_skipped() -> None:
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}  # YAML's 1.1 takes `on` for true
    typed = [c.words for c in commands()]
    assert typed.index(("make", "release-check")) == 0
    assert WORKFLOW["jobs"]["publish"]["env"]["CI"] == "true"
    assert any("GITHUB_REF_NAME" in step.get("run", "") for step in STEPS[:4])


def test_the_images_that_are_pushed_are_those_that_are_built() -> None:
    assert pushed("docker") == [(f"{REGISTRY}/{name}",) for name in IMAGES]


def test_the_chart_is_pushed_to_the_address_that_the_pages_give() -> None:
    assert pushed("helm") == [(f"dist/balancedstream-{__version__}.tgz", CHARTS)]


def test_pages_name_no_other_images_charts_or_registry_of_ours() -> None:
    names = {name.partition(":")[0] for name in IMAGES}
    chart = yaml.safe_load((ROOT / "charts/balancedstream/Chart.yaml").read_text("utf-8"))["name"]
    addresses = {f"{REGISTRY}/{name}" for name in names} | {f"{REGISTRY}/charts/{chart}"}
    shown = set()
    for path, text in TEXTS.items():
        for address in re.findall(r"\b(ghcr\.io/[\w./-]+\w)", text):
            shown.add(address)
            assert address in addresses | {REGISTRY, CHARTS.removeprefix("oci://")}, path
    assert addresses <= shown, "the page about releases names each"


def test_whoever_installs_by_pip_gets_this_package_with_extras_that_exist() -> None:
    """From a clone, or by its name."""
    installed = re.compile(
        r"pip install (?:--?[\w-]+ )*'?(\.|balancedstream)(?:\[([\w,]+)\])?(?=['\s`;,\)])"
    )
    found = [(path, *m) for path, text in TEXTS.items() for m in installed.findall(text)]
    assert len(found) > 5
    for path, name, extras in found:
        assert name in {".", PROJECT["name"]}, path
        for extra in filter(None, extras.split(",")):
            assert extra in PROJECT["optional-dependencies"], path


def test_the_page_of_a_release_has_every_file_that_is_built() -> None:
    made = str(STEPS[-1]["run"])
    for file in ("dist/packages/*", "$VERSION.tgz", "kubectl-bst.tar.gz", "bst.yaml", "sbom-"):
        assert file in made
    uploads = [step["with"]["packages-dir"] for step in STEPS if "pypi-publish" in str(step)]
    assert uploads == ["dist/packages"]


def test_the_project_has_one_address() -> None:
    assert PROJECT["urls"]["Source"] == SOURCE
    owner = SOURCE.split("/")[-2]
    assert f"ghcr.io/{owner}" == REGISTRY


def test_a_part_that_cannot_be_built_is_named_and_in_ci_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CI", raising=False)
    skip("images", "Docker does not run here")
    assert capsys.readouterr().out == "images: skipped, Docker does not run here\n"
    monkeypatch.setenv("CI", "true")
    with pytest.raises(BrokenReleaseError, match="images: Docker does not run here"):
        skip("images", "Docker does not run here")
