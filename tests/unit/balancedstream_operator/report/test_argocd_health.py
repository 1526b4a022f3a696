"""What Argo CD's health check, which the docs hand out, believes of a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lupa.lua51 import LuaRuntime
from supervised import Scene, Shown

CHECK = Path(__file__).parents[4] / "docs" / "argocd-health.lua"


def check_health(scene: Scene, done: Shown | None) -> tuple[str, str]:
    """The status and message that Argo CD shows."""
    lua = LuaRuntime()
    resource: dict[str, Any] = {"metadata": scene.resource["metadata"]}
    if done is not None:
        resource["status"] = done.status
    check = lua.eval(f"function(obj) {CHECK.read_text('utf-8')} end")
    health = check(lua.table_from(resource, recursive=True))
    return health["status"], health["message"]


def test_a_stream_is_healthy_when_it_is_ready_and_progresses_before() -> None:
    scene = Scene()
    assert check_health(scene, None) == ("Progressing", "waits for the operator")
    assert check_health(scene, scene.run_pass())[0] == "Progressing"
    scene.start_driver()
    scene.finish_batches()
    assert check_health(scene, scene.run_pass())[0] == "Healthy"


def test_what_was_said_of_an_older_spec_does_not_count() -> None:
    scene = Scene()
    done = scene.run_until_running()
    scene.resource["metadata"]["generation"] += 1
    assert check_health(scene, done) == ("Progressing", "waits for the operator")


def test_a_stream_that_somebody_has_to_help_is_degraded_with_the_reason() -> None:
    scene = Scene()
    scene.run_until_running()
    scene.resource["spec"]["balancing"] = {"mode": "Sometimes"}
    status, message = check_health(scene, scene.run_pass())
    assert status == "Degraded"
    assert "Sometimes" in message


def test_a_suspended_stream_is_suspended() -> None:
    scene = Scene(suspend=True)
    scene.run_pass()
    assert check_health(scene, scene.run_pass())[0] == "Suspended"
