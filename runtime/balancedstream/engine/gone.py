"""Executors that are gone, and that the driver still takes for holders of blocks.

An executor that is killed may tell of itself once more while it ends: its heartbeat finds itself
unknown to the driver, and registers again (`BlockManager.reregister`). Nothing removes it after
that. Sources that prefer executors, as Kafka's does, go by this list, and their tasks wait in each
batch for one that never comes.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any

from py4j.protocol import Py4JJavaError

from balancedstream.engine.driver import DriverSession, find_java_class

log = logging.getLogger(__name__)

WATCHED_S = 60.0
"""It ends within this time after it was removed."""

_DRIVER = "driver"


class GoneExecutors:
    """Has the driver of one application forget executors that are gone.

    Args:
        spark: one of its sessions.
        acts: whether anything may be changed; if not, nothing is forgotten.
    """

    def __init__(self, spark: DriverSession, *, acts: bool = True) -> None:
        self._jvm: Any = spark._jvm
        self._context: Any = spark.sparkContext._jsc.sc()
        self._may = acts
        self._watched_until_s = -math.inf
        # One may have gone just before.
        self.watch()

    def watch(self) -> None:
        """An executor was removed."""
        if self._may:
            self._watched_until_s = time.monotonic() + WATCHED_S

    def forget(self) -> list[str]:
        """Forgets those that have no place in the cluster any more; to be called now and then.

        Returns:
            Their ids.
        """
        if time.monotonic() > self._watched_until_s:
            return []
        try:
            return self._forget()
        except Py4JJavaError as error:
            # A build of Spark's own kind has these fields elsewhere.
            log.warning(
                "executors that are gone are not forgotten by this Spark's driver (%s): tasks that "
                "prefer one wait for it, and results are right",
                error.java_exception,
            )
            self._may, self._watched_until_s = False, -math.inf
            return []

    def _forget(self) -> list[str]:
        blocks = self._read_field("SparkEnv", "blockManager", self._context.env())
        master = self._read_field("storage.BlockManager", "master", blocks)
        holders = master.getMemoryStatus().keysIterator()
        known = []
        while holders.hasNext():
            known.append(holders.next().executorId())
        # After that: one that joins meanwhile is here first.
        ids = self._context.getExecutorIds()
        there = {ids.apply(place) for place in range(ids.size())}
        if not there:
            # Some cluster managers do not tell.
            return []
        gone = [executor for executor in known if executor not in {*there, _DRIVER}]
        for executor in gone:
            master.removeExecutorAsync(executor)
        return gone

    def _read_field(self, owner: str, name: str, of: Any) -> Any:
        """A field by its name: some methods of these classes name classes that nobody ships.

        To call one by reflection, Java reads the signatures of all.
        """
        field = find_java_class(self._jvm, f"org.apache.spark.{owner}").getDeclaredField(name)
        field.setAccessible(True)
        return field.get(of)
