"""Makes the passes over one stream: reconcile it, report the outcome, write the status.

This module alone knows what a failed pass means for the next one: outages of the API server,
pauses, the deletion of the stream, and whose turn it is to replace a driver.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.status import Status, StreamEvent, read_status
from balancedstream_operator.errors import (
    ClusterError,
    StreamGoneError,
    StreamLeavingError,
    UnreachableError,
)
from balancedstream_operator.kube.clocks import RESTING_S, choose_retry_s
from balancedstream_operator.kube.cluster import Cluster
from balancedstream_operator.kube.stream_reader import StreamReader
from balancedstream_operator.observe.endpoints import Endpoint
from balancedstream_operator.observe.measurer import Source
from balancedstream_operator.plan.shares import Shares
from balancedstream_operator.process.turns import Turns
from balancedstream_operator.reconcile.outcome import PassOutcome
from balancedstream_operator.reconcile.reconciler import Reconciler
from balancedstream_operator.report.draft import Report
from balancedstream_operator.report.report import report, report_deletion, report_failure
from balancedstream_operator.report.writer import StatusWriter
from balancedstream_operator.settings import Settings

log = logging.getLogger(__name__)

OUTAGE_PASSES = 3
"""The API server must have failed this many passes in a row before the status says so."""

RETRY_S = 5.0
MAX_RETRY_S = 300.0
"""Pause after a pass that failed; it doubles with each further one, up to the limit."""

REST = 5.0
"""A pass is followed by a pause of at least so many times as long: a stream whose Prometheus takes
its time has a sixth of a thread at most."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of a pass.

    Attributes:
        status: of the stream; None if it could not be written.
        events: what is new.
        interval_s: until the next pass.
        failure: what ended the pass too early; None if nothing did.
        took_s: how long the pass took.
    """

    status: Status | None
    events: tuple[StreamEvent, ...] = ()
    interval_s: float = 0.0
    failure: Exception | None = None
    took_s: float = 0.0


class Passes:
    """Makes the passes over one stream.

    Args:
        stream: which.
        cluster: where.
        open_source: gives the Prometheus at an endpoint.
        settings: of the installation.
        find_streams: gives all BalancedStreams that are known, this one among them.
        turns: of all streams, to replace their drivers.
        shares: of all streams, under the operator's limits over all of them.
    """

    def __init__(
        self,
        stream: Stream,
        cluster: Cluster,
        open_source: Callable[[Endpoint], Source],
        settings: Settings,
        find_streams: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
        *,
        turns: Turns | None = None,
        shares: Shares | None = None,
    ) -> None:
        self._stream = stream
        self._turns = turns or Turns()
        self._reader = StreamReader(stream, cluster)
        self._reconciler = Reconciler(
            stream,
            cluster,
            self._reader,
            open_source,
            settings,
            find_streams=find_streams,
            take_turn=lambda now_s: self._turns.take(stream, now_s),
            shares=shares or Shares(settings.caps),
        )
        self._writer = StatusWriter(stream, cluster)
        self._status: Status | None = None
        self._events: list[StreamEvent] = []
        self._outages = 0
        self._failures = 0

    def run(self, resource: Mapping[str, Any], now_s: float) -> Pass:
        """Brings the stream one step closer to its spec, and writes its status; it blocks.

        A pass that fails loses nothing: no pass depends on the one before.

        Raises:
            StreamGoneError: the stream does not exist any more.
        """
        began_s = time.monotonic()
        try:
            done = self._make_pass(resource, now_s)
        except StreamGoneError:
            self._turns.end(self._stream)
            raise
        except Exception as error:
            done = Pass(None, failure=error)
        done = replace(done, took_s=time.monotonic() - began_s)
        done = replace(done, interval_s=choose_rest_s(done.interval_s, done.took_s))
        if done.failure is None:
            self._failures = 0
            return done
        return self._tell_failure(done, done.failure)

    def _make_pass(self, resource: Mapping[str, Any], now_s: float) -> Pass:
        """A pass over a stream that may be being deleted."""
        try:
            resource = self._reader.find_current(resource)
            return self._look_after(resource, now_s)
        except StreamLeavingError as error:
            self._turns.end(self._stream)
            made = report_deletion(str(error), self._recall_status(resource), now_s)
            return self._write(made, RESTING_S, now_s)

    def _look_after(self, resource: Mapping[str, Any], now_s: float) -> Pass:
        """A pass over a stream that is there: three calls in a row."""
        before = self._recall_status(resource)
        try:
            outcome = self._reconciler.reconcile(resource, before, now_s)
            made = report(outcome, before, int(resource["metadata"].get("generation", 0)), now_s)
        except (StreamGoneError, StreamLeavingError):
            raise
        except Exception as error:
            self._count_outage(error)
            return self._report_failure(resource, error, now_s)
        self._outages = 0
        done = self._write(made, self._choose_interval_s(outcome, made.status, now_s), now_s)
        self._turns.see(self._stream, made.status)
        return done

    def _count_outage(self, error: Exception) -> None:
        """Counts the passes in a row that the API server did not answer."""
        if not isinstance(error, UnreachableError):
            self._outages = 0
            return
        self._outages += 1
        if self._outages < OUTAGE_PASSES:
            raise error

    def _report_failure(self, resource: Mapping[str, Any], error: Exception, now_s: float) -> Pass:
        self._reconciler.decide_anew()
        made = report_failure(error, self._recall_status(resource), now_s)
        interval_s = self._choose_interval_s(PassOutcome(self._stream), made.status, now_s)
        return replace(self._write(made, interval_s, now_s), failure=error)

    def _recall_status(self, resource: Mapping[str, Any]) -> Status:
        """The last status: what was written, or could not be, is newer than what was read."""
        return self._status if self._status is not None else read_status(resource)

    def _write(self, made: Report, interval_s: float, now_s: float) -> Pass:
        """Writes a status; after a failure the next pass writes it, and posts its events."""
        self._status = made.status
        self._events += made.events
        try:
            self._writer.write(made.status, now_s)
        except ClusterError:
            self._reader.forget()
            raise
        events, self._events = tuple(self._events), []
        return Pass(made.status, events, interval_s)

    def _choose_interval_s(self, outcome: PassOutcome, status: Status, now_s: float) -> float:
        """The seconds until the next pass: few for a stream on its way, many for one that rests.

        After minutes on its way a stream rests, too: it crashes, or nobody measures it.
        """
        phase = status.phase
        settled = outcome.driver is None or outcome.driver.settled
        if phase == "Running" and outcome.spec and settled:
            # A driver that crashes is noticed, however long the interval of decisions is.
            return min(outcome.due_in_s, RESTING_S)
        if phase in {"Invalid", "Suspended"}:
            return RESTING_S
        return choose_retry_s(status.measure_wait_s(now_s))

    def _tell_failure(self, done: Pass, failure: Exception) -> Pass:
        """Logs what a pass failed with, and has it told by an event; the next pass waits longer."""
        self._failures += 1
        if isinstance(failure, ClusterError):
            log.warning("%s: %s", self._stream, failure)
        else:
            log.error(
                "%s: this pass failed; its pods stay as they are", self._stream, exc_info=failure
            )
        kind = type(failure).__name__
        message = f"{kind}: {failure}".partition("\n")[0]
        told = StreamEvent("PassFailed", message, warning=True)
        # The event of the condition PassFailed says the same.
        events = (*(event for event in done.events if event.reason != kind), told)
        interval_s = max(done.interval_s, choose_pause_s(failure, self._failures))
        return replace(done, events=events, interval_s=interval_s)


def choose_rest_s(interval_s: float, took_s: float) -> float:
    """The pause after a pass, in seconds.

    >>> choose_rest_s(15.0, 0.3), choose_rest_s(15.0, 20.0)
    (15.0, 100.0)
    """
    return max(interval_s, REST * took_s)


def choose_pause_s(failure: Exception, failures: int) -> float:
    """Seconds until the next pass after some failures in a row, the last one of which is given.

    >>> [choose_pause_s(KeyError("q"), n) for n in (1, 2, 3, 99)]
    [5.0, 10.0, 20.0, 300.0]
    """
    pause_s: float = min(RETRY_S * 2.0 ** min(failures - 1, 30), MAX_RETRY_S)
    asked_s = failure.retry_after_s if isinstance(failure, UnreachableError) else 0.0
    return max(pause_s, min(asked_s, MAX_RETRY_S))
