"""One task for each BalancedStream: it makes one pass after the other.

The operator sets no finalizer on a BalancedStream: then nobody could delete one while the operator
is gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from balancedstream_operator.api.annotations import read_goal
from balancedstream_operator.api.resource import Stream
from balancedstream_operator.errors import StreamGoneError
from balancedstream_operator.kube.client import KubernetesCluster
from balancedstream_operator.observe.http import AnswerBudgets
from balancedstream_operator.observe.prometheus import Prometheus
from balancedstream_operator.plan.shares import Shares
from balancedstream_operator.process.following import Sight
from balancedstream_operator.process.metrics import OperatorMetrics
from balancedstream_operator.process.passes import Pass, Passes
from balancedstream_operator.process.threads import PassThreads
from balancedstream_operator.process.turns import Turns
from balancedstream_operator.report.events import EventPoster
from balancedstream_operator.settings import Settings

log = logging.getLogger(__name__)


@dataclass
class _Watched:
    """A BalancedStream that a task looks after.

    Attributes:
        resource: the BalancedStream as it was last seen.
        changed: set when its spec changes, or when somebody asks for something by an annotation.
        task: makes the passes over it; None while nobody does.
    """

    resource: dict[str, Any]
    changed: asyncio.Event
    task: asyncio.Task[None] | None = None


class Operator:
    """Runs one task for each BalancedStream, once it is active.

    It acts from the start if `active`; otherwise from `activate` on.
    """

    def __init__(
        self, settings: Settings, metrics: OperatorMetrics, *, active: bool = True
    ) -> None:
        self._cluster = KubernetesCluster()
        # All servers share the memory for answers.
        self._open_source = lru_cache(maxsize=64)(partial(Prometheus, budgets=AnswerBudgets()))
        self._settings = settings
        self._turns = Turns()
        self._shares = Shares(settings.caps)
        self._metrics = metrics
        self._threads = PassThreads(settings)
        self._watched: dict[str, _Watched] = {}
        self._sights: dict[str, Sight] = {}
        self._seen = False
        self._active = active
        metrics.set_active(active)

    def activate(self) -> None:
        """Begins to look after the streams that are known so far."""
        self._active = True
        self._metrics.set_active(True)
        for watched in self._watched.values():
            self._start(watched)

    def count_streams(self) -> int:
        """Number of streams that the operator looks after."""
        return len(self._watched)

    def update(self, resource: dict[str, Any]) -> None:
        """Handles a BalancedStream that was created or changed."""
        uid = resource["metadata"]["uid"]
        watched = self._watched.get(uid)
        if watched is None:
            watched = self._watched[uid] = _Watched(resource, asyncio.Event())
        if self._active and watched.task is None:
            watched.resource = resource
            self._start(watched)
            return
        if read_goal(watched.resource) != read_goal(resource):
            watched.changed.set()
        watched.resource = resource

    def _start(self, watched: _Watched) -> None:
        metadata = watched.resource["metadata"]
        self._metrics.add_stream(f"{metadata['namespace']}/{metadata['name']}")
        watched.task = asyncio.create_task(self._look_after(watched))

    def remove(self, resource: dict[str, Any]) -> None:
        """Handles a deleted BalancedStream; Kubernetes deletes the objects that it owned."""
        metadata = resource["metadata"]
        self._turns.end(Stream(metadata["namespace"], metadata["name"], metadata["uid"]))
        watched = self._watched.pop(metadata["uid"], None)
        if watched and watched.task:
            watched.task.cancel()

    def see(self, namespace: str, sight: Sight) -> None:
        """Handles that the BalancedStreams of a namespace can be seen, or cannot."""
        self._sights[namespace] = sight
        self._seen = self._seen or not sight.hidden
        self._metrics.set_served(namespace, not sight.hidden)
        for watched in self._list_within(namespace):
            if sight.reason == "NoDefinition":
                self.remove(watched.resource)
            elif sight.reason == "Forbidden" and watched.task:
                # The stream may still have its checkpoint, so the other streams must know of it.
                watched.task.cancel()
                watched.task = None
            elif not sight.hidden and self._active and watched.task is None:
                # If the stream was deleted meanwhile, its first pass finds that out.
                self._start(watched)

    def explain_unready(self) -> str:
        """Why no BalancedStream can be looked after; empty if some can."""
        sights = self._sights.values()
        hidden = [sight.hidden for sight in sights if sight.hidden]
        if any(sight.reason == "NoDefinition" for sight in sights):
            return next(sight.hidden for sight in sights if sight.reason == "NoDefinition")
        if len(hidden) < len(sights):
            return ""
        if self._seen and any(sight.reason == "Unreachable" for sight in sights):
            return ""
        return "; ".join(hidden) or "no BalancedStreams have been listed yet"

    def _list_within(self, namespace: str) -> list[_Watched]:
        return [
            watched
            for watched in self._watched.values()
            if namespace in {"", watched.resource["metadata"]["namespace"]}
        ]

    def close(self) -> None:
        """Ends the tasks of all streams; a pass that has started finishes in its thread."""
        for watched in self._watched.values():
            if watched.task:
                watched.task.cancel()

    def wait(self) -> None:
        """Returns when the passes that run have ended; it blocks."""
        self._threads.wait()

    async def _look_after(self, watched: _Watched) -> None:
        metadata = watched.resource["metadata"]
        stream = Stream(metadata["namespace"], metadata["name"], metadata["uid"])
        passes = Passes(
            stream,
            self._cluster,
            self._open_source,
            self._settings,
            # A copy, because passes run in other threads.
            lambda: [known.resource for known in [*self._watched.values()]],
            turns=self._turns,
            shares=self._shares,
        )
        poster = EventPoster(self._cluster)
        loop = asyncio.get_running_loop()
        try:
            while True:
                resource = watched.resource
                watched.changed.clear()
                threads = self._threads.choose(resource)
                done = await loop.run_in_executor(threads, _run_now, passes, resource)
                self._metrics.add_pass(str(stream), done)
                if done.events:
                    await loop.run_in_executor(threads, poster.post, resource, done.events)
                # Python 3.11's `wait_for` drops a cancellation that comes together with a change.
                with suppress(TimeoutError):
                    async with asyncio.timeout(done.interval_s):
                        await watched.changed.wait()
        except StreamGoneError as error:
            log.info("%s", error)
            self._watched.pop(stream.uid, None)
        finally:
            # The next stream of that name may be there already.
            known = (w.resource["metadata"] for w in self._watched.values() if w.task)
            if all((m["namespace"], m["name"]) != (stream.namespace, stream.name) for m in known):
                self._metrics.remove(str(stream))


def _run_now(passes: Passes, resource: dict[str, Any]) -> Pass:
    """Makes a pass, and reads the clock in its thread: the pass may have waited for the thread."""
    return passes.run(resource, time.time())
