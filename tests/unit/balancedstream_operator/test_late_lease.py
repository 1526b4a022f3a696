"""An operator that waits for its Lease knows streams that it does not look after yet."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar

import kopf
import pytest
from supervised import DEFAULTS, Scene

from balancedstream_operator import main as process
from balancedstream_operator.main import Operator
from balancedstream_operator.metrics import OperatorMetrics


def test_it_posts_events_of_streams_that_it_knew_before_it_acted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(balancing={"mode": "No"})
    monkeypatch.setattr(process, "KubernetesCluster", lambda: scene.cluster)
    # Kopf posts events by a variable that only tasks of its handlers have.
    queue: ContextVar[list[str]] = ContextVar("queue")
    events: list[str] = []
    monkeypatch.setattr(kopf, "event", lambda _, *, reason, **more: queue.get().append(reason))

    async def see(operator: Operator) -> None:
        queue.set(events)
        operator.update(scene.resource)

    async def go() -> None:
        operator = Operator(DEFAULTS, OperatorMetrics(), active=False)
        await asyncio.create_task(see(operator))
        operator.activate()
        deadline_s = time.monotonic() + 60.0
        while not events:
            assert time.monotonic() < deadline_s, "no event"
            await asyncio.sleep(0.02)
        operator.close()

    asyncio.run(go())
    assert events == ["InvalidSpec"]
