"""Waiting for something to become true, with a failure that says what was last seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_Seen = TypeVar("_Seen")


def wait_until(
    what: str,
    look: Callable[[], _Seen | None],
    *,
    timeout_s: float,
    interval_s: float = 1.0,
    last_seen: Callable[[], object] = lambda: "nothing",
) -> _Seen:
    """Calls `look` until it returns something truthy, and returns that.

    Args:
        what: completes "waited in vain for ...".
        look: the condition.
        timeout_s: after so long the test fails.
        interval_s: between two looks.
        last_seen: asked only when the wait was in vain, for the failure's message.

    Raises:
        AssertionError: it did not become true in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline_s:
            message = f"waited {timeout_s:.0f} s in vain for {what}; last seen: {last_seen()}"
            raise AssertionError(message)
        time.sleep(interval_s)


def stays_true(
    what: str, look: Callable[[], bool], *, for_s: float, interval_s: float = 1.0
) -> None:
    """Fails as soon as `look` is false within the next `for_s` seconds.

    Raises:
        AssertionError: it became false.
    """
    begun_s = time.monotonic()
    while (passed_s := time.monotonic() - begun_s) < for_s:
        if not look():
            message = f"{what} held for {passed_s:.0f} s only, not for {for_s:.0f} s"
            raise AssertionError(message)
        time.sleep(interval_s)
