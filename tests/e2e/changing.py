"""Changes of a stream's spec that were drawn, and what becomes of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from children import read_children, strip
from declared import find_differences
from generated_specs import Mutation, mutate
from kube import Kube, Manifest
from kubernetes.client import ApiException
from streams import Stream
from waiting import wait_until

from balancedstream_operator.api import resource
from balancedstream_operator.api.spec import read_spec
from balancedstream_operator.children.manifests import build_children, build_target_children
from balancedstream_operator.kube.client import FIELD_MANAGER

REFUSED_BY_THE_SERVER = "refused by the API server"
MAX_YAML_KEY = 1024
"""Characters of a key before its colon, by YAML 1.2, section 7.4.3."""

A_FIELD = re.compile(r"\b(spec|metadata)\.\w+|\.(spec|metadata)\b")


def apply_spec(stream: Stream, spec: Manifest) -> None:
    """Creates the stream with this spec, or changes it."""
    metadata = {"name": stream.name, "namespace": stream.namespace}
    kind = {"apiVersion": resource.API_VERSION, "kind": resource.KIND}
    stream.apply({**kind, "metadata": metadata, "spec": spec})


def try_change(kube: Kube, stream: Stream, base: Manifest, change: tuple[Mutation, ...]) -> str:
    """Changes a spec, and returns how that ended.

    Raises:
        AssertionError: it did not end well.
    """
    try:
        apply_spec(stream, mutate(base, change))
    except ApiException as error:
        return name_refusal(change, error)
    conditions = wait_until_acted(stream, or_failed=True)
    assert conditions["PassFailed"]["status"] == "False", conditions["PassFailed"]["message"]
    if conditions["Accepted"]["status"] == "False":
        said = conditions["Accepted"]["message"]
        assert re.match(r"spec\.\w+", said), said
        return "refused by the operator"
    if conditions["Stalled"]["reason"] == "Refused":
        said = conditions["Stalled"]["message"]
        assert A_FIELD.search(said), said
        return "refused as an object"
    assert_declared_is_what_runs(kube, stream)
    return "runs"


def assert_declared_is_what_runs(kube: Kube, stream: Stream) -> None:
    """Each object of a stream is as its spec says.

    Raises:
        AssertionError: one is not.
    """
    found = stream.read()
    metadata, spec = found["metadata"], found["spec"]
    owner = resource.Stream(stream.namespace, stream.name, metadata["uid"])
    if "targetRef" in spec:
        wanted = build_target_children(owner, "", read_spec(spec))
    else:
        wanted = build_children(owner, read_spec(spec), found["status"]["partitions"])
    there = read_children(kube, stream)
    for child in wanted:
        if child["kind"] == "Secret":
            # Made once, and never applied again.
            name, namespace = child["metadata"]["name"], stream.namespace
            assert kube.find("v1", "Secret", name, namespace=namespace), "no Secret"
            continue
        short = child["metadata"]["name"].replace(stream.name, "NAME")
        applied = strip(kube.try_to_apply(child, FIELD_MANAGER))
        assert there[child["kind"], short] == applied, f"{child['kind']} {short}"
    if "targetRef" not in spec:
        by_name = {(kind, child["metadata"]["name"]): child for (kind, _), child in there.items()}
        partitions = found["status"]["partitions"]
        found_differences = list(find_differences(spec, stream.name, partitions, by_name))
        assert not found_differences, "; ".join(found_differences)


def wait_until_acted(stream: Stream, *, or_failed: bool = False) -> dict[str, Any]:
    """The conditions, once a pass over the present spec has come to its end, or has failed."""

    def look() -> dict[str, Any] | None:
        found = stream.read()
        status = found.get("status") or {}
        conditions = {c["type"]: c for c in status.get("conditions") or []}
        acted = status.get("observedGeneration") == found["metadata"]["generation"]
        failed = bool(conditions) and conditions["PassFailed"]["status"] == "True"
        return conditions if (acted and not failed) or (failed and or_failed) else None

    return wait_until(
        f"a pass over {stream.name}",
        look,
        timeout_s=90,
        interval_s=0.1,
        last_seen=stream.read,
    )


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
        keys = [key for mutation in change for key in list_keys(mutation.value)]
        assert any(len(json.dumps(key)) > MAX_YAML_KEY for key in keys), said
        return "refused as no YAML"
    # A target that comes or goes makes other fields required, or forbidden.
    assert any(name in said for m in change for name in (*m.path, "targetRef")), said
    return REFUSED_BY_THE_SERVER


def list_keys(value: Any) -> Iterator[str]:
    """All keys of a JSON value, at any depth."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield from value
    for item in inner:
        yield from list_keys(item)
