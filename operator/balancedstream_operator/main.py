"""The operator's process: kopf watches BalancedStreams, and one task looks after each of them.

It sets no finalizer on a BalancedStream: then nobody could delete one while the operator is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from balancedstream.errors import MissingPackageError
from balancedstream_operator.api.annotations import read_wanted
from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.status import StreamEvent
from balancedstream_operator.errors import ClusterError, StreamGoneError
from balancedstream_operator.kube.client import KubernetesCluster, connect
from balancedstream_operator.kube.lease import Lease, hold
from balancedstream_operator.observe.measurement import MissingMeasurementsError
from balancedstream_operator.observe.prometheus import Prometheus
from balancedstream_operator.observe.signing import check_package
from balancedstream_operator.plan.shares import Shares, read_memory_mib
from balancedstream_operator.process.following import Sight, start_followers
from balancedstream_operator.process.health import serve_health
from balancedstream_operator.process.logs import start_logging
from balancedstream_operator.process.metrics import OperatorMetrics
from balancedstream_operator.process.threads import PassThreads
from balancedstream_operator.reconcile.pace import choose_rest_s
from balancedstream_operator.reconcile.reconciler import Pass, Supervisor
from balancedstream_operator.reconcile.turns import Turns
from balancedstream_operator.report.events import EventPoster
from balancedstream_operator.settings import Caps, Settings

log = logging.getLogger(__name__)

HEALTH_PORT = 8080
METRICS_PORT = 8081
RETRY_S = 5.0
MAX_RETRY_S = 300.0
"""Pause after a pass that failed; it doubles with each further one, up to the limit."""


@dataclass
class _Watched:
    """A BalancedStream that a task looks after.

    Attributes:
        resource: as it was last seen.
        changed: set when its spec changes, or when somebody asks for something by an annotation.
        task: makes the passes over it; None while nobody does.
    """

    resource: dict[str, Any]
    changed: asyncio.Event
    task: asyncio.Task[None] | None = None


class Operator:
    """Runs one task for each BalancedStream, once it is active.

    Args:
        settings: Prometheus for streams that name none, and what streams may ask for.
        metrics: records every pass.
        active: whether to act from the start; otherwise from `activate` on.
    """

    def __init__(
        self, settings: Settings, metrics: OperatorMetrics, *, active: bool = True
    ) -> None:
        self._cluster = KubernetesCluster()
        self._open_source = lru_cache(maxsize=64)(Prometheus)
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
        if read_wanted(watched.resource) != read_wanted(resource):
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
                # It may still have its checkpoint, so others must know of it.
                watched.task.cancel()
                watched.task = None
            elif not sight.hidden and self._active and watched.task is None:
                # The first pass over one that was deleted meanwhile finds that out.
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
        supervisor = Supervisor(
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
        failures = 0
        loop = asyncio.get_running_loop()
        try:
            while True:
                resource = watched.resource
                watched.changed.clear()
                failure: Exception | None = None
                events: list[StreamEvent] = []
                interval_s = 0.0
                try:
                    done, took_s = await loop.run_in_executor(
                        self._threads.choose(resource),
                        _run_pass,
                        supervisor,
                        resource,
                    )
                except StreamGoneError as error:
                    log.info("%s", error)
                    self._watched.pop(stream.uid, None)
                    return
                except ClusterError as error:
                    log.warning("%s: %s", stream, error)
                    failure = error
                except Exception as error:
                    log.exception("%s: this pass failed; its pods stay as they are", stream)
                    failure = error
                else:
                    interval_s, failure = choose_rest_s(done.interval_s, took_s), done.failure
                    self._metrics.add_pass(str(stream), done.status, took_s)
                    # That of the condition PassFailed says the same as the one below.
                    said = type(failure).__name__
                    events += [e for e in done.events if failure is None or e.reason != said]
                if failure is not None:
                    failures += 1
                    self._metrics.add_failure(str(stream))
                    message = f"{type(failure).__name__}: {failure}".partition("\n")[0]
                    events.append(StreamEvent("PassFailed", message, warning=True))
                    interval_s = max(interval_s, choose_pause_s(failure, failures))
                else:
                    failures = 0
                if events:
                    threads = self._threads.choose(resource)
                    await loop.run_in_executor(threads, poster.post, resource, events)
                # Python 3.11's `wait_for` drops a cancellation that comes together with a change.
                with suppress(TimeoutError):
                    async with asyncio.timeout(interval_s):
                        await watched.changed.wait()
        finally:
            # The next one of that name may be there already.
            known = (w.resource["metadata"] for w in self._watched.values() if w.task)
            if all((m["namespace"], m["name"]) != (stream.namespace, stream.name) for m in known):
                self._metrics.remove(str(stream))


def _run_pass(supervisor: Supervisor, resource: dict[str, Any]) -> tuple[Pass, float]:
    """Makes a pass in the thread that calls; returns how long it took, in seconds, too."""
    began_s = time.monotonic()
    done = supervisor.run_pass(resource, time.time())
    return done, time.monotonic() - began_s


def choose_pause_s(failure: Exception, failures: int) -> float:
    """Seconds until the next pass after some failures in a row, the last one of which is given.

    >>> [choose_pause_s(KeyError("q"), n) for n in (1, 2, 3, 99)]
    [5.0, 10.0, 20.0, 300.0]
    """
    pause_s: float = min(RETRY_S * 2.0 ** min(failures - 1, 30), MAX_RETRY_S)
    asked_s = failure.retry_after_s if isinstance(failure, ClusterError) else 0.0
    return max(pause_s, min(asked_s, MAX_RETRY_S))


class _FromThreads:
    """Passes what followers tell, from their threads, to an operator on its event loop."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._call = asyncio.get_running_loop().call_soon_threadsafe

    def update(self, resource: dict[str, Any]) -> None:
        self._call(self._operator.update, resource)

    def remove(self, resource: dict[str, Any]) -> None:
        self._call(self._operator.remove, resource)

    def see(self, namespace: str, sight: Sight) -> None:
        self._call(self._operator.see, namespace, sight)


