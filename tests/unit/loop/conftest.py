"""A balanced query for the tests of the loop."""

from __future__ import annotations

from pathlib import Path

import pytest
from keyed_stream import DE, FR, Stream

from balancedstream.core.keys.epochs import Epoch
from balancedstream.keyed.control import forget_controls


@pytest.fixture(autouse=True)
def _a_new_driver() -> None:
    """A driver knows its queries' keys as long as its process runs; here each test is one."""
    for run_id in ("r", "r2"):
        forget_controls(run_id)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    stream = Stream(tmp_path)
    stream.run_batch(Epoch(), {DE: (5, 2.0), FR: (1, 1.0)})
    return stream
