"""How soon the operator's decisions show in a running stream, with two kinds of storage.

One stream on a real cluster for each kind, and in each repetition: a quiet while, in which batches
are timed; a second executor, asked for as `kubectl scale` does, until it holds state; on the claim
only, keys of one executor that get hot, until the moves are done; and back to one executor. What
happened when is read from Prometheus, to within a scrape.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cluster import open_site, open_stream
from harness.benchmark import Benchmark, MeasurementError, prepare
from harness.results import Case
from hotkeys import find_keys_of_one_executor
from monitoring import SCRAPE_INTERVAL_S, Prometheus
from producing import PacedProducer, ZipfKeys
from sites import Site
from streaming import INTERVAL_S, describe_counts, run_and_compare
from streams import Stream
from waiting import wait_until

KEYS = 100
RATE = 60
HOT_RATE = 160
HOT = 20.0
QUIET_S = 16.0
PATIENCE_S = 240.0


@dataclass
class Watched:
    """A stream, and its series in Prometheus."""

    stream: Stream
    prometheus: Prometheus

    def value(self, metric: str, function: str = "sum") -> float:
        """Now, over all of the stream's series; 0 where there is none."""
        return (
            self.prometheus.value(f"{function}(balancedstream_{metric}{self.stream.label})") or 0.0
        )

    def find_value(self, metric: str, at_s: float) -> float:
        """The latest value that had been scraped at that time."""
        seen = self.prometheus.series(f"balancedstream_{metric}{self.stream.label}", at_s, at_s)
        return seen[-1][1] if seen else 0.0

    def wait_for_sample(self, expression: str, since_s: float) -> float:
        """When a scrape first showed something since then, as Unix time."""

        def look() -> float | None:
            seen = self.prometheus.series(expression, since_s, time.time())
            return seen[0][0] if seen else None

        return wait_until(expression, look, timeout_s=PATIENCE_S)


def main() -> None:
    with prepare("reaction", __doc__ or "") as benchmark:
        storages = ("claim", "object store")
        cases: list[Case] = [
            {"storage": s, "repetition": r} for s in storages for r in benchmark.repetitions
        ]
        missing = benchmark.find_missing(cases)
        if not missing:
            return
        with open_site() as site, site.operator(site.prometheus.in_pods):
            for storage in storages:
                measure(benchmark, site, storage, [c for c in missing if c["storage"] == storage])


def measure(benchmark: Benchmark, site: Site, storage: str, cases: list[Any]) -> None:
    """One stream, started once, and all repetitions on it."""
    if not cases:
        return
    with running_stream(site, storage) as (watched, keys, producer):
        for case in cases:
            measured = measure_batches(watched) | measure_scaling(watched)
            if storage == "claim":
                measured |= measure_balancing(watched, keys, producer)
            watched.stream.scale(1)
            watched.stream.wait_for_executors(1, timeout_s=PATIENCE_S)
            settle(watched)
            settings = {"interval_s": INTERVAL_S, "scrape_s": SCRAPE_INTERVAL_S}
            benchmark.record(None, case, settings, measured)
            benchmark.tell(str(measured))


@contextmanager
def running_stream(site: Site, storage: str) -> Iterator[tuple[Watched, ZipfKeys, PacedProducer]]:
    """A stream whose output is compared with a recomputation at the end."""
    keys = ZipfKeys(KEYS, 0.5, seed=1)
    on_object_store = storage == "object store"
    with open_stream(site, "reaction", on_object_store=on_object_store) as (stream, topic):
        manifest = describe_counts(stream, site.broker, topic, executors=(1, 2))
        manifest["spec"]["executors"]["fixed"] = 1
        with run_and_compare(stream, manifest, site.broker, topic, keys, rate=RATE) as producer:
            stream.wait_for_batches(8)
            yield Watched(stream, site.prometheus), keys, producer


def measure_batches(watched: Watched) -> dict[str, float]:
    """The mean time of a batch on one executor while nothing is done."""
    before = watched.value("batch_duration_seconds_sum"), watched.value("batches_total")
    time.sleep(QUIET_S)
    after = watched.value("batch_duration_seconds_sum"), watched.value("batches_total")
    if after[1] == before[1]:
        message = f"no batch ended within {QUIET_S:.0f} s"
        raise MeasurementError(message)
    return {"batch_s": (after[0] - before[0]) / (after[1] - before[1])}


def measure_scaling(watched: Watched) -> dict[str, float]:
    """From the decision for a second executor to state on it, and what loading that took."""
    stream = watched.stream
    moved = watched.value("moves_settled_total")
    loaded_s = watched.value("partition_state_load_seconds_total")
    started_s = time.time()
    stream.scale(2)
    registered_s = watched.wait_for_sample(
        f"count(balancedstream_executor_cores{watched.stream.label}) > 1", started_s
    )
    state_s = watched.wait_for_sample(
        f"count(balancedstream_executor_partitions{watched.stream.label} > 0) > 1", started_s
    )
    decided = datetime.fromisoformat(stream.status()["lastScaleTime"]).timestamp()
    settle(watched)
    moves = watched.value("moves_settled_total") - moved
    load_s = watched.value("partition_state_load_seconds_total") - loaded_s
    return {
        "scale_to_registered_s": registered_s - decided,
        "scale_to_state_s": state_s - decided,
        "restore_s_per_move": load_s / moves if moves else 0.0,
    }


def measure_balancing(
    watched: Watched, keys: ZipfKeys, producer: PacedProducer
) -> dict[str, float]:
    """From the scrape that shows an imbalance to the scrape that shows the plan, and its moves."""
    hot = find_keys_of_one_executor(watched.prometheus, watched.stream.label, watched.stream)
    epoch = watched.value("plan_epoch")
    started_s = time.time()
    keys.favor(hot, HOT)
    producer.set_rate(HOT_RATE)
    shown_s = watched.wait_for_sample(
        f"max(balancedstream_imbalance_ratio{watched.stream.label}) > 1.2", started_s
    )
    applied_s = watched.wait_for_sample(
        f"balancedstream_plan_epoch{watched.stream.label} > {epoch:.0f}", shown_s
    )
    # Moves of an earlier plan may still arrive: only later ones count.
    moves = watched.find_value("moves_settled_total", applied_s)
    moved_s = watched.wait_for_sample(
        f"balancedstream_moves_settled_total{watched.stream.label} > {moves:.0f}", applied_s
    )
    batches = watched.find_value("last_batch_id", moved_s) - watched.find_value(
        "last_batch_id", applied_s
    )
    settle(watched)
    keys.favor(hot, 1 / HOT)
    producer.set_rate(RATE)
    return {
        "change_to_plan_s": applied_s - shown_s,
        "change_to_moved_s": moved_s - shown_s,
        "plan_to_moved_batches": batches,
    }


def settle(watched: Watched) -> None:
    """Until nothing is on its way, and two more batches are done."""
    wait_until(
        "the end of all moves", lambda: watched.value("moves_under_way") == 0, timeout_s=PATIENCE_S
    )
    watched.stream.wait_for_batches(2)


if __name__ == "__main__":
    main()
