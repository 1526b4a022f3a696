"""A driver whose batches are known, so that whatever is measured of it can be checked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator

from loopback import Request, Response
from patience import PATIENCE_S
from prometheus_client.exposition import choose_encoder
from waiting import wait_until

from balancedstream.core.policy import Policy
from balancedstream.core.samples import BatchSample, StageSample, TaskSample
from balancedstream.metrics.exporter import Exporter
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe.endpoints import Endpoint, Subject
from balancedstream_operator.observe.http import AnswerBudgets
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.observe.prometheus import Prometheus

STREAM = "shop/clicks"
SUBJECT = Subject(STREAM)
EXECUTORS = {"1": 1, "2": 1}
# Sums of these are exact.
COSTS_S = {0: 0.5, 1: 0.25, 2: 0.125, 3: 0.125}
"""Partition to its busy seconds in each batch."""
PLACES = {0: "1", 1: "2", 2: "2", 3: "1"}
STAGE_S = {"1": 0.625, "2": 0.375}
DURATION_S = 0.75


def rows_of(batch: int) -> int:
    """Each batch reads one row more than the one before it."""
    return 100 + batch


class Driver:
    """A driver that finishes a batch whenever it is scraped; not each scrape has to succeed.

    Args:
        stream: `namespace/name`.

    Attributes:
        exporter: what it shows.
        batch: number of the next batch.
        first: number of the first batch since it was started.
        fails: whether its page answers 503.
    """

    def __init__(self, stream: str = STREAM) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.batch = 0
        self.fails = False
        self.restart()

    def restart(self) -> None:
        """Its counters begin anew; its batches go on."""
        with self._lock:
            self.exporter = Exporter(stream=self._stream)
            self.first = self.batch

    def finish_batch(self, at_s: float) -> None:
        """One more batch has ended."""
        tasks = [
            TaskSample("q", 0, p, self.batch, PLACES[p], cost_s, rows_of(p), 1_000, at_s)
            for p, cost_s in COSTS_S.items()
        ]
        stage = StageSample("q", self.batch, "stateful", at_s, len(tasks), COSTS_S[0], STAGE_S)
        sample = BatchSample("q", self.batch, at_s, DURATION_S, rows_of(self.batch), 1.0, 0.0)
        self.exporter.on_batch(sample, tasks, EXECUTORS, [stage])
        self.batch += 1

    def answer(self, request: Request) -> Response:
        """What a scrape gets."""
        with self._lock:
            self.finish_batch(time.time())
            if self.fails:
                return Response("", 503)
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
            page = encode(self.exporter).decode()
        return Response(page, headers={"Content-Type": content_type})

    def write_scrape(self, at_s: float) -> Iterator[str]:
        """The samples of a scrape at that time, as OpenMetrics writes them."""
        for family in self.exporter.collect():
            for sample in family.samples:
                labels = ",".join(f"{name}={json.dumps(v)}" for name, v in sample.labels.items())
                yield f"{sample.name}{{{labels}}} {sample.value!r} {at_s:.3f}"


def check(found: Measurement) -> None:
    """All that was measured of a driver is true, and counts once."""
    assert (found.executors, set(found.last_batches)) == (EXECUTORS, {"q"})
    assert found.under_way == {("q", 0): 0}
    numbers = [batch.batch for batch in found.batches]
    assert len(numbers) == len(set(numbers))
    assert sum(b.input_rows for b in found.batches) == sum(map(rows_of, numbers))
    assert {b.duration_s for b in found.batches} <= {DURATION_S}
    for number in {t.batch for t in found.tasks}:
        tasks = {t.partition: t for t in found.tasks if t.batch == number}
        assert {p: (t.executor, t.busy_s, t.records) for p, t in tasks.items()} == {
            p: (PLACES[p], cost_s, rows_of(p)) for p, cost_s in COSTS_S.items()
        }
    measured = [stage.batch for stage in found.stages]
    assert len(measured) == len(set(measured))
    assert {t.batch for t in found.tasks} <= set(measured)
    for stage in found.stages:
        assert stage.executor_busy_s == STAGE_S
        assert (stage.tasks, stage.longest_s) == (len(COSTS_S), COSTS_S[0])


Observe = Callable[[float], Measurement]
"""Measures at a time."""


def observe_by(url: str, subject: Subject = SUBJECT, **credentials: str) -> Observe:
    """Measures by a Prometheus, as the operator does; credentials are by the keys of a Secret."""
    prometheus = Prometheus(Endpoint(url, tuple(credentials.items())), AnswerBudgets())
    return lambda now_s: prometheus.observe(subject, Policy(), now_s)


def measure_until(ready: Callable[[Measurement], bool], observe: Observe) -> Measurement:
    """Measures again and again, checks all of it, and returns the first that is ready."""
    seen: list[object] = ["nothing"]

    def look() -> Measurement | None:
        try:
            found = observe(time.time())
        except MissingMeasurementsError as error:
            seen[0] = error
            return None
        seen[0] = found
        check(found)
        return found if ready(found) else None

    return wait_until(
        "a measurement", look, timeout_s=PATIENCE_S, interval_s=0.1, last_seen=lambda: seen[0]
    )


def has_batches(count: int) -> Callable[[Measurement], bool]:
    """Whether so many batches were measured."""
    return lambda found: len(found.batches) >= count
