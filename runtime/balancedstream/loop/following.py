"""Follows plans that are made elsewhere: in Kubernetes the operator makes them.

The driver fetches plans and answers them instead of listening on a port; that is our own design.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from balancedstream.core.samples import SlotHolder
from balancedstream.core.wire.plan import Answer, parse_plan
from balancedstream.engine.events import BatchPlanned, RowsWaiting
from balancedstream.errors import BalancedStreamError
from balancedstream.loop.admitting import Admission
from balancedstream.loop.ports import FinishedBatch, PlanChannel
from balancedstream.loop.realizing import PausedError, Realizer, Why
from balancedstream.loop.sights import Sights
from balancedstream.loop.stopping import Stopping
from balancedstream.record.journal import Journal

MIN_SIGHTS = 3
"""Nothing is known of rates before the source was seen so many times."""


class Follower:
    """Realizes the plans that come, and answers each; unreadable plans are rejected.

    Args:
        realizer: gets the plans.
        plans: brings them.
        journal: records what came.
        stopping: ends queries when that is asked for.
    """

    def __init__(
        self, realizer: Realizer, plans: PlanChannel, journal: Journal, stopping: Stopping
    ) -> None:
        self._realizer = realizer
        self._stopping = stopping
        self._plans = plans
        self._journal = journal
        self._unreadable = ""
        self._answered: Answer | None = None
        self._sights = Sights()
        # A plan has bounds where its policy acts.
        self._admission = Admission(realizer, journal, "auto")
        self._wanted: dict[str, int] = {}

    def look_for_plans(self, executors: Mapping[str, int], now_s: float) -> None:
        """Applies a new plan; answers when there is something new to say."""
        text = self._plans.take_plan()
        if text is not None:
            self._apply(text)
        self._answer()
        self._stopping.look()

    def finish_batch(self, batch: FinishedBatch) -> None:
        """Serves what the batch cost, for the operator to decide on."""
        self._sights.finish_batch(batch.event.sample)
        standing = self._realizer.standing
        self._admission.admit(standing.bound(len(batch.executors)) if standing else {})
        state = self._realizer.state()
        self._journal.add_measurement(batch.record, state.restore_cost)
        self._journal.add_moves_under_way(state.moving)
        self._journal.add_prepared(state.prepared)

    def note_idle(self, query: str, executors: Mapping[str, int], now_s: float) -> None:
        """Does nothing: the operator reads it from the metrics."""

    def pause(self, reason: str) -> None:
        """Does nothing: the realizer refuses plans meanwhile."""

    def note_holders(self, holders: Sequence[SlotHolder]) -> None:
        """Does nothing: the operator reads it from the metrics."""

    def note_executors(self, executors: Mapping[str, int], now_s: float) -> None:
        """Shows what moves to an executor that joined."""
        self._journal.add_moves_under_way(self._realizer.state().moving)

    def see(
        self, event: BatchPlanned | RowsWaiting, executors: Mapping[str, int], now_s: float
    ) -> None:
        """Adds executors where the plan in force says beforehand that they will be needed."""
        if isinstance(event, BatchPlanned):
            self._admission.see(event)
        query = event.query
        known = self._sights.see(event, now_s)
        arrivals = self._sights.count_arrivals(query)
        if not known or len(arrivals.times_s) < MIN_SIGHTS:
            return
        interval_s = self._sights.find_interval_s(query)
        rate = arrivals.rate_now(interval_s)
        waiting = self._sights.foresee_waiting(query, rate, now_s)
        self._realizer.expect({query: self._sights.foresee_growth(query, waiting)})
        standing = self._realizer.standing
        if standing is None or arrivals.is_rising(interval_s):
            return
        if standing.until_s is not None and now_s >= standing.until_s:
            return
        if now_s < self._realizer.stood_at_s + standing.patience_s:
            waiting = 0.0
        step = standing.find(query, rate, waiting)
        before, self._wanted[query] = self._wanted.get(query, 0), step.executors if step else 0
        if step is None or before <= standing.asked:
            return  # What is seen only once may be chance.
        reason = (
            f"standing plan {self._realizer.state().epoch}: {rate:,.0f} rows/s of query {query} "
            f"come, and {waiting:,.0f} wait when its next batch begins"
        )
        self._realizer.stand(step.executors, reason, now_s)

    def end_query(self, query: str) -> None:
        """Forgets a query that is over."""
        self._sights.end_query(query)
        self._admission.end_query(query)
        self._wanted.pop(query, None)

    def end_application(self) -> None:
        """Tells the operator if it has asked for that."""
        self._stopping.end()

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
            if plan.standing is not None:
                # Also under plans that allow nothing: moves are made for what comes.
                self._realizer.watch_sources()
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
