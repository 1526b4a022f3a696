"""Waiting for what runs elsewhere, as long as it lives."""

from __future__ import annotations

import time
from collections.abc import Callable

from harness.benchmark import MeasurementError

POLL_S = 0.2


def wait_until(
    holds: Callable[[], bool],
    *,
    check: Callable[[], None],
    patience_s: float,
    complain: Callable[[], str],
) -> None:
    """Waits until something holds.

    Args:
        holds: whether it does.
        check: raises if it never will.
        patience_s: how long to wait.
        complain: says what did not happen in that time.

    Raises:
        MeasurementError: it takes too long.
    """
    deadline_s = time.monotonic() + patience_s
    while not holds():
        check()
        if time.monotonic() > deadline_s:
            raise MeasurementError(complain())
        time.sleep(POLL_S)
