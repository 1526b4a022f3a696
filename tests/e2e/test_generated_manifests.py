"""Manifests that nobody wrote: what is declared is what runs, or is refused by field and undone.

Streams are changed as `generated_specs.py` draws it, several at a time. Their drivers
wait for a node that there is not: they have pods, and no Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from changing import apply_spec, try_change, wait_until_acted
from children import read_children
from generated_specs import FOLLOWING, Mutation, draw_many
from installing import Operator
from kube import Kube, Manifest
from streams import Stream

pytestmark = [pytest.mark.e2e]

STREAMS = 6
"""Changed side by side; the last of them follows an application that there is not."""


def test_each_generated_change_runs_or_is_refused_by_field_and_is_undone_by_reverting(
    request: pytest.FixtureRequest,
    kube: Kube,
    operator: Operator,
    open_stream: Callable[[str], Stream],
) -> None:
    count = request.config.getoption("--manifests")
    seed = request.config.getoption("--manifests-seed")
    print(f"--manifests {count} --manifests-seed {seed}")
    before = operator.pod()
    changes = draw_many(count, seed)
    campaigns = [Campaign(kube, open_stream(f"clicks-{number}")) for number in range(STREAMS)]
    campaigns[-1].base = dict(FOLLOWING)
    with ThreadPoolExecutor(STREAMS) as threads:
        for number, campaign in enumerate(campaigns):
            threads.submit(campaign.run, changes[number::STREAMS])
    for campaign in campaigns:
        print(campaign.stream.name, dict(campaign.ends))
    found = [line for campaign in campaigns for line in campaign.found]
    assert not found, "\n".join([f"{len(found)} changes:", *found])
    assert sum(campaign.ends.total() for campaign in campaigns) == len(changes)
    assert "Traceback" not in operator.log()
    after = operator.pod()
    assert before is not None
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert not any(status["restartCount"] for status in after["status"]["containerStatuses"])


@dataclass
class Campaign:
    """Changes one stream again and again, and reverts each change.

    Attributes:
        kube: the cluster.
        stream: that is changed.
        base: its spec.
        ends: how many changes ended how.
        found: what did not hold.
    """

    kube: Kube
    stream: Stream
    base: Manifest = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)

    def run(self, changes: list[tuple[Mutation, ...]]) -> None:
        """Applies and reverts one after the other; what did not hold is in `found`."""
        if not self.base:
            self.base = describe_waiting(self.stream)
        try:
            apply_spec(self.stream, self.base)
            wait_until_acted(self.stream)
            children = read_children(self.kube, self.stream)
        except Exception as error:
            self.found.append(f"the stream itself: {error!r}")
            raise
        for change in changes:
            try:
                self.ends[try_change(self.kube, self.stream, self.base, change)] += 1
                apply_spec(self.stream, self.base)
                wait_until_acted(self.stream)
                assert read_children(self.kube, self.stream) == children, "not as it was before"
            except Exception as error:
                said = f"{type(error).__name__}: {error}"[:2000]
                self.found.append(f"{said}, after {change}"[:4000])


def describe_waiting(stream: Stream) -> Manifest:
    """The spec of a stream whose driver's pod waits for a node."""
    nowhere = {"spec": {"nodeSelector": {"balancedstream.io/nowhere": "true"}}}
    manifest = stream.describe("rate.py", executors=(1, 2), image="localhost/nothing:1")
    spec: Manifest = manifest["spec"]
    spec["driver"]["podTemplate"] = nowhere
    return spec
