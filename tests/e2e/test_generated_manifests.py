"""Manifests that nobody wrote: what is declared is what runs, or is refused by field and undone.

Streams are changed as `tests/common/generated_specs.py` draws it, several at a time. Their drivers
wait for a node that there is not: they have pods, and no Spark.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from children import read_children, strip
from declared import find_differences
from generated_specs import FOLLOWING, Mutation, draw_many, mutate
from installing import Operator
from kube import Kube, Manifest
from kubernetes.client import ApiException
from streams import Stream
from waiting import wait_until

from balancedstream_operator import resource
from balancedstream_operator.children import build_children, build_target_children
from balancedstream_operator.kube import FIELD_MANAGER
from balancedstream_operator.spec import read_spec

pytestmark = [pytest.mark.e2e]

STREAMS = 6
"""Changed side by side; the last of them follows an application that there is not."""

MAX_YAML_KEY = 1024
"""Characters of a key before its colon, by YAML 1.2, section 7.4.3."""

A_FIELD = re.compile(r"\b(spec|metadata)\.\w+|\.(spec|metadata)\b")


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
            self.stream.apply(self._manifest(self.base))
            self._wait_until_acted()
            children = read_children(self.kube, self.stream)
        except Exception as error:
            self.found.append(f"the stream itself: {error!r}")
            raise
        for change in changes:
            try:
                self.ends[self._try(change)] += 1
                self.stream.apply(self._manifest(self.base))
                self._wait_until_acted()
                assert read_children(self.kube, self.stream) == children, "not as it was before"
            except Exception as error:
                said = f"{type(error).__name__}: {error}"[:2000]
                self.found.append(f"{said}, after {change}"[:4000])

    def _try(self, change: tuple[Mutation, ...]) -> str:
        """Applies a change, and returns how that ended.

        Raises:
            AssertionError: it did not end well.
        """
        try:
            self.stream.apply(self._manifest(mutate(self.base, change)))
        except ApiException as error:
            return name_refusal(change, error)
        conditions = self._wait_until_acted(or_failed=True)
        assert conditions["PassFailed"]["status"] == "False", conditions["PassFailed"]["message"]
        if conditions["Accepted"]["status"] == "False":
            said = conditions["Accepted"]["message"]
            assert re.match(r"spec\.\w+", said), said
            return "refused by the operator"
        if conditions["Running"]["reason"] == "Refused":
            said = conditions["Running"]["message"]
            assert A_FIELD.search(said), said
            return "refused as an object"
        self._assert_declared_is_what_runs()
        return "runs"

    def _assert_declared_is_what_runs(self) -> None:
        found = self.stream.read()
        metadata, spec = found["metadata"], found["spec"]
        name = resource.Stream(self.stream.namespace, self.stream.name, metadata["uid"])
        if "targetRef" in spec:
            wanted = build_target_children(name, "")
        else:
            wanted = build_children(name, read_spec(spec), found["status"]["partitions"])
        there = read_children(self.kube, self.stream)
        for child in wanted:
            short = child["metadata"]["name"].replace(self.stream.name, "NAME")
            applied = strip(self.kube.try_to_apply(child, FIELD_MANAGER))
            assert there[child["kind"], short] == applied, f"{child['kind']} {short}"
        if "targetRef" not in spec:
            conf = there["ConfigMap", "NAME-configuration"]["data"]["spark-defaults.conf"]
            driver = there["StatefulSet", "NAME-driver"]
            assert list(find_differences(spec, self.stream.name, driver, conf)) == []

    def _wait_until_acted(self, *, or_failed: bool = False) -> dict[str, Any]:
        """The conditions, once a pass over the present spec has come to its end, or has failed."""

        def look() -> dict[str, Any] | None:
            found = self.stream.read()
            status = found.get("status") or {}
            conditions = {c["type"]: c for c in status.get("conditions") or []}
            acted = status.get("observedGeneration") == found["metadata"]["generation"]
            failed = bool(conditions) and conditions["PassFailed"]["status"] == "True"
            return conditions if (acted and not failed) or (failed and or_failed) else None

        return wait_until(
            f"a pass over {self.stream.name}",
            look,
            timeout_s=90,
            interval_s=0.1,
            last_seen=self.stream.read,
        )

    def _manifest(self, spec: Manifest) -> Manifest:
        return {
            "apiVersion": resource.API_VERSION,
            "kind": resource.KIND,
            "metadata": {"name": self.stream.name, "namespace": self.stream.namespace},
            "spec": spec,
        }


def name_refusal(change: tuple[Mutation, ...], error: ApiException) -> str:
    """How a change ended that the API server refused.

    Raises:
        AssertionError: it did not refuse the change, or names no field of it.
    """
    said = json.loads(error.body)["message"]
    # A value of a wrong type is an error of its own to the server.
    assert error.status in {400, 422} or "typed patch object" in said, f"{error.status}: {said}"
    if "error decoding YAML" in said:
        # What is applied is read as YAML, which has no longer keys in braces.
        keys = [key for m in change if isinstance(m.value, dict) for key in m.value]
        assert any(len(json.dumps(key)) > MAX_YAML_KEY for key in keys), said
        return "refused as no YAML"
    # A target that comes or goes makes other fields required, or forbidden.
    assert any(name in said for m in change for name in (*m.path, "targetRef")), said
    return "refused by the API server"


def describe_waiting(stream: Stream) -> Manifest:
    """The spec of a stream whose driver's pod waits for a node."""
    nowhere = {"spec": {"nodeSelector": {"balancedstream.io/nowhere": "true"}}}
    manifest = stream.describe("rate.py", executors=(1, 2), image="localhost/nothing:1")
    spec: Manifest = manifest["spec"]
    spec["driver"]["podTemplate"] = nowhere
    return spec
