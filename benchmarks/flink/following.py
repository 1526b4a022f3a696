"""Waits for the rows of a query, as long as it and the process that writes them live."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from harness.waiting import wait_until

from flink.topics import Traffic

PATIENCE_S = 240.0


@dataclass(frozen=True)
class Following:
    """A query and the rows that come to it.

    Attributes:
        check_query: raises MeasurementError if it failed.
        traffic: its rows and results.
    """

    check_query: Callable[[], None]
    traffic: Traffic

    def await_all(self) -> None:
        """Waits until all rows that are written by now are in results."""
        written = len(self.traffic.written)
        self.await_that(lambda: self.traffic.done >= written, "rows are missing")

    def rest(self, seconds: float) -> None:
        """Lets it run for so long."""
        until_s = time.monotonic() + seconds
        self.await_that(lambda: time.monotonic() >= until_s, "time stands still")

    def await_that(self, holds: Callable[[], bool], complaint: str) -> None:
        """Waits as long as both ends live.

        Raises:
            MeasurementError: it does not, or a process ended.
        """

        def check() -> None:
            self.check_query()
            self.traffic.check_alive()

        wait_until(
            holds,
            check=check,
            patience_s=PATIENCE_S,
            complain=lambda: (
                f"{complaint} within {PATIENCE_S:.0f} s: {self.traffic.done} of "
                f"{len(self.traffic.written)} rows are in results"
            ),
        )
