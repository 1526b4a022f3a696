"""One active operator among several: who holds a Lease of Kubernetes acts, the others wait.

The rules and times are those of Kubernetes' own controllers (client-go's leader election). The
Python client has an election, too, without time-outs, and it never gives a Lease back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

from balancedstream_operator.kube.client import translate_errors

log = logging.getLogger(__name__)

LEASE_S = 15
"""A holder that has not renewed its Lease for this long has lost it."""

RENEW_S = 2.0
DEADLINE_S = 10.0
"""A holder that cannot renew its Lease for this long stops, well before another one begins."""

_TIMEOUT_S = (2, 4)


class Lease:
    """A Lease in the cluster, as one candidate sees it.

    Only the candidate's own clock counts: a Lease is expired when it did not change for `LEASE_S`.

    No two processes have the same `identity`.
    """

    def __init__(self, client: DynamicClient, namespace: str, name: str, identity: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._seen: tuple[object, ...] = ()
        self._seen_s = 0.0

    def try_to_hold(self, monotonic_s: float) -> bool:
        """Takes the Lease if it is free or expired, or renews it; returns whether it is held.

        `monotonic_s` is a time of a clock that only this process has.

        Raises:
            ClusterError: the API server does not answer.
        """
        with translate_errors(f"give Lease {self._name}"):
            found = self._read()
            spec = (found or {}).get("spec") or {}
            holder, seen = spec.get("holderIdentity"), (spec.get("renewTime"), spec)
            if seen != self._seen:
                self._seen, self._seen_s = seen, monotonic_s
            expired = monotonic_s >= self._seen_s + LEASE_S
            if holder and holder != self._identity and not expired:
                return False
            return self._write(found, self._identity)

    def release(self) -> None:
        """Gives the Lease back, so that the next candidate need not wait until it expires.

        Raises:
            ClusterError: the API server does not take it back; then the Lease expires.
        """
        with translate_errors(f"take back Lease {self._name}"):
            found = self._read()
            if found and (found.get("spec") or {}).get("holderIdentity") == self._identity:
                self._write(found, "")

    def _read(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = (
                self._leases()
                .get(name=self._name, namespace=self._namespace, _request_timeout=_TIMEOUT_S)
                .to_dict()
            )
        except NotFoundError:
            return None
        return found

    def _write(self, found: dict[str, Any] | None, holder: str) -> bool:
        """Whether the Lease was written; False if another candidate was faster."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = (found or {}).get("spec") or {}
        changes = before.get("holderIdentity") != holder
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": LEASE_S,
            "acquireTime": now if changes else before.get("acquireTime"),
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + changes,
        }
        metadata = {"name": self._name, "namespace": self._namespace}
        if found:
            metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec,
        }
        write = self._leases().replace if found else self._leases().create
        try:
            write(body=body, namespace=self._namespace, _request_timeout=_TIMEOUT_S)
        except ConflictError:
            return False
        return True

    def _leases(self) -> Any:
        return self._client.resources.get(api_version="coordination.k8s.io/v1", kind="Lease")


@dataclass
class Tenure:
    """Whether a candidate may act, from the answers that it got about the Lease; pure.

    Attributes:
        held_s: when it asked for the answer that last confirmed its Lease, by its own clock; None
            before the first such answer.
    """

    held_s: float | None = None

    def left_s(self, monotonic_s: float) -> float | None:
        """Seconds until it must stop without another confirmation; None if it does not act."""
        return None if self.held_s is None else self.held_s + DEADLINE_S - monotonic_s

    def turn(self, held: bool | None, asked_s: float) -> Literal["begins", "goes on", "ends"]:
        """What it does next.

        `held` is None without an answer; `asked_s` is a time of the own clock.

        >>> tenure = Tenure()
        >>> [tenure.turn(held, 2.0) for held in (False, None, True, True, None, False)]
        ['goes on', 'goes on', 'begins', 'goes on', 'goes on', 'ends']
        """
        acts = self.held_s is not None
        if held:
            self.held_s = asked_s
            return "goes on" if acts else "begins"
        return "ends" if acts and held is False else "goes on"


async def hold(lease: Lease, activate: Callable[[], object], stop: Callable[[], object]) -> None:
    """Activates an operator when it holds the Lease, and stops the process if it loses it.

    `stop` ends the process at once, because a pass that still runs must not write any more.
    """
    tenure = Tenure()
    while True:
        now_s = time.monotonic()
        held: bool | None = None
        try:
            # Python 3.11's `wait_for` drops a cancellation that comes together with the answer.
            async with asyncio.timeout(tenure.left_s(now_s)):
                held = await asyncio.to_thread(lease.try_to_hold, now_s)
        except TimeoutError:
            held = False
        # Catch everything: if this task ended, the operator would act without a Lease.
        except Exception as error:
            log.warning("Lease not renewed: %s: %s", type(error).__name__, error)
        turn = tenure.turn(held, now_s)
        if turn == "ends":
            log.error("another operator may hold the Lease soon, or does: this one stops")
            stop()
            return
        if turn == "begins":
            log.info("this operator holds the Lease, and acts")
            activate()
        await asyncio.sleep(RENEW_S)
