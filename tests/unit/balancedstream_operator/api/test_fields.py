"""What a field of a spec says of itself holds: that it is of the job, and that it restarts it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from generated_specs import FOLLOWING, FULL, Mutation, mutate, read_schema
from supervised import STREAM, TargetScene

from balancedstream.core.policy import Policy
from balancedstream.errors import InvalidInputError
from balancedstream_operator.api.schema import read
from balancedstream_operator.api.spec import OF_THE_JOB, StreamSpec, read_spec
from balancedstream_operator.children.configuration import build_spark_conf
from balancedstream_operator.children.fingerprint import fingerprint_spec
from balancedstream_operator.children.pods import build_driver_pod, build_executor_pod
from balancedstream_operator.observe.endpoints import Endpoint, Subject
from balancedstream_operator.observe.measurement import Measurement

OTHER: Mapping[str, Any] = {
    "targetRef": {"selector": {"app": "clicks"}},
    "targetRef.apiVersion": "spark.apache.org/v1",
    "application.file": "/app/other.py",
    "application.configMap.key": "other.py",
    "checkpoints.uri": "s3a://bucket/others",
    "imagePullPolicy": "Never",
    "executors.minQuery": "vector(3)",
    "metrics.labels": {"cluster": "eu"},
    "metrics.prometheusUrl": "http://prometheus.shop",
    "schedule.excluded": [{"cron": "0 8 * * *", "durationSeconds": 60}],
    "schedule.floors": [{"cron": "0 8 * * *", "durationSeconds": 60, "minExecutors": 2}],
    "schedule.repartitions": [{"cron": "0 8 * * *", "durationSeconds": 60}],
}
"""Values of fields for which the schema alone does not tell another value that is valid."""

KEEPS_THE_DRIVER = {
    "driver.evictable",
    "executors.maxCores",
    "executors.maxMemory",
    "partitions",
    "schedule.repartitions",
    "suspend",
}
"""Of the job; what they say takes effect without a new driver."""


def list_fields(schema: dict[str, Any], *, parts: bool, path: str = "") -> Iterator[str]:
    """Paths of the fields of a schema that have an effect.

    Args:
        schema: of the spec, or of an object in it.
        parts: whether an object that may be absent counts as its fields, and not as one.
        path: of the object, with a dot at its end.
    """
    for name, inner in schema["properties"].items():
        if inner.get("description", "").startswith("Removed, and ignored"):
            continue
        there = "default" in inner or name in schema.get("required", ())
        if "properties" in inner and (there or parts):
            yield from list_fields(inner, parts=parts, path=f"{path}{name}.")
        else:
            yield f"{path}{name}"


def find_other(path: str) -> Any:
    """A value that a field has in no spec of these tests, and not by default."""
    if path in OTHER:
        return OTHER[path]
    schema: dict[str, Any] = {"properties": read_schema()["properties"]}
    for name in path.split("."):
        schema = schema["properties"][name]
    if "properties" in schema:
        first = next(iter(schema["properties"]))
        return {first: find_other(f"{path}.{first}")}
    if "x-kubernetes-preserve-unknown-fields" in schema:
        return {"spec": {"nodeSelector": {"zone": "a"}}}
    default = schema.get("default")
    if "enum" in schema:
        return next((word for word in schema["enum"] if word != default), default)
    match schema["type"]:
        case "boolean":
            return not default
        case "integer":
            return min((default or schema["minimum"]) + 2, schema["maximum"])
        case "number":
            return min((default or schema["minimum"] or 1.0) * 1.05, schema["maximum"])
        case "array":
            return ["other"]
        case "object":
            return {"example.com/other": "yes"}
        case _:
            return "5g" if path.lower().endswith(("memory", "memoryoverhead")) else "3"


def change(base: Mapping[str, Any], path: str) -> dict[str, Any]:
    return mutate(base, (Mutation(tuple(path.split(".")), find_other(path)),))


class RecordingScene(TargetScene):
    """A stream whose application another operator runs, and what is done for it."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.seen: list[object] = []
        super().__init__()
        self.resource["spec"] = copy.deepcopy(dict(spec))
        credentials = {"data": {"token": "dG9rZW4="}}
        self.cluster.objects["Secret", find_other("metrics.secret")] = credentials

    def open_source(self, endpoint: Endpoint) -> RecordingScene:
        self.seen.append(endpoint)
        return self

    def observe(self, subject: Subject, *arguments: Any) -> Measurement:
        self.seen += [subject, *(given for given in arguments if isinstance(given, Policy))]
        return super().observe(subject, *arguments)

    def act(self) -> list[object]:
        """What Prometheus is asked for, by which policy, what is applied, and when it goes on."""
        done = self.run_until_running()
        maps = [o for (kind, _), o in self.cluster.objects.items() if kind == "ConfigMap"]
        return [*self.seen, *self.asked, *maps, done.interval_s]


