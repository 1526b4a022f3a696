"""An operator that waits for its Lease knows streams that it does not look after yet."""

from __future__ import annotations

import asyncio
import time

import pytest
from supervised import SETTINGS, Scene

from balancedstream_operator import main as process
from balancedstream_operator.main import Operator
from balancedstream_operator.process.metrics import OperatorMetrics


def test_it_posts_events_of_streams_that_it_knew_before_it_acted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(balancing={"mode": "No"})
    monkeypatch.setattr(process, "KubernetesCluster", lambda: scene.cluster)
    events = scene.cluster.events

    async def go() -> None:
        operator = Operator(SETTINGS, OperatorMetrics(), active=False)
        operator.update(scene.resource)
        operator.activate()
        deadline_s = time.monotonic() + 60.0
        while not events:
            assert time.monotonic() < deadline_s, "no event"
            await asyncio.sleep(0.02)
        operator.close()

    asyncio.run(go())
    assert events == ["InvalidSpec"]
