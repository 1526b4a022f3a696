"""A stream under load whose spec nobody thought of goes on once the change is taken back.

The changes are those of `generated_specs.py`. A driver that a change does not concern
stays; the sink is exact after all of them.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

import pytest
from broker import Broker
from changing import REFUSED_BY_THE_SERVER, apply_spec, try_change, wait_until_acted
from children import read_children
from generated_specs import Mutation, draw_many, mutate
from installing import Operator
from kube import Kube, Manifest
from streaming import describe_counts, run_and_compare, skewed
from streams import Stream

pytestmark = [pytest.mark.e2e]

DRAWN = 50
"""For each change that is made: many are alike, and many the API server refuses."""

HELD_S = 20.0
"""A change is taken back after up to so long: before its driver is there, or when it runs."""


@pytest.mark.usefixtures("app_image")
def test_a_running_stream_goes_on_once_a_change_is_taken_back(
    request: pytest.FixtureRequest,
    kube: Kube,
    operator: Operator,
    broker: Broker,
    topic: str,
    open_stream: Callable[[str], Stream],
) -> None:
    count = request.config.getoption("--changes")
    seed = request.config.getoption("--changes-seed")
    print(f"--changes {count} --changes-seed {seed}")
    chance = random.Random(seed)
    stream = open_stream("changed")
    manifest = describe_counts(stream, broker, topic, executors=(2, 2))
    base = manifest["spec"]
    with run_and_compare(stream, manifest, broker, topic, skewed(seed), rate=40):
        epoch = made = 0
        for change in draw_different(base, DRAWN * count, seed):
            stream.wait_for_batches(1)
            template, pod = read_template(kube, stream), find_driver(stream)
            ended = try_change(kube, stream, base, change)
            if ended == REFUSED_BY_THE_SERVER:
                continue
            print(f"{ended}: {change}"[:300])
            concerned = read_template(kube, stream) != template
            time.sleep(chance.uniform(0.0, HELD_S))
            apply_spec(stream, base)
            wait_until_acted(stream)
            assert read_template(kube, stream) == template, "not as it was before"
            stream.wait_for_batches(2, timeout_s=300)
            stream.wait_for_executors(2, timeout_s=300)
            stream.wait_for_condition("Ready", timeout_s=120)
            if not concerned:
                assert find_driver(stream) == pod, f"the driver was replaced by {change}"
            epoch_before, epoch = epoch, stream.status().get("planEpoch", 0)
            assert epoch >= epoch_before
            made += 1
            if made == count:
                break
        assert made == count
    assert "Traceback" not in operator.log()


def draw_different(base: Manifest, count: int, seed: int) -> list[tuple[Mutation, ...]]:
    """So many changes without those that change nothing, or what another one does; shuffled."""
    by_outcome = {json.dumps(mutate(base, change)): change for change in draw_many(count, seed)}
    by_outcome.pop(json.dumps(base), None)
    changes = list(by_outcome.values())
    random.Random(seed).shuffle(changes)
    return changes


def read_template(kube: Kube, stream: Stream) -> Manifest:
    """What the driver's pod is made from, and whether there is to be one."""
    spec = read_children(kube, stream)["StatefulSet", "NAME-driver"]["spec"]
    return {name: spec[name] for name in ("replicas", "template")}


def find_driver(stream: Stream) -> str:
    """The uid of its driver's pod."""
    driver = stream.driver()
    assert driver is not None, "there is no driver"
    uid: str = driver["metadata"]["uid"]
    return uid
