"""Plans made elsewhere: in Kubernetes the operator makes them, and the driver follows.

That the driver takes plans and answers them, instead of listening on a port, is our own design.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from balancedstream.core.plan import Answer, parse_plan
from balancedstream.engine.events import BatchFinished
from balancedstream.errors import BalancedStreamError
from balancedstream.history import BatchRecord
from balancedstream.journal import Journal
from balancedstream.realizing import Realizer, Why


class Mailbox(Protocol):
    """Where plans come in and answers go out."""

    def take_plan(self) -> str | None:
        """The newest plan that came since the last call, as JSON; None if none did."""

    def send_answer(self, answer: Answer) -> None:
        """Sends an answer, soon; one that was not sent yet is replaced."""


class Follower:
    """Realizes the plans that come, and answers each; rubbish is answered too, and changes nothing.

    Args:
        realizer: gets the plans.
        mailbox: brings them.
        journal: is told what came.
    """

    def __init__(self, realizer: Realizer, mailbox: Mailbox, journal: Journal) -> None:
        self._realizer = realizer
        self._mailbox = mailbox
        self._journal = journal
        self._unreadable = ""
        self._answered: Answer | None = None

    def look_for_plans(self) -> None:
        """Applies a plan that has come; answers when there is something new to say."""
        text = self._mailbox.take_plan()
        if text is not None:
            self._apply(text)
        self._answer()

    def finish_batch(
        self, event: BatchFinished, record: BatchRecord, executors: dict[str, int], now_s: float
    ) -> None:
        """Shows what the batch cost, for the operator to decide on."""
        self._journal.add_measurement(record, self._realizer.load_cost)
        self._journal.add_moves_under_way(self._realizer.wanted())

    def end_query(self, query: str) -> None:
        """Nothing is remembered of queries."""

    def _apply(self, text: str) -> None:
        self._unreadable = ""
        try:
            plan = parse_plan(text)
        except BalancedStreamError as error:
            self._unreadable = str(error)
            self._journal.note(f"a plan was refused: {error}")
            return
        why = f"plan {plan.epoch} of the operator"
        try:
            keys = {route.query: why for route in plan.routes}
            moves = dict.fromkeys(plan.placement, why)
            self._realizer.apply(plan, Why(moves, scaling=why, keys=keys))
            self._journal.add_moves_under_way(self._realizer.wanted())
        except BalancedStreamError as error:
            self._journal.note(f"a plan was refused: {error}")

    def _answer(self) -> None:
        answer = self._realizer.answer()
        if self._unreadable:
            answer = replace(answer, refused=self._unreadable)
        if answer != self._answered:
            self._mailbox.send_answer(answer)
            self._answered = answer
