"""Whatever fails while a partition's state is loaded and handed over, its query goes on, exact."""

from __future__ import annotations

from pathlib import Path

import pytest
from patience import PATIENCE_S
from processes import run_script

pytestmark = [pytest.mark.integration, pytest.mark.turn]

CERTAIN = (
    "isGiven = register(id, held.provider);",
    "known.put(id, provider);",
    "report.invoke(",
    "isUpToDate = changes.replay(",
    "if (changes != null) changes.release();",
    "HELD.put(id, held);",
)
"""Steps that each move comes to, between which Spark may see the store."""


def test_a_query_survives_the_failure_of_each_step_of_a_move(tmp_path: Path) -> None:
    said = run_script(Path(__file__).with_name("faults_app.py"), tmp_path, 4 * PATIENCE_S)
    assert said["error"] is None
    assert {*said["counts"].values()} == {said["expected"]}
    for step in CERTAIN:
        assert not [left for left in said["left"] if step in left], "it was never come to"
    assert len(said["left"]) < said["steps"] // 2
    assert said["arrived"][-1], "without failures, all partitions move again"
    assert said["failures"] != [""], "what failed was reported"
