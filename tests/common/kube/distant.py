"""The operator's process without its watch: a test in another thread gives it streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from apiserver import ApiServer, path_of

from balancedstream_operator.process.metrics import OperatorMetrics
from balancedstream_operator.process.operator import Operator
from balancedstream_operator.settings import Settings


class DistantOperator:
    """An operator on an event loop in another thread."""

    def __init__(self, metrics: OperatorMetrics) -> None:
        self._operator = Operator(Settings(), metrics)
        self._loop = asyncio.get_running_loop()

    def update(self, resource: dict[str, Any]) -> None:
        """Gives it a stream that was created or changed."""
        self._loop.call_soon_threadsafe(self._operator.update, resource)

    def change(self, server: ApiServer, changed: dict[str, Any]) -> None:
        """Somebody changes a stream in an API server, and the watch tells of it."""
        metadata = changed["metadata"]
        path = path_of("BalancedStream", metadata["name"])
        metadata["resourceVersion"] = f"{len(server.requests)}"
        server.put(path, {"status": server.objects[path].get("status") or {}, **changed})
        self.update(changed)

    def remove(self, resource: dict[str, Any]) -> None:
        """Tells it of a deleted stream."""
        self._loop.call_soon_threadsafe(self._operator.remove, resource)

    def count_streams(self) -> int:
        """Number of streams that it looks after."""
        return self._operator.count_streams()


def look_after(
    act: Callable[[DistantOperator], None], metrics: OperatorMetrics | None = None
) -> None:
    """Runs an operator until `act`, which runs in another thread, returns."""

    async def go() -> None:
        await asyncio.to_thread(act, DistantOperator(metrics or OperatorMetrics()))

    asyncio.run(go())
