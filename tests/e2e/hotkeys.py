"""Keys that get hot together."""

from __future__ import annotations

from monitoring import Prometheus
from producing import ZipfKeys
from recomputation import read_partitions
from streams import Stream
from waiting import wait_until

from balancedstream.core.keys.routes import partition_of
from balancedstream.core.keys.types import Primitive

FACTOR = 20
"""Of the rows that a hot key has."""


def find_keys_of_one_executor(prometheus: Prometheus, label: str, stream: Stream) -> set[str]:
    """All keys whose state one executor holds: if they get hot, that executor does.

    Args:
        prometheus: knows the placement.
        label: selects the stream's series.
        stream: whose sink says which state partition each key is in.
    """
    placed = wait_until(
        "a placement",
        lambda: prometheus.query(f"balancedstream_partition_executor_info{label}"),
        timeout_s=30,
    )
    one = placed[0].labels["executor"]
    held = {int(s.labels["partition"]) for s in placed if s.labels["executor"] == one}
    place_of: dict[str, int] = {}
    for batch in range(stream.last_batch() + 1):
        place_of |= read_partitions(stream.sink, batch)
    return {key for key, partition in place_of.items() if partition in held}


def find_keys_of_one_partition(count: int, partitions: int) -> set[str]:
    """Two of the keys `k0`, `k1`, … whose state is in one partition as long as none is moved."""
    first_of: dict[int, str] = {}
    for key in (f"k{number}" for number in range(count)):
        partition = partition_of(0, key, Primitive("string"), partitions)
        if partition in first_of:
            return {first_of[partition], key}
        first_of[partition] = key
    message = f"no two of {count} keys share one of {partitions} partitions"
    raise AssertionError(message)


class Skew:
    """Makes other keys hot again and again.

    Args:
        prometheus: knows the placement.
        stream: that has to follow.
        keys: of its rows.
    """

    def __init__(self, prometheus: Prometheus, stream: Stream, keys: ZipfKeys) -> None:
        self._prometheus = prometheus
        self._stream = stream
        self._keys = keys
        self._hot: set[str] = set()

    def shift(self, between: str) -> None:
        """Heats one executor; returns when partitions have left it, and the stream says so.

        Args:
            between: whom a plan goes between, for the failure's message.
        """
        stream = self._stream
        stream.wait_for_batches(2)
        hot = find_keys_of_one_executor(self._prometheus, stream.label, stream)
        self._keys.favor(self._hot, 1 / FACTOR)
        self._keys.favor(hot, FACTOR)
        self._hot = hot
        epoch = stream.status().get("planEpoch", 0)
        placed = self._find_placement()
        wait_until(
            f"moves between {between}",
            lambda: self._find_placement() != placed and stream.status()["planEpoch"] > epoch,
            timeout_s=180,
            last_seen=stream.status,
        )
        stream.wait_for_condition("Running")
        stream.wait_for_condition("Balanced", timeout_s=180)

    def _find_placement(self) -> set[tuple[str, str]]:
        samples = self._prometheus.query(
            f"balancedstream_partition_executor_info{self._stream.label}"
        )
        return {(sample.labels["partition"], sample.labels["executor"]) for sample in samples}
