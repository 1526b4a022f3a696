"""The git host's workflows run what `.ci/run` runs, and what needs Docker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


def test_the_workflow_has_a_job_for_each_command_of_ci() -> None:
    commands = re.findall(r"^make (\S+)$", (ROOT / ".ci" / "run").read_text("utf-8"), re.M)
    job = yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"]["make"]
    assert job["strategy"]["matrix"]["target"] == commands
    assert "make ${{ matrix.target }}" in [step.get("run") for step in job["steps"]]
    assert job["env"]["CI"] == "true"


def test_what_a_release_is_built_of_is_built_at_each_change() -> None:
    job = yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"]["release-check"]
    assert "make release-check" in [step.get("run") for step in job["steps"]]
    assert job["env"]["CI"] == "true"


@pytest.mark.parametrize(
    "workflow", sorted(WORKFLOW.parent.glob("*.yml")), ids=lambda path: path.name
)
def test_actions_are_pinned_to_a_version(workflow: Path) -> None:
    actions = re.findall(r"uses: (\S+)", workflow.read_text("utf-8"))
    assert actions
    assert [action for action in actions if not re.search(r"@v\d+\.\d+\.\d+$", action)] == []
