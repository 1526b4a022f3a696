"""Batches that are measured before anything moves, so that a run shows its own "before"."""

from __future__ import annotations

from collections import Counter

from balancedstream.engine.events import BatchFinished


class Baseline:
    """Counts measured batches until every running query with state has enough of them.

    A query's first batch does not count: it starts Python workers and compiles code. A batch
    without rows does not count either: it says nothing about the load. An application without
    state waits for all its queries, and a query that starts after the baseline is over does not
    begin it again.

    Args:
        batches: how many to measure of each query; 0 for no baseline.

    >>> Baseline(0).describe_missing()
    ''
    """

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self._measured: Counter[str] = Counter()
        self._has_state: dict[str, bool] = {}
        self._over = batches == 0

    def finish_batch(self, event: BatchFinished) -> bool:
        """Counts a batch.

        Returns:
            Whether the baseline ends with it.
        """
        if self._over:
            return False
        query = event.query
        if query in self._has_state and event.sample.input_rows > 0:
            self._measured[query] += 1
        self._has_state[query] = bool(event.operators)
        self._over = all(self._measured[each] >= self.batches for each in self._watched())
        return self._over

    def end_query(self, query: str) -> None:
        """Stops waiting for a query that is over; its count goes on if it starts again."""
        self._has_state.pop(query, None)

    def describe_missing(self) -> str:
        """How far the query with the fewest measured batches is; empty once nothing is missing."""
        if self._over:
            return ""
        watched = self._watched()
        query = min(watched, key=lambda each: self._measured[each], default="")
        of_query = f" of {query}" if len(watched) > 1 else ""
        return f"baseline: {self._measured[query]} of {self.batches} batches{of_query} measured"

    def _watched(self) -> list[str]:
        with_state = [query for query, has_state in self._has_state.items() if has_state]
        return with_state or list(self._has_state)
