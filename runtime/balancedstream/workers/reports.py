"""Task reports: what successful tasks send to the driver.

An accumulator's update comes with the success of the task, and reaches the driver's Python before
the job ends (`PythonAccumulatorV2.merge` waits for it). So all reports are there when the next
batch is planned. A failed task reports nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pyspark import AccumulatorParam

log = logging.getLogger(__name__)

KeyReport = dict[str, Any]
"""What a task reports of its keys; see `keyed.tasks.KeyTask.finish`."""


class ReportParam(AccumulatorParam[tuple[Any, ...]]):  # type: ignore[misc]
    """Collects task reports in a task, and passes them to a function in the driver, one by one."""

    def __init__(self, take: Callable[[Any], None]) -> None:
        self._take: Callable[[Any], None] | None = take

    def __getstate__(self) -> dict[str, None]:
        # Tasks get no function of the driver.
        return {"_take": None}

    def zero(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """An empty tuple, which stands for no report."""
        return ()

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: tuple[Any, ...], value2: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """In a task, both; in the driver, nothing, since `take` got it."""
        if self._take is None:
            return (*value1, *value2)
        for report in value2:
            try:
                self._take(report)
            except Exception:
                # An error would close the connection that all accumulators share.
                log.exception("a task report is lost; the results of the stream are not affected")
        return ()