@pytest.mark.parametrize("path", [*list_fields(read_schema(), parts=False)])
def test_beside_a_target_a_field_is_refused_by_name_or_carried_out(path: str) -> None:
    spec = change(FOLLOWING, path)
    if path in OF_THE_JOB:
        with pytest.raises(InvalidInputError, match=rf"^spec\.{path}: with targetRef"):
            read_spec(spec)
    else:
        assert RecordingScene(spec).act() != RecordingScene(FOLLOWING).act()


def test_every_field_of_the_job_needs_a_new_driver_unless_it_says_that_it_does_not() -> None:
    base = fingerprint_spec(read(StreamSpec, FULL), "")
    kept = {
        path
        for path in list_fields(read_schema(), parts=True)
        if fingerprint_spec(read(StreamSpec, change(FULL, path)), "") == base
    }
    assert {path for path in kept if is_of_the_job(path)} == KEEPS_THE_DRIVER


def is_of_the_job(path: str) -> bool:
    return any(f"{path}.".startswith(f"{field}.") for field in OF_THE_JOB)


def build_driver(spec: StreamSpec) -> list[object]:
    """What a driver runs by: its pod, its settings, and the pods of its executors."""
    conf = build_spark_conf(STREAM, spec, 96)
    # The plan asks for the right number.
    del conf["spark.executor.instances"]
    return [
        build_driver_pod(STREAM, spec, conf, "")["spec"],
        conf,
        build_executor_pod(STREAM, spec),
    ]


@pytest.mark.parametrize("path", [*list_fields(read_schema(), parts=True)])
def test_a_field_by_which_pods_are_made_needs_a_new_driver(path: str) -> None:
    before, after = (read(StreamSpec, spec) for spec in (FULL, change(FULL, path)))
    if build_driver(after) != build_driver(before):
        assert fingerprint_spec(after, "") != fingerprint_spec(before, "")


def list_texts(schema: Mapping[str, Any], path: str = "spec") -> Iterator[tuple[str, str]]:
    """Path and pattern of each text that has one."""
    if "pattern" in schema:
        yield path, schema["pattern"]
    for name, inner in schema.get("properties", {}).items():
        yield from list_texts(inner, f"{path}.{name}")


@pytest.mark.parametrize(
    "path", sorted(p for p, s in list_texts(read_schema()) if "[mg]" in s or "m|" in s)
)
def test_the_largest_quantity_is_one_that_kubernetes_keeps(path: str) -> None:
    schema = dict(list_texts(read_schema()))[path]
    units = {"g": 2**30, "m": 2**20} if "[mg]" in schema else {"": 1000, "m": 1}
    taken = [
        int("9" * digits) * size
        for digits in range(1, 17)
        for unit, size in units.items()
        if re.fullmatch(schema, "9" * digits + unit)
    ]
    # The operator adds two of memory; an API server cuts more, and counts CPUs in thousandths.
    assert 0 < 2 * max(taken) < 2**63


def test_a_quantity_of_more_digits_is_refused_by_field() -> None:
    spec = mutate(FULL, (Mutation(("driver", "memoryOverhead"), "51095924666806m"),))
    with pytest.raises(InvalidInputError, match=r"spec\.driver\.memoryOverhead"):
        read_spec(spec)
