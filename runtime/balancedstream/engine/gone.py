"""Executors that are gone, and that the driver still takes for holders of blocks.

An executor that is killed may tell of itself once more while it ends: its heartbeat finds itself
unknown to the driver, and registers again (`BlockManager.reregister`). Nothing removes it after
that. Sources that prefer executors, as Kafka's does, go by this list, and their tasks wait in each
batch for one that never comes.
"""

from __future__ import annotations

import time
from typing import Any

from balancedstream.engine.driver import DriverSession

WATCHED_S = 60.0
"""It ends within this time after it was removed."""

_DRIVER = "driver"


class GoneExecutors:
    """Has the driver of one application forget executors that are gone.

    Args:
        spark: one of its sessions.
    """

    def __init__(self, spark: DriverSession) -> None:
        self._jvm: Any = spark._jvm
        self._context: Any = spark.sparkContext._jsc.sc()
        # One may have gone just before.
        self._watched_until_s = time.monotonic() + WATCHED_S

    def watch(self) -> None:
        """An executor was removed."""
        self._watched_until_s = time.monotonic() + WATCHED_S

    def forget(self) -> list[str]:
        """Forgets those that have no place in the cluster any more; to be called now and then.

        Returns:
            Their ids.
        """
        if time.monotonic() > self._watched_until_s:
            return []
        ids = self._context.getExecutorIds()
        there = {ids.apply(place) for place in range(ids.size())}
        if not there:
            # Some cluster managers do not tell.
            return []
        blocks = self._read_field("SparkEnv", "blockManager", self._context.env())
        master = self._read_field("storage.BlockManager", "master", blocks)
        known = master.getMemoryStatus().keysIterator()
        gone = []
        while known.hasNext():
            executor = known.next().executorId()
            if executor != _DRIVER and executor not in there:
                master.removeExecutorAsync(executor)
                gone.append(executor)
        return gone

    def _read_field(self, owner: str, name: str, of: Any) -> Any:
        """A field by its name: some methods of these classes name classes that nobody ships.

        To call one by reflection, Java reads the signatures of all.
        """
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        found = self._jvm.java.lang.Class.forName(f"org.apache.spark.{owner}", True, loader)
        field = found.getDeclaredField(name)
        field.setAccessible(True)
        return field.get(of)
