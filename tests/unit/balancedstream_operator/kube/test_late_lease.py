"""An operator that waits for its Lease knows streams that it does not look after yet."""

from __future__ import annotations

import asyncio
import time

import pytest
from supervised import SETTINGS, Scene

from balancedstream_operator.process import operator
from balancedstream_operator.process.metrics import OperatorMetrics
from balancedstream_operator.process.operator import Operator


def test_it_posts_events_of_streams_that_it_knew_before_it_acted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(balancing={"mode": "No"})
    monkeypatch.setattr(operator, "KubernetesCluster", lambda: scene.cluster)
    events = scene.cluster.events

    async def go() -> None:
        ours = Operator(SETTINGS, OperatorMetrics(), active=False)
        ours.update(scene.resource)
        ours.activate()
        deadline_s = time.monotonic() + 60.0
        while not events:
            assert time.monotonic() < deadline_s, "no event"
            await asyncio.sleep(0.02)
        ours.close()

    asyncio.run(go())
    assert events == ["InvalidSpec"]
