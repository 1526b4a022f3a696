"""References of a BalancedStream to an application that another operator runs.

The labels are those that other operators set on their pods:
`sparkoperator.k8s.io/app-name` is `LabelSparkAppName` in kubeflow/spark-operator's
`pkg/common/spark.go`, set by `internal/controller/sparkapplication/submission.go`;
`spark.operator/spark-app-name` is `LABEL_SPARK_APPLICATION_NAME` in `Constants.java` of
apache/spark-kubernetes-operator, set by `SparkAppResourceSpecFactory`. `spark-role` and
`spark-app-selector` are Spark's own (`KubernetesConf.scala`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from balancedstream_operator.api.labels import is_label
from balancedstream_operator.api.resource import NAME, refuse
from balancedstream_operator.api.schema import Schema, Text, Texts, Words, rule

_NAME_LABELS = {
    "sparkoperator.k8s.io": "sparkoperator.k8s.io/app-name",
    "spark.apache.org": "spark.operator/spark-app-name",
}
"""API group of a SparkApplication, and the label of its pods that contains its name."""

_GROUPS = "|".join(group.replace(".", r"\.") for group in _NAME_LABELS)


@dataclass(frozen=True)
class TargetRef:
    """An application that another operator runs in the namespace of the stream."""

    RULES: ClassVar[tuple[Schema, ...]] = (
        rule(
            "has(self.name) == (size(self.selector) == 0)",
            "set exactly one of name (a SparkApplication) and selector (labels of the driver pod)",
        ),
        rule(
            "has(self.name) == has(self.apiVersion)",
            "apiVersion and name belong together",
        ),
    )

    api_version: Annotated[
        str | None,
        Text(
            "API version of the SparkApplication: sparkoperator.k8s.io/v1beta2 (kubeflow) or "
            "spark.apache.org/v1 (Apache).",
            64,
            rf"({_GROUPS})/v[a-z0-9]+",
            f"of {' or '.join(_NAME_LABELS)} (use selector for other drivers)",
        ),
    ] = None
    kind: Annotated[str, Words("Kind of the application.", ("SparkApplication",))] = (
        "SparkApplication"
    )
    name: Annotated[str | None, Text("Name of the SparkApplication.", 63, NAME)] = None
    selector: Annotated[
        Mapping[str, str],
        Texts(
            "Labels that only the driver's pod has, for a driver without a SparkApplication.",
            max_items=8,
            max_length=63,
        ),
    ] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else driver_selector(self)


def check_target(target: TargetRef) -> None:
    """Refuses a reference to no application, or to two.

    Raises:
        InvalidInputError: the reference is refused; the message names the field.

    >>> check_target(TargetRef(selector={"app": "clicks"}))
    """
    if (target.name is None) == (not target.selector):
        refuse("spec.targetRef", "set exactly one of name and selector")
    if (target.name is None) != (target.api_version is None):
        refuse("spec.targetRef", "apiVersion and name belong together")
    for key, value in target.selector.items():
        if not is_label(key, value):
            refuse("spec.targetRef.selector", f"{key}={value} is no label")


def driver_selector(target: TargetRef) -> str:
    """Label selector of the pods that can be the driver of a target.

    >>> driver_selector(TargetRef("sparkoperator.k8s.io/v1beta2", name="clicks"))
    'spark-role=driver,sparkoperator.k8s.io/app-name=clicks'
    >>> driver_selector(TargetRef(selector={"app": "clicks"}))
    'app=clicks'
    """
    if target.name is None:
        return ",".join(f"{key}={value}" for key, value in sorted(target.selector.items()))
    group = (target.api_version or "").partition("/")[0]
    return f"spark-role=driver,{_NAME_LABELS[group]}={target.name}"


def refuse_beside_target(fields: Mapping[str, Schema]) -> list[Schema]:
    """The CRD rules by which a spec with a target leaves each field of the job at its default.

    >>> refuse_beside_target({"driver.cpu": {"type": "string", "default": "500m"}})[0]["rule"]
    "!has(self.targetRef) || self.driver.cpu == '500m'"
    """
    return [
        rule(
            f"!has(self.targetRef) || {_is_as_filled_in(f'self.{path}', schema.get('default'))}",
            f"with targetRef, {path} is the application's own: it cannot be set here",
        )
        for path, schema in fields.items()
        # CRD rules cannot see into an object of any form; the operator itself refuses it.
        if "x-kubernetes-preserve-unknown-fields" not in schema
    ]


def _is_as_filled_in(field: str, default: object) -> str:
    match default:
        case None:
            return f"!has({field})"
        case bool():
            return field if default else f"!{field}"
        case str():
            return f"{field} == '{default}'"
        case Mapping():
            return f"size({field}) == 0"
        case _:
            return f"{field} == {default}"


def find_beside_target(manifest: object, fields: Mapping[str, Schema]) -> Iterator[str]:
    """Paths of the fields of the job in a manifest's `spec` that differ from their default.

    >>> list(find_beside_target({"driver": {"cpu": "2"}}, {"driver.cpu": {}, "image": {}}))
    ['driver.cpu']
    """
    for path, schema in fields.items():
        found = manifest
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is not None and found != schema.get("default"):
            yield path
