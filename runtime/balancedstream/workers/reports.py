"""What tasks tell the driver, with Spark's word for it that the task counts.

An accumulator's update comes with the task's success, and is in the driver's Python before the job
is over (`PythonAccumulatorV2.merge` waits for it): when the next batch is planned, all is known. A
task that failed reports nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pyspark import AccumulatorParam

log = logging.getLogger(__name__)


class ReportParam(AccumulatorParam[tuple[Any, ...]]):  # type: ignore[misc]
    """Gathers reports in a task, and hands them to their taker in the driver.

    Args:
        take: is given one report after the other while Spark waits.
    """

    def __init__(self, take: Callable[[Any], None]) -> None:
        self._take: Callable[[Any], None] | None = take

    def __getstate__(self) -> dict[str, None]:
        # What is sent to the tasks is not the driver any more.
        return {"_take": None}

    def zero(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """No report."""
        return ()

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: tuple[Any, ...], value2: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """In a task, both; in the driver, nothing is kept."""
        if self._take is None:
            return (*value1, *value2)
        for report in value2:
            try:
                self._take(report)
            except Exception:
                # An error would end the one connection that all accumulators come by.
                log.exception("the report of a task is lost; the stream's results are not affected")
        return ()
