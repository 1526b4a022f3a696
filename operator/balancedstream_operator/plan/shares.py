"""Shares executors out among streams if the operator has limits over all streams.

The rule is progressive filling by dominant shares (Ghodsi et al., Dominant Resource Fairness, NSDI
2011). Our own design: no stream loses an executor again, and after a restart the statuses of the
streams say what they have.
"""

from __future__ import annotations

import heapq
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from balancedstream.core.sizing import parse_mib
from balancedstream_operator.api.resource import Stream
from balancedstream_operator.settings import Caps

WANTED_S = 600.0
"""Executors stay reserved for a stream for this long after it last asked for them."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The executors that a stream has and wants.

    Attributes:
        has: number of executors that the stream should have by now.
        least: number of executors that the stream gets in any case.
        wants: number of executors that the stream would have without limits over all streams.
        cores: number of cores of one executor.
        memory_mib: memory of one executor in MiB; 0 if it is unknown.
    """

    has: int
    least: int
    wants: int
    cores: int = 1
    memory_mib: int = 0


def read_memory_mib(size: str) -> int:
    """A size of memory such as 256g, in MiB.

    Raises:
        ValueError: the text is not such a size.

    >>> read_memory_mib("2g")
    2048
    """
    if not re.fullmatch("[1-9][0-9]{0,11}[mgt]", size):
        raise ValueError(size)
    return parse_mib(size)


def share_out(claims: Mapping[str, Claim], caps: Caps) -> dict[str, int]:
    """How many executors each stream may have.

    Each stream keeps its executors and gets its least number, whatever the limits say. The rest
    goes out one executor at a time. The next executor goes to the stream with the smallest dominant
    share, the share of the limit that it uses most of. The first by name wins a tie.

    >>> share_out({"a": Claim(2, 1, 9), "b": Claim(1, 1, 9), "c": Claim(1, 1, 2)}, Caps(9))
    {'a': 4, 'b': 3, 'c': 2}
    """
    limits = (caps.executors, caps.cores, caps.memory_mib)
    sizes = {name: (1, claim.cores, claim.memory_mib) for name, claim in claims.items()}
    granted = {name: max(claim.has, claim.least) for name, claim in claims.items()}
    used = [sum(granted[name] * sizes[name][n] for name in claims) for n in range(len(limits))]

    def share(name: str) -> float:
        return max(
            granted[name] * size / limit
            for size, limit in zip(sizes[name], limits, strict=True)
            if limit
        )

    if not caps.are_set:
        return {name: max(granted[name], claim.wants) for name, claim in claims.items()}
    waiting = [(share(name), name) for name, c in claims.items() if c.wants > granted[name]]
    heapq.heapify(waiting)
    while waiting:
        _, name = heapq.heappop(waiting)
        after = [taken + size for taken, size in zip(used, sizes[name], strict=True)]
        if any(limit and taken > limit for taken, limit in zip(after, limits, strict=True)):
            continue
        used = after
        granted[name] += 1
        if claims[name].wants > granted[name]:
            heapq.heappush(waiting, (share(name), name))
    return granted


class Shares:
    """Remembers the claims of all streams under the limits over all of them, for any thread.

    A restart loses the claims. Until a stream asks again, its status says what it has.
    """

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self._lock = threading.Lock()
        self._claims: dict[str, tuple[Claim, float]] = {}

    def ask(
        self,
        stream: Stream,
        claim: Claim,
        known: Iterable[Mapping[str, Any]],
        now_s: float,
        *,
        takes: bool,
        waits: bool,
    ) -> tuple[int, str]:
        """How many executors the limits leave to a stream now.

        Args:
            stream: the stream that asks.
            claim: the executors that the stream has and wants.
            known: all existing BalancedStreams.
            now_s: current time, in seconds since the Unix epoch.
            takes: whether the stream will take the executors that the limits leave to it.
            waits: whether the rest of its share stays reserved for the stream.

        Returns:
            The number, and why the stream gets fewer than it wants; empty if it gets them all.
        """
        with self._lock:
            claims, names = {}, {stream.uid: f"{stream}/{stream.uid}"}
            for resource in known:
                metadata = resource["metadata"]
                uid = metadata["uid"]
                names[uid] = f"{metadata['namespace']}/{metadata['name']}/{uid}"
                claims[uid] = self._recall(read_claim(resource), uid, now_s)
            claims[stream.uid] = claim
            granted = share_out({names[uid]: c for uid, c in claims.items()}, self.caps)
            most = granted[names[stream.uid]]
            if takes:
                claim = replace(claim, has=max(claim.has, min(most, claim.wants)))
            if not waits:
                claim = replace(claim, wants=claim.has)
            # Claims of deleted streams must not keep executors from others.
            self._claims = {uid: kept for uid, kept in self._claims.items() if uid in claims}
            self._claims[stream.uid] = claim, now_s
        wanted = claims[stream.uid].wants
        if most >= wanted:
            return most, ""
        why = (
            f"{wanted} are wanted, and the operator's limits over all streams ({self.caps}) leave "
            f"{most}"
        )
        return most, why

    def _recall(self, by_status: Claim, uid: str, now_s: float) -> Claim:
        """The claim of another stream; a suspended stream has nothing, whatever it claimed."""
        if uid not in self._claims or not (by_status.has or by_status.least):
            return by_status
        claim, at_s = self._claims[uid]
        return claim if abs(now_s - at_s) < WANTED_S else replace(claim, wants=claim.has)


def read_claim(resource: Mapping[str, Any]) -> Claim:
    """The claim of a stream by its status, for a stream that has not asked yet.

    >>> read_claim({"spec": {"executors": {"min": 2, "cores": 4}}})
    Claim(has=2, least=2, wants=2, cores=4, memory_mib=1536)
    >>> read_claim({"spec": {"suspend": True, "executors": {"min": 2}}}).has
    0
    >>> read_claim({"spec": {"executors": {"min": 999}}, "status": {"phase": "Invalid"}}).has
    0
    """
    spec = _mapping(resource.get("spec"))
    executors, status = _mapping(spec.get("executors")), _mapping(resource.get("status"))
    least = _whole(executors.get("min"), 1)
    # A refused stream that never ran has nothing, and nobody checked the numbers in its spec.
    refused = status.get("phase") == "Invalid" and "desiredExecutors" not in status
    if spec.get("suspend") is True or refused:
        return Claim(0, 0, 0)
    has = max(_whole(status.get("desiredExecutors"), least), least)
    cores = _whole(executors.get("cores"), 1)
    sizes = executors.get("memory", "1g"), executors.get("memoryOverhead", "512m")
    try:
        memory_mib = sum(map(read_memory_mib, sizes))
    except (ValueError, TypeError):
        memory_mib = 0
    return Claim(has, least, has, cores, 0 if spec.get("targetRef") else memory_mib)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _whole(value: object, default: int) -> int:
    return value if type(value) is int and 0 <= value <= 10_000 else default
