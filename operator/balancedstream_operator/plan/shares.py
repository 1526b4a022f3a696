"""How executors are shared out among streams, where the operator has a limit over all of them.

The rule is progressive filling by dominant shares (Ghodsi et al., Dominant Resource Fairness, NSDI
2011); that nothing is taken away again, and what a restart knows, is our own design.
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
"""What a stream wanted last is kept free for it for so long."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a stream has, and what it wants.

    Attributes:
        has: executors that it should have by now.
        least: executors that it gets in any case.
        wants: executors that it would have without limits over all streams.
        cores: of one executor.
        memory_mib: of one executor; 0 if it is not known.
    """

    has: int
    least: int
    wants: int
    cores: int = 1
    memory_mib: int = 0


def read_memory_mib(size: str) -> int:
    """A size of memory such as 256g, in MiB.

    Raises:
        ValueError: it is none.

    >>> read_memory_mib("2g")
    2048
    """
    if not re.fullmatch("[1-9][0-9]{0,11}[mgt]", size):
        raise ValueError(size)
    return parse_mib(size)


def share_out(claims: Mapping[str, Claim], caps: Caps) -> dict[str, int]:
    """How many executors each stream may have.

    Each keeps what it has, and gets its least number, whatever the limits say. What is left goes,
    one executor at a time, to the stream that has the smallest share of the limit that it uses
    most of; of equal ones, to the first by name.

    Args:
        claims: of all streams, by name.
        caps: the limits over all of them.

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


@dataclass(frozen=True, slots=True)
class Left:
    """What is left to a stream that wants more.

    Attributes:
        most: executors that it may have.
        why: for people.
    """

    most: int
    why: str


class Shares:
    """Knows what all streams have and want, for any thread.

    What is kept here may be lost: until a stream has been looked at, its status says what it has.

    Args:
        caps: the limits over all streams.
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
    ) -> Left | None:
        """What the limits leave to a stream now; None if that is all it wants.

        Args:
            stream: that asks.
            claim: of the stream.
            known: all BalancedStreams that there are.
            now_s: seconds since the Unix epoch.
            takes: whether the stream will have what is left to it.
            waits: whether what is not left to it is kept free for it, as far as it is its share.
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
            # What is not there any more is forgotten.
            self._claims = {uid: kept for uid, kept in self._claims.items() if uid in claims}
            self._claims[stream.uid] = claim, now_s
        wanted = claims[stream.uid].wants
        if most >= wanted:
            return None
        why = (
            f"{wanted} are wanted, and the operator's limits over all streams ({self.caps}) leave "
            f"{most}"
        )
        return Left(most, why)

    def _recall(self, by_status: Claim, uid: str, now_s: float) -> Claim:
        """What is known of another stream; one that is suspended has nothing, whatever it had."""
        if uid not in self._claims or not (by_status.has or by_status.least):
            return by_status
        claim, at_s = self._claims[uid]
        return claim if abs(now_s - at_s) < WANTED_S else replace(claim, wants=claim.has)


def read_claim(resource: Mapping[str, Any]) -> Claim:
    """What a stream has by its status, where nothing else is known of it.

    Args:
        resource: a BalancedStream, valid or not.

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
    # A refused stream that never ran has nothing, and what it asks for nobody checked.
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