async def operate(
    settings: Settings, stop: asyncio.Event, lease_name: str = "", *, health_port: int = HEALTH_PORT
) -> None:
    """Looks after BalancedStreams until it is told to stop.

    Args:
        settings: which streams, their Prometheus, and what they may ask for.
        stop: set to end it.
        lease_name: of the Lease in the pod's namespace that the operator must hold to act; empty
            acts without one.
        health_port: for probes.
    """
    metrics = OperatorMetrics()
    metrics.start(METRICS_PORT)
    operator = Operator(settings, metrics, active=not lease_name)
    health = await serve_health(health_port, operator.explain_unready)
    followers = start_followers(connect(), settings.namespaces, _FromThreads(operator))
    lease, held = None, None
    if lease_name:
        namespace = os.environ.get("POD_NAMESPACE", "default")
        identity = f"{os.environ.get('POD_NAME', socket.gethostname())}_{uuid.uuid4()}"
        lease = Lease(connect(), namespace, lease_name, identity)
        held = asyncio.create_task(hold(lease, operator.activate, lambda: os._exit(1)))
    await stop.wait()
    for follower in followers:
        follower.stop()
    operator.close()
    # Passes that still run must have ended before another operator begins; until then the Lease is
    # renewed.
    await asyncio.to_thread(operator.wait)
    if lease and held:
        held.cancel()
        with suppress(ClusterError):
            await asyncio.to_thread(lease.release)
    health.close()


def read_credentials(folder: Path | None, token_file: Path | None) -> dict[str, str]:
    """What authenticates to the operator's own Prometheus, by the keys of a Secret, as it is now.

    Args:
        folder: of a mounted Secret, whose files the kubelet replaces; None for none.
        token_file: with a token, which comes before that of the Secret; None for none.

    Raises:
        MissingMeasurementsError: a file cannot be read.
    """
    try:
        # Each key is a link to a file.
        paths = {path.name: path for path in folder.iterdir() if path.is_file()} if folder else {}
        if token_file:
            paths["token"] = token_file
        return {name: path.read_text("utf-8") for name, path in paths.items()}
    except (OSError, ValueError) as error:
        message = f"what authenticates the operator to Prometheus cannot be read: {error}"
        raise MissingMeasurementsError(message) from error


