"""Follows the BalancedStreams of one namespace, or of the whole cluster, with kopf.

kopf ends where a namespace, the rights on it or the definition is gone, or where a watch tells of
an error. So each namespace has a kopf of its own, in a thread of its own, and is looked at again
when that has ended: no namespace can stop the others.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import kopf
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient

from balancedstream_operator.api.resource import API_VERSION, GROUP, KIND, PLURAL, VERSION, Manifest
from balancedstream_operator.errors import RefusedError, UnreachableError
from balancedstream_operator.kube.client import translate_errors
from balancedstream_operator.kube.reading import bound_stream, read_json
from balancedstream_operator.kube.responses import BoundedResponse

log = logging.getLogger(__name__)

WATCH_S = 300
"""A watch is restarted this often, and a little later if the connection is half open."""

CHECK_S = 30.0
"""Rights are looked at this often meanwhile: the API server ends no watch when they go."""

LOOK_AGAIN_S = 2.0
MAX_LOOK_AGAIN_S = 30.0
"""Pause after the BalancedStreams could not be seen; it doubles each time, up to the limit."""

BACKOFFS_S = 1.0, 2.0
"""Pauses of kopf before it repeats a request that failed, and ends after the last one."""

PAGE = 5
"""Objects of one answer: each may have more than a megabyte, which takes up to 20 times as much
memory."""

_TIMEOUT_S = 10.0, 60.0

_FORBIDDEN, _NOT_FOUND = 403, 404


@dataclass(frozen=True, slots=True)
class Sight:
    """Whether the BalancedStreams of a namespace can be seen.

    Attributes:
        hidden: why not; empty if they can.
        reason: the same in one CamelCase word: Forbidden, NoDefinition or Unreachable.
    """

    hidden: str = ""
    reason: str = ""


class Audience(Protocol):
    """Who is told of BalancedStreams, on the event loop."""

    def update(self, resource: Manifest) -> None:
        """A BalancedStream is new, or may have changed."""

    def remove(self, resource: Manifest) -> None:
        """A BalancedStream was deleted."""

    def see(self, namespace: str, sight: Sight) -> None:
        """The BalancedStreams of a namespace can be seen, or cannot."""


class Follower:
    """Tells an audience of BalancedStreams, from a thread of its own.

    Args:
        client: of the API server.
        namespace: of the BalancedStreams; "" for the whole cluster.
        audience: that is told.
        call: calls a function with arguments on the audience's event loop, from any thread.
    """

    def __init__(
        self,
        client: DynamicClient,
        namespace: str,
        audience: Audience,
        call: Callable[..., object],
    ) -> None:
        self._client = client
        self._call = call
        self._namespace = namespace
        self._audience = audience
        self._stopped = threading.Event()
        self._end_watch: Callable[[], None] = lambda: None
        self._sight: Sight | None = None
        within = f"/namespaces/{namespace}" if namespace else ""
        self._path = f"/apis/{API_VERSION}{within}/{PLURAL}"
        self._where = f"of namespace {namespace}" if namespace else "of the cluster"

    def start(self) -> None:
        """Begins; the thread does not keep the process from ending."""
        threading.Thread(target=self.run, name=f"follow {self._namespace}", daemon=True).start()

    def stop(self) -> None:
        """Ends soon; it does not wait for it."""
        self._stopped.set()
        self._end_watch()

    def run(self) -> None:
        """Looks and watches until it is stopped."""
        pause_s = LOOK_AGAIN_S
        while not self._stopped.is_set():
            began_s = time.monotonic()
            try:
                self._look()
                self._see(Sight())
                try:
                    asyncio.run(self._watch())
                except Exception:
                    # Mostly this look raises the cause; otherwise kopf's error is the cause.
                    self._look()
                    raise
            except Exception as error:
                if not self._stopped.is_set():
                    self._see(self._explain(error))
            lasted = time.monotonic() - began_s > 2.0 * pause_s
            pause_s = LOOK_AGAIN_S if lasted else min(2.0 * pause_s, MAX_LOOK_AGAIN_S)
            self._stopped.wait(pause_s)

    def _look(self) -> None:
        """Lists one BalancedStream, to find out whether anything stands in the way."""
        with translate_errors(f"list the {KIND}s {self._where}"):
            answer = self._client.request(
                "GET",
                self._path,
                query_params=[("limit", 1)],
                serialize=False,
                _request_timeout=_TIMEOUT_S,
            )
            found = read_json(answer.data)
        if not isinstance(found, dict) or not isinstance(found.get("items"), list):
            message = f"what {self._path} answers is no list: {found!r:.200}"
            raise ValueError(message)

    async def _watch(self) -> None:
        """Runs a kopf until it ends or is told to."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        end = self._end_watch = lambda: _end(loop, ended)
        if self._stopped.is_set():
            return
        over = threading.Event()
        name = f"check {self._namespace}"
        threading.Thread(target=self._check, args=(end, over), name=name, daemon=True).start()
        try:
            await kopf.operator(
                registry=self._register(),
                standalone=True,
                clusterwide=not self._namespace,
                namespaces=[self._namespace] if self._namespace else [],
                stop_flag=ended,
            )
        finally:
            over.set()

    def _check(self, end: Callable[[], None], over: threading.Event) -> None:
        """Ends a watch that lost rights or definition, until `over`; the next look tells why."""
        while not over.wait(CHECK_S):
            try:
                self._look()
            except RefusedError:
                end()
                return
            except (UnreachableError, ValueError):
                # No answer, or one that cannot be read, says nothing of rights.
                continue

    def _register(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.startup(registry=registry)
        async def prepare(settings: kopf.OperatorSettings, **_: Any) -> None:
            settings.posting.enabled = False
            # Without it the rights to list namespaces and definitions would be needed.
            settings.scanning.disabled = True
            settings.watching.server_timeout = WATCH_S
            settings.watching.client_timeout = WATCH_S + 30
            settings.watching.connect_timeout = _TIMEOUT_S[0]
            settings.watching.chunk_size = PAGE
            settings.networking.request_timeout = _TIMEOUT_S[1]
            settings.networking.error_backoffs = BACKOFFS_S

        @kopf.on.login(registry=registry)
        async def log_in(**given: Any) -> kopf.AiohttpSession | None:
            found = kopf.login_with_service_account(**given) or kopf.login_with_kubeconfig(**given)
            return _open_session(found) if found else None

        @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
        async def tell(event: kopf.RawEvent, **_: Any) -> None:
            resource = bound_stream(dict(event["object"]))
            if event["type"] == "DELETED":
                self._call(self._audience.remove, resource)
            else:
                self._call(self._audience.update, resource)

        return registry

    def _explain(self, error: Exception) -> Sight:
        cause = error.__cause__
        status = cause.status if isinstance(cause, ApiException) else None
        if status == _FORBIDDEN:
            return Sight(f"{error}. They are left alone, and looked for again", "Forbidden")
        if status == _NOT_FOUND:
            said = (
                f"the definition of {KIND} (CRD) is not in the cluster, or is not the one of this "
                f"release, which has version {API_VERSION}: install it; no restart is needed"
            )
            return Sight(said, "NoDefinition")
        return Sight(f"{type(error).__name__}: {error}", "Unreachable")

    def _see(self, sight: Sight) -> None:
        before = self._sight or Sight()
        if sight.reason != before.reason:
            if sight.hidden:
                log.warning("the %ss %s are not seen: %s", KIND, self._where, sight.hidden)
            else:
                log.info("the %ss %s are seen again", KIND, self._where)
        self._sight = sight
        self._call(self._audience.see, self._namespace, sight)


def _end(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    # The loop may have ended meanwhile.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(ended.set)


def _open_session(info: kopf.ConnectionInfo) -> kopf.AiohttpSession:
    """A connection whose answers are bounded before kopf reads them."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        response_class=BoundedResponse,
    )
    return kopf.AiohttpSession(
        server=info.server, default_namespace=info.default_namespace, aiohttp_session=session
    )


def start_followers(
    client: DynamicClient, namespaces: Iterable[str], audience: Audience
) -> list[Follower]:
    """Follows the BalancedStreams of each namespace, "" for the whole cluster.

    Follower threads tell the audience on the event loop that runs now.
    """
    call = asyncio.get_running_loop().call_soon_threadsafe
    followers = [Follower(client, namespace, audience, call) for namespace in namespaces]
    for follower in followers:
        follower.start()
    return followers
