"""What tasks tell the driver, with Spark's word for it that the task counts.

An accumulator's update comes with the task's success, and is in the driver's Python before the job
is over (`PythonAccumulatorV2.merge` waits for it): when the next batch is planned, all is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import AccumulatorParam

Report = dict[str, Any]

_takers: dict[str, Callable[[Report], None]] = {}


class ReportParam(AccumulatorParam[tuple[Report, ...]]):
    """Gathers reports in a task, and hands them to their taker in the driver.

    Args:
        control: id of the taker.
    """

    def __init__(self, control: str) -> None:
        self._control = control

    def zero(self, value: tuple[Report, ...]) -> tuple[Report, ...]:
        """No report."""
        return ()

    def addInPlace(
        self, value1: tuple[Report, ...], value2: tuple[Report, ...]
    ) -> tuple[Report, ...]:
        """In a task, both; in the driver, nothing is kept."""
        take = _takers.get(self._control)
        if take is None:
            return (*value1, *value2)
        for report in value2:
            take(report)
        return ()


def take_reports(control: str, take: Callable[[Report], None]) -> None:
    """Has reports handed over in this process from now on."""
    _takers[control] = take
