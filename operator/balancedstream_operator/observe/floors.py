"""Asks a stream's query for its least number of executors, and remembers the last answer.

A query costs Prometheus time, so the operator asks it only every `EVERY_S`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.kube.clocks import has_passed

EVERY_S = 30.0
"""Pause between two questions, whether or not the query answered."""

HOLD_S = 600.0
"""The last answer counts for this long."""

MAX_FLOOR = 10_000
"""A larger answer is a mistake."""


@dataclass(frozen=True, slots=True)
class FloorAnswer:
    """What a query asks for.

    Attributes:
        executors: the least number of them; 0 for none.
        known: whether the query answers; None without a query.
        reason: in one CamelCase word.
        message: for people.
    """

    executors: int = 0
    known: bool | None = None
    reason: str = "NoQuery"
    message: str = "no query raises executors.min"


class FloorQuery:
    """Remembers the answers to one stream's query."""

    def __init__(self) -> None:
        self._forget("", 0.0)

    def _forget(self, query: str, now_s: float) -> None:
        self._query = query
        self._floor: int | None = None
        self._asked_s = -math.inf
        self._held_s = now_s
        self._why = ""

    def look(self, query: str, ask: Callable[[], float], desired: int, now_s: float) -> FloorAnswer:
        """What the query asks for now.

        While the query does not answer, the operator does not lower the number of executors.

        Args:
            query: of the stream; empty for none.
            ask: asks the query; raises MissingMeasurementsError.
            desired: executors that the stream should have.
            now_s: seconds since the Unix epoch.

        >>> FloorQuery().look("max(load)", lambda: 2.5, 4, 0.0).executors
        3
        """
        if query != self._query:
            self._forget(query, now_s)
        if not query:
            return FloorAnswer()
        if has_passed(EVERY_S, self._asked_s, now_s):
            self._asked_s = now_s
            try:
                self._floor, self._why = round_up(ask()), ""
                self._held_s = now_s
            except MissingMeasurementsError as error:
                self._why = str(error)
        # A clock may be set back.
        self._held_s = min(self._held_s, now_s)
        if not self._why:
            message = f"executors.minQuery answers {self._floor}"
            return FloorAnswer(self._floor or 0, True, "Answered", message)
        left_s = self._held_s + HOLD_S - now_s
        if left_s <= 0.0:
            message = (
                f"{self._why}. It has not answered for {HOLD_S:.0f} s: executors.min alone counts"
            )
            return FloorAnswer(0, False, "NotAnswered", message)
        if self._floor is None:
            self._floor = desired
        message = (
            f"{self._why}. For {left_s:.0f} s more there are at least {self._floor} executors, "
            "as before; then executors.min alone counts"
        )
        return FloorAnswer(self._floor, False, "Held", message)


def round_up(answer: float) -> int:
    """The number of executors that an answer asks for.

    Raises:
        MissingMeasurementsError: the answer is no number of executors.

    >>> round_up(2.0000000001), round_up(0.0)
    (2, 0)
    """
    if not 0.0 <= answer <= MAX_FLOOR:
        message = (
            f"executors.minQuery answers {answer:g}, and not a number of executors from 0 to "
            f"{MAX_FLOOR}"
        )
        raise MissingMeasurementsError(message)
    return math.ceil(round(answer, 6))
