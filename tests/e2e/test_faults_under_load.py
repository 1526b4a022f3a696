"""Faults that nobody chose strike a stream under load: it goes on, and every batch is exact.

`--faults-seed` replays what a schedule printed; `--fault-schedules` runs as many, seed by seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from broker import Broker
from clusters import Cluster
from faults import ANYWHERE, IN_AN_OBJECT_STORE, ON_A_VOLUME, Fault, Scene
from harness.storage.faulty import FaultyStore
from kube import Kube
from nodes import Volume
from sites import Site
from storage import Storage
from streaming import describe_counts, run_and_compare, skewed
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]

FAULTS = 4
"""In one schedule: one of the storage, and others."""

SOON_LOST = {"spark.network.timeout": "40s", "spark.executor.heartbeatInterval": "5s"}
"""Spark waits two minutes for an executor that it does not hear from; tests wait less."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    first: int = metafunc.config.getoption("--faults-seed")
    count: int = metafunc.config.getoption("--fault-schedules")
    metafunc.parametrize("seed", range(first, first + count))


@pytest.mark.usefixtures("operator", "app_image")
def test_whatever_strikes_the_stream_goes_on_and_is_exact(
    seed: int,
    site: Site,
    cluster: Cluster,
    kube: Kube,
    broker: Broker,
    topic: str,
    storage: Storage,
    infrastructure: str,
) -> None:
    print(f"--faults-seed {seed} --fault-schedules 1")
    chance = random.Random(seed)
    with chance.choice([open_on_a_volume, open_in_an_object_store])(site, storage) as opened:
        stream, place, of_the_storage = opened
        faults = [chance.choice(of_the_storage), *chance.sample(ANYWHERE, FAULTS - 1)]
        chance.shuffle(faults)
        print(stream.checkpoint, [fault.__name__ for fault in faults])
        manifest = describe_counts(stream, broker, topic, executors=(2, 2))
        spec = manifest["spec"]
        spec["sparkConf"] = {**spec.get("sparkConf", {}), **SOON_LOST}
        scene = Scene(cluster, kube, stream, infrastructure, place, chance)
        keys = skewed(seed)
        with run_and_compare(stream, manifest, broker, topic, keys, rate=60):
            stream.wait_for_batches(3)
            epoch = 0
            for fault in faults:
                # Other keys are hot now, so that partitions move meanwhile.
                keys.favor({f"k{chance.randrange(100)}" for _ in range(3)}, 10)
                stream.wait_for_executors(2, timeout_s=300)
                stream.wait_for_batches(chance.randrange(3))
                print(fault(scene))
                stream.wait_for_batches(3, timeout_s=400)
                epoch_before, epoch = epoch, stream.status().get("planEpoch", 0)
                assert epoch >= epoch_before
            stream.wait_for_condition("Running", timeout_s=300)
            stream.wait_for_condition("Ready", timeout_s=300)
            stream.wait_for_executors(2)
            wait_until(
                "no executor but the driver's own",
                lambda: has_no_stray(kube, stream),
                timeout_s=120,
            )


def has_no_stray(kube: Kube, stream: Stream) -> bool:
    """Whether each pod of an executor belongs to the driver that runs."""
    mine = {pod["metadata"]["uid"] for pod in stream.executors()}
    there = kube.pods(stream.namespace, {"spark-role": "executor"})
    return {pod["metadata"]["uid"] for pod in there} == mine


Opened = tuple[Stream, Volume | FaultyStore, tuple[Fault, ...]]
"""A stream, what it has its checkpoint on, and what can happen to that."""


@contextmanager
def open_on_a_volume(site: Site, storage: Storage) -> Iterator[Opened]:
    """Its checkpoint is on a claim with a file system of its own."""
    with closing(Volume(storage.folder)) as volume:
        yield Stream(site.kube, storage, "struck"), volume, ON_A_VOLUME


@contextmanager
def open_in_an_object_store(site: Site, storage: Storage) -> Iterator[Opened]:
    """Its checkpoint is in the object store, which it reaches through a proxy."""
    store = site.object_store
    store.create_account(site.kube, storage.namespace)
    with closing(FaultyStore(site.kube.own_address, store.here)) as proxy:
        through = replace(store, in_pods=proxy.url)
        yield Stream(site.kube, storage, "struck", through), proxy, IN_AN_OBJECT_STORE
