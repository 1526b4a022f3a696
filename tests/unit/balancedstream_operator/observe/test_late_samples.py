"""What Prometheus shows late is decided on as it would have been at once."""

from __future__ import annotations

from typing import Any

import pytest
from supervised import Scene, conditions


def pass_over_skew(late_s: float) -> tuple[dict[str, Any], Any]:
    """Conditions and placement after a pass that sees hot partitions so much later."""
    scene = Scene()
    scene.run_pass()
    scene.start_driver()
    scene.finish_batches()
    scene.now_s += late_s
    done = scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None
    return conditions(done), plan.placement


@pytest.mark.parametrize("late_s", [100.0, 700.0])
def test_a_skew_that_is_seen_late_is_balanced_and_the_stream_is_not_taken_for_hung(
    late_s: float,
) -> None:
    found, placement = pass_over_skew(late_s)
    assert found["Running"] == ("True", "BatchesProgress")
    assert (found, placement) == pass_over_skew(0.0)
    assert placement, "something moves"
