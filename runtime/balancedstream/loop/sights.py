"""What is seen of the sources of queries between the ends of their batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from balancedstream.core.samples import BatchSample, Sighting
from balancedstream.core.scaling.arrivals import Arrivals, count_arrivals
from balancedstream.core.scaling.demand import INTERVAL_S
from balancedstream.engine.events import BatchPlanned, RowsWaiting

KEPT_S = 60.0
"""What was seen is kept for so long."""

_MAX_BATCHES = 10


class Sights:
    """Remembers what was seen of each query, with the batch that ran then."""

    def __init__(self) -> None:
        self._batches: dict[str, deque[BatchSample]] = {}
        self._seen: list[Sighting] = []

    @property
    def all(self) -> tuple[Sighting, ...]:
        """Of all queries, oldest first."""
        return tuple(self._seen)

    def finish_batch(self, sample: BatchSample) -> None:
        """Notes a batch that ended."""
        self._batches.setdefault(sample.query, deque(maxlen=_MAX_BATCHES)).append(sample)

    def see(self, event: BatchPlanned | RowsWaiting, now_s: float) -> bool:
        """Notes what was seen; whether it is known which batch ran then."""
        self._seen = [s for s in self._seen if s.at_s >= now_s - KEPT_S]
        sighting = self._complete(event)
        if sighting is not None:
            self._seen.append(sighting)
        return sighting is not None

    def count_arrivals(self, query: str) -> Arrivals:
        """The rows that arrived at the sources of a query during its last batches."""
        return count_arrivals(self._batches.get(query, ()), self._list(query))

    def find_interval_s(self, query: str) -> float:
        """The time over which the rate of a query is taken."""
        run = self._batches.get(query)
        return (run[-1].trigger_s if run else None) or INTERVAL_S

    def foresee_growth(self, query: str, rows: float) -> float:
        """How many times the rows of the last batch so many are; 1 if no batch had any."""
        run = self._batches.get(query)
        return rows / run[-1].input_rows if run and run[-1].input_rows else 1.0

    def foresee_waiting(self, query: str, rate: float, now_s: float) -> float:
        """Rows of a query that wait when its next batch begins, if that is in time.

        Args:
            query: with something seen of it.
            rate: rows per second that come until then.
            now_s: seconds since the Unix epoch.
        """
        last = self._list(query)[-1]
        begins_s = last.begun_s + self.find_interval_s(query)
        return (last.waiting_rows or 0.0) + rate * max(0.0, begins_s - now_s)

    def end_query(self, query: str) -> None:
        """Forgets a query that is over."""
        self._batches.pop(query, None)
        self._seen = [s for s in self._seen if s.query != query]

    def _list(self, query: str) -> Sequence[Sighting]:
        return [sighting for sighting in self._seen if sighting.query == query]

    def _complete(self, event: BatchPlanned | RowsWaiting) -> Sighting | None:
        query, at_s = event.query, event.at_s
        if isinstance(event, BatchPlanned):
            return Sighting(query, event.batch, at_s, at_s, event.rows, event.waiting_rows)
        for sighting in reversed(self._seen):
            if sighting.query == query:
                return replace(sighting, at_s=at_s, waiting_rows=event.rows)
        if not self._batches.get(query):
            return None
        last = self._batches[query][-1]
        begun_s = last.finished_s - last.duration_s
        return Sighting(query, last.batch, begun_s, at_s, float(last.input_rows), event.rows)
