"""How long the batches of a stream would last on another number of executors.

The stages of a micro-batch run one after the other. Each lasts as long as its longest task, or as
its work on the cores that its tasks can fill; whole state partitions have to find room on whole
cores; and the driver's own time stays. DS2 knows operators that run side by side; this model is our
own design.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from balancedstream.core.samples import StageKind
from balancedstream.core.scaling.workload import QueryWork, Work


@dataclass(frozen=True, slots=True)
class Limit:
    """What keeps more executors from making batches faster.

    Attributes:
        query: whose batches are slowest then.
        kind: the kind of stage that lasts longest then; None for the driver.
    """

    query: QueryWork
    kind: StageKind | None


@dataclass(frozen=True, slots=True)
class BatchModel:
    """Predicts from the measured work, its partitions balanced.

    Attributes:
        work: of all queries.
        cores: of one executor, as a mean.
        late: whether a backlog takes too long, so that the time of the driver counts also without a
            trigger interval.

    >>> from balancedstream.core.scaling.workload import StageWork
    >>> query = QueryWork("q", 9.0, 9.0, 10.0, 10.0, 100.0, {"planning": 1.0},
    ...                   {"source": StageWork(tasks=2, work=1.6, longest=0.8)})
    >>> model = BatchModel(Work(divisible=1.6, queries=[query]), cores=1, late=False)
    >>> round(model.last(1), 2), round(model.last(2), 2), round(model.last(4), 2)
    (1.7, 0.9, 0.9)
    >>> model.find_limit(2).kind
    'source'
    """

    work: Work
    cores: float
    late: bool

    def count_slots(self, executors: int) -> int:
        """Cores of so many executors, at least 1."""
        return max(1, int(executors * self.cores))

    def fill(self, executors: int, rise: float = 1.0) -> float:
        """Busy seconds per second of the fullest core, at `rise` times the arriving work."""
        slots = self.count_slots(executors)
        filled = [self.work.divisible * rise / slots] * slots
        for work in self.work.arriving:
            heapq.heapreplace(filled, filled[0] + work * rise)
        return max(filled)

    def fits(self, executors: int, full: float, rise: float = 1.0) -> bool:
        """Whether cores stay below `full`, and batches within that part of their interval."""
        slots = self.count_slots(executors)
        return self.fill(executors, rise) + self.work.share_driver() <= full and all(
            query.last(slots) * rise + query.share_driver() <= full for query in self.work.queries
        )

    def last(self, executors: int) -> float:
        """Seconds per second that the batches of the slowest query would last."""
        slots = self.count_slots(executors)
        driver = max((q.share_driver(late=self.late) for q in self.work.queries), default=0.0)
        stages = [self._last_of(query, slots) for query in self.work.queries]
        return max([self.fill(executors) + driver, *stages])

    def gain(self, before: int, after: int) -> float:
        """By what fraction batches would be faster on `after` executors than on `before`."""
        return self.last(before) / self.last(after) - 1 if self.last(after) else 0.0

    def find_limit(self, executors: int) -> Limit:
        """What would limit the batches on twice the executors."""
        slots = self.count_slots(2 * executors)
        query = max(self.work.queries, key=lambda query: self._last_of(query, slots))
        driver = query.share_driver(late=self.late)
        lasting = {kind: stage.last(slots) for kind, stage in query.stages.items()}
        heaviest = self.work.find_heaviest(query.query)
        if heaviest is not None:
            share = self.work.partitions[heaviest]
            lasting["stateful"] = max(share, lasting.get("stateful", 0.0))
        kind = max(lasting, key=lambda kind: lasting[kind], default=None)
        return Limit(query, None if kind is None or driver >= lasting[kind] else kind)

    def _last_of(self, query: QueryWork, slots: int) -> float:
        return query.last(slots) + query.share_driver(late=self.late)
