"""Follows plans that are made elsewhere: in Kubernetes the operator makes them.

The driver fetches plans and answers them instead of listening on a port; that is our own design.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from balancedstream.core.wire.plan import Answer, parse_plan
from balancedstream.engine.events import BatchPlanned, RowsWaiting
from balancedstream.errors import BalancedStreamError
from balancedstream.loop.ports import FinishedBatch, PlanChannel
from balancedstream.loop.realizing import PausedError, Realizer, Why
from balancedstream.record.journal import Journal


class Follower:
    """Realizes the plans that come, and answers each; unreadable plans are rejected.

    Args:
        realizer: gets the plans.
        plans: brings them.
        journal: records what came.
    """

    def __init__(self, realizer: Realizer, plans: PlanChannel, journal: Journal) -> None:
        self._realizer = realizer
        self._plans = plans
        self._journal = journal
        self._unreadable = ""
        self._answered: Answer | None = None

    def look_for_plans(self) -> None:
        """Applies a new plan; answers when there is something new to say."""
        text = self._plans.take_plan()
        if text is not None:
            self._apply(text)
        self._answer()

    def finish_batch(self, batch: FinishedBatch) -> None:
        """Serves what the batch cost, for the operator to decide on."""
        state = self._realizer.state()
        self._journal.add_measurement(batch.record, state.restore_cost)
        self._journal.add_moves_under_way(state.moving)
        self._journal.add_prepared(state.prepared)

    def note_idle(self, query: str, executors: Mapping[str, int], now_s: float) -> None:
        """Does nothing: the operator reads it from the metrics."""

    def pause(self, reason: str) -> None:
        """Does nothing: the realizer refuses plans meanwhile."""

    def note_executors(self, executors: Mapping[str, int], now_s: float) -> None:
        """Shows what moves to an executor that joined."""
        self._journal.add_moves_under_way(self._realizer.state().moving)

    def see(
        self, event: BatchPlanned | RowsWaiting, executors: Mapping[str, int], now_s: float
    ) -> None:
        """Does nothing: the operator decides on what ended."""

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
            keys = {placed.query: why for placed in plan.key_placements}
            moves = dict.fromkeys(plan.placement, why)
            self._realizer.apply(plan, Why(moves, scaling=why, keys=keys))
            self._journal.add_moves_under_way(self._realizer.state().moving)
        except PausedError:
            pass  # was said when that began; the answer says it again
        except BalancedStreamError as error:
            self._journal.note(f"a plan was refused: {error}")

    def _answer(self) -> None:
        answer = self._realizer.answer()
        if self._unreadable:
            answer = replace(answer, refused=self._unreadable)
        if answer != self._answered:
            self._plans.send_answer(answer)
            self._answered = answer
