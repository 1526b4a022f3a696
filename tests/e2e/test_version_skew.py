"""Operators, definitions and drivers of two releases work together, whichever comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker import Broker
from clusters import Cluster
from hotkeys import Skew
from images import APP, REPOSITORY
from installing import Operator
from kube import Kube
from monitoring import Prometheus
from producing import ZipfKeys
from releases import Release, build_old_release
from streaming import describe_counts, run_and_compare
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e]

KEEP_DEFINITION = "--set=crds.install=false"


@pytest.fixture
def old(cluster: Cluster) -> Iterator[Release]:
    with build_old_release(cluster.node) as release:
        yield release


@pytest.mark.usefixtures("app_image")
def test_two_releases_mix_in_any_order(
    kube: Kube,
    operator: Operator,
    prometheus: Prometheus,
    old: Release,
    broker: Broker,
    topic: str,
    open_stream: Callable[[str], Stream],
) -> None:
    old_operator = Operator(kube, prometheus.in_pods, old.chart, old.operator)
    present = REPOSITORY / "crds" / "balancedstreams.yaml"
    stream = open_stream("mixed")
    manifest = describe_counts(stream, broker, topic, executors=(2, 2), image=old.app)
    keys = ZipfKeys(count=100, exponent=0.5, seed=1)
    skew = Skew(prometheus, stream, keys)
    operator.uninstall()
    define(kube, old.definition)
    try:
        old_operator.install(KEEP_DEFINITION)
        with run_and_compare(stream, manifest, broker, topic, keys, rate=160):
            stream.wait_for_executors(2)
            stream.wait_for_batches(3)
            pods = stream.identities()
            skew.shift("the old release")
            define(kube, present)
            # It does not know the new fields, whose defaults every object has now.
            stream.wait_for_condition("Ready", "False", reason="InvalidSpec")
            stream.wait_for_batches(3)
            assert stream.identities() == pods, "a new definition replaced a pod"
            operator.install(KEEP_DEFINITION)
            skew.shift("a new operator, an old driver")
            assert stream.identities() == pods, "an upgrade of the operator replaced a pod"

            with replacing_driver(stream):
                stream.change({"image": APP})
            skew.shift("the new release")
            define(kube, old.definition)
            with replacing_driver(stream):
                # As the old one does when it finds a driver that it would make in another way.
                old_operator.install(KEEP_DEFINITION)
            pods = stream.identities()
            skew.shift("an old operator, a new driver, the old definition")
            operator.install(KEEP_DEFINITION)
            skew.shift("a new operator and driver, the old definition")
            operator.install()
            stream.wait_for_condition("Ready")
            assert stream.identities() == pods, "a change of the operator replaced a pod"
    finally:
        operator.install()


@contextmanager
def replacing_driver(stream: Stream) -> Iterator[None]:
    """What is done in it gives the stream another driver, which then finishes batches."""
    name = f"{stream.name}-driver-0"
    before = stream.identities()[name]
    yield
    wait_until(
        "a new driver",
        lambda: stream.identities().get(name, before) != before,
        timeout_s=180,
    )
    stream.wait_for_batches(3, timeout_s=240)
    stream.wait_for_executors(2)


def define(kube: Kube, definition: Path) -> None:
    """Puts a definition in the place of the one that is there."""
    kube.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={definition}")
    kube.kubectl("wait", "--for=condition=Established", f"--filename={definition}")
