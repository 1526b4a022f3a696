"""Adaptive admission: bounds the rows of the next batches, or says how it would."""

from __future__ import annotations

from collections.abc import Mapping

from balancedstream.core.policy import Mode
from balancedstream.engine.events import BatchPlanned
from balancedstream.loop.realizing import Realizer
from balancedstream.record.journal import Journal


class Admission:
    """Hands bounds to the realizer, where the policy acts and the sources take one.

    Args:
        realizer: has the application.
        journal: records what is bounded.
        mode: of the policy.
    """

    def __init__(self, realizer: Realizer, journal: Journal, mode: Mode) -> None:
        self._realizer = realizer
        self._journal = journal
        self._mode = mode
        self._bounds: dict[str, float] = {}
        self._refused: dict[str, str] = {}
        self._told: set[str] = set()

    @property
    def bounded(self) -> tuple[str, ...]:
        """Queries whose batches are bounded now."""
        return tuple(sorted(self._bounds)) if self._mode == "auto" else ()

    def admit(self, bounds: Mapping[str, float]) -> None:
        """Bounds the next batches; a bound that is not renewed ends after some batches.

        Args:
            bounds: query to the rows that its next batch should have at most; other queries are
                not bounded any more.
        """
        taken = dict(bounds)
        for query, rows in bounds.items() if self._mode == "auto" else ():
            # Asked each time: a folder without a row so far may have some by now.
            why = self._realizer.bound(query, rows)
            if why and self._refused.get(query) != why:
                self._refused[query] = why
                self._journal.note(f"{query}: its batches are not bounded: {why}")
            if why:
                del taken[query]
        self._bounds = taken

    def see(self, event: BatchPlanned) -> None:
        """Says once for each time that it falls behind that a query is bounded, or would be."""
        query, bound = event.query, self._bounds.get(event.query)
        if bound is None or event.rows is None:
            return
        waiting = event.rows + (event.waiting_rows or 0.0)
        if waiting <= bound:
            self._told.discard(query)
        elif query not in self._told:
            self._told.add(query)
            acts = "are" if self._mode == "auto" else "would be"
            self._journal.note(
                f"{query}: {waiting:,.0f} rows wait: batches {acts} bounded to {bound:,.0f} rows, "
                "so that each ends in time and new executors help soon"
            )

    def end_query(self, query: str) -> None:
        """Forgets a query that is over."""
        self._bounds.pop(query, None)
        self._refused.pop(query, None)
        self._told.discard(query)
