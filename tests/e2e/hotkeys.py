"""Keys that get hot together."""

from __future__ import annotations

from monitoring import Prometheus
from recomputation import read_partitions
from streams import Stream
from waiting import wait_until


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
    partition_of: dict[str, int] = {}
    for batch in range(stream.last_batch() + 1):
        partition_of |= read_partitions(stream.sink, batch)
    return {key for key, partition in partition_of.items() if partition in held}
