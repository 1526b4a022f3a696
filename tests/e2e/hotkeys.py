"""Keys that get hot together."""

from __future__ import annotations

from monitoring import Prometheus
from recomputation import read_partitions
from streams import Stream
from waiting import wait_until

from balancedstream.core.key_types import Primitive
from balancedstream.core.routes import partition_of


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