def read_settings(arguments: argparse.Namespace) -> Settings:
    """What the command line says of all streams."""
    labels = [text.partition("=")[::2] for text in arguments.prometheus_label]
    folder, token_file = (
        Path(given) if given else None
        for given in (arguments.prometheus_credentials, arguments.prometheus_token_file)
    )
    return Settings(
        arguments.prometheus_url,
        tuple(labels),
        tuple(arguments.allow_prometheus_url),
        partial(read_credentials, folder, token_file) if folder or token_file else dict,
        arguments.forbid_escalation,
        tuple(arguments.allow_service_account),
        ("",) if arguments.all_namespaces else tuple(arguments.namespace),
        arguments.prometheus_sigv4_region,
        asks_queries=arguments.allow_queries,
        caps=Caps(arguments.max_executors, arguments.max_cores, arguments.max_memory),
    )


def _read_limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        message = f"must be a whole number from 0, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _read_memory(text: str) -> int:
    try:
        return read_memory_mib(text)
    except ValueError:
        message = f"must be a size such as 256g, not {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the operator until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="balancedstream-operator",
        # The chart must know each option by its name.
        allow_abbrev=False,
        description="Keeps BalancedStreams balanced and right-sized.",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--all-namespaces", action="store_true", help="watch all namespaces")
    where.add_argument(
        "--namespace", action="append", metavar="NAMESPACE", help="watch this namespace; repeatable"
    )
    parser.add_argument(
        "--prometheus-url",
        default="",
        metavar="URL",
        help="Prometheus for streams that name none",
    )
    parser.add_argument(
        "--prometheus-label",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="label that all series must have, such as that of the cluster; repeatable",
    )
    parser.add_argument(
        "--prometheus-credentials",
        metavar="FOLDER",
        help="a mounted Secret to authenticate to that Prometheus with",
    )
    parser.add_argument(
        "--prometheus-token-file",
        metavar="FILE",
        help="a file with a bearer token for that Prometheus, such as one of the ServiceAccount",
    )
    parser.add_argument(
        "--prometheus-sigv4-region",
        default="",
        metavar="REGION",
        help="of AWS, to sign requests to that Prometheus for (SigV4)",
    )
    parser.add_argument(
        "--allow-prometheus-url",
        action="append",
        default=[],
        metavar="URL",
        help="URL that streams may name, with all below it; * allows any; repeatable",
    )
    parser.add_argument(
        "--forbid-escalation",
        action="store_true",
        help="refuse streams whose pods would get more rights than the operator's templates give",
    )
    parser.add_argument(
        "--allow-service-account",
        action="append",
        default=[],
        metavar="NAME",
        help="ServiceAccount that pods may run as even with --forbid-escalation; repeatable",
    )
    parser.add_argument(
        "--allow-queries",
        action="store_true",
        help="ask the queries of streams for executors (executors.minQuery)",
    )
    for name, what in (("executors", "executors"), ("cores", "cores of executors")):
        parser.add_argument(
            f"--max-{name}",
            type=_read_limit,
            default=0,
            metavar="N",
            help=f"{what} of all streams at most; 0 for any number",
        )
    parser.add_argument(
        "--max-memory",
        type=_read_memory,
        default=0,
        metavar="SIZE",
        help="memory of the executors of all streams at most, such as 256g",
    )
    parser.add_argument(
        "--lease",
        default="",
        metavar="NAME",
        help="act only while holding this Lease in the namespace of POD_NAMESPACE",
    )
    arguments = parser.parse_args(argv)
    if arguments.prometheus_sigv4_region:
        try:
            check_package()
        except MissingPackageError as error:
            parser.error(str(error))
    start_logging(os.environ.get("LOG_LEVEL", "INFO"), os.environ.get("LOG_FORMAT", "text"))
    asyncio.run(_run(read_settings(arguments), arguments.lease))


async def _run(settings: Settings, lease_name: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await operate(settings, stop, lease_name)


if __name__ == "__main__":
    main()
