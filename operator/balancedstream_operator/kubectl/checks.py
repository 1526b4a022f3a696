"""What objects of the cluster say of an installation and of its streams: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from balancedstream.errors import InvalidInputError
from balancedstream.version import TESTED_SPARK, __version__
from balancedstream_operator.api.conditions import METRICS_AVAILABLE, RUNNING
from balancedstream_operator.api.crd import build
from balancedstream_operator.api.resource import KIND, VERSION, Manifest
from balancedstream_operator.api.spec import find_removed, find_unknown, read_spec
from balancedstream_operator.api.status import UNSEEN, parse_time, read_status
from balancedstream_operator.api.target import TargetRef
from balancedstream_operator.driver.state import describe_target
from balancedstream_operator.kubectl.diagnosis import describe_age
from balancedstream_operator.kubectl.findings import Finding
from balancedstream_operator.observe.endpoints import hide_userinfo

SPARK_LABEL = "spark-version"
"""Spark's own label of executor pods."""

LEASE_LATE_S = 60.0
"""A Lease that was not renewed for this long has no holder, also where two clocks differ a bit."""

_SHOWN = 5
"""Fields that a sentence names; the others are counted."""


def check_definition(found: Manifest | None) -> Finding:
    """Whether the definition (CRD) is the one of this release."""
    if found is None:
        return Finding(
            "problem", f"definition: this cluster knows no {KIND}; install the chart (crds.install)"
        )
    conditions = {c["type"]: c["status"] for c in (found.get("status") or {}).get("conditions", [])}
    versions = {v["name"]: v for v in found["spec"]["versions"] if v.get("served")}
    if conditions.get("Established") != "True" or VERSION not in versions:
        return Finding(
            "problem", f"definition: it does not serve {VERSION}; kubectl describe crd says why"
        )
    have = {*_walk(versions[VERSION]["schema"]["openAPIV3Schema"])}
    want = {*_walk(build()["spec"]["versions"][0]["schema"]["openAPIV3Schema"])}
    if want - have:
        return Finding(
            "problem",
            f"definition: it lacks {_name(want - have)}, which release {__version__} has; upgrade "
            "it with the chart (crds.install), or kubectl apply --server-side -f crds/",
        )
    if have - want:
        return Finding(
            "problem",
            f"definition: it is newer than this plugin ({__version__}), which does not know "
            f"{_name(have - want)}; upgrade the plugin",
        )
    return Finding("ok", f"definition: installed, and that of release {__version__}")


def _walk(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, inner in (schema.get("properties") or {}).items():
        if path or name in {"spec", "status"}:
            below = f"{path}.{name}".lstrip(".")
            yield below
            yield from _walk(inner, below)
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _walk(items, f"{path}[]")


def _name(paths: Iterable[str]) -> str:
    ordered = sorted(paths)
    more = len(ordered) - _SHOWN
    return ", ".join(ordered[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class OperatorFound:
    """A Deployment of the operator.

    Attributes:
        name: `namespace/name`.
        version: of its chart.
        ready: pods that are ready.
        wanted: pods that there should be.
        watched: namespaces; empty for all.
        lease: name of its Lease; empty for none.
        prometheus: URL of its own; empty if it has none.
        account: `system:serviceaccount:NAMESPACE:NAME`.
    """

    name: str
    version: str
    ready: int
    wanted: int
    watched: tuple[str, ...]
    lease: str
    prometheus: str
    account: str

    def watches(self, namespace: str) -> bool:
        """Whether streams of a namespace are its own."""
        return not self.watched or namespace in self.watched


def read_operator(deployment: Manifest) -> OperatorFound | None:
    """What a Deployment says, if it is one of the operator."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    labels = metadata.get("labels") or {}
    if not labels.get("helm.sh/chart", "").startswith("balancedstream-"):
        return None
    pod = spec["template"]["spec"]
    arguments = [a for c in pod["containers"] for a in c.get("args") or []]
    watched = tuple(a.partition("=")[2] for a in arguments if a.startswith("--namespace="))
    lease, prometheus = (
        next((a.partition("=")[2] for a in arguments if a.startswith(f"{option}=")), "")
        for option in ("--lease", "--prometheus-url")
    )
    namespace = metadata["namespace"]
    account = pod.get("serviceAccountName", "default")
    return OperatorFound(
        f"{namespace}/{metadata['name']}",
        labels.get("app.kubernetes.io/version", "unknown"),
        (deployment.get("status") or {}).get("readyReplicas") or 0,
        1 if spec.get("replicas") is None else spec["replicas"],
        watched,
        lease,
        prometheus,
        f"system:serviceaccount:{namespace}:{account}",
    )


def check_operators(operators: Sequence[OperatorFound], namespaces: Sequence[str]) -> list[Finding]:
    """Whether each namespace has one operator that runs."""
    findings = []
    if not operators and not namespaces:
        findings.append(Finding("problem", "operator: none of the chart is installed"))
    for operator in operators:
        where = f"operator: {operator.name}, release {operator.version}"
        if operator.ready < 1:
            findings.append(
                Finding(
                    "problem",
                    f"{where}, has no pod that is ready; streams run on with their last plan. "
                    f"kubectl describe pods and kubectl logs in its namespace say why",
                )
            )
        elif operator.version != __version__:
            findings.append(
                Finding("problem", f"{where}, is not that of this plugin ({__version__})")
            )
        else:
            pods = f"{operator.ready} of {operator.wanted} pods are ready"
            findings.append(Finding("ok", f"{where}: {pods}"))
    for namespace in namespaces:
        names = [operator.name for operator in operators if operator.watches(namespace)]
        if not names:
            findings.append(
                Finding(
                    "problem",
                    f"operator: none of the chart watches namespace {namespace}; install it, or "
                    "add the namespace to its watch.namespaces",
                )
            )
        elif len(names) > 1:
            findings.append(
                Finding(
                    "problem",
                    f"operator: {' and '.join(names)} both watch namespace {namespace}; narrow "
                    "watch.namespaces of one",
                )
            )
    return findings


def check_lease(operator: OperatorFound, lease: Manifest | None, now_s: float) -> Finding:
    """Whether an operator holds its Lease, and so acts."""
    spec = (lease or {}).get("spec") or {}
    holder = str(spec.get("holderIdentity") or "").partition("_")[0]
    renewed_s = parse_time(spec.get("renewTime"))
    if not holder or renewed_s is None:
        return Finding("problem", f"lease: nobody holds {operator.lease}, so no operator acts")
    age_s = now_s - renewed_s
    if age_s > LEASE_LATE_S:
        return Finding(
            "problem",
            f"lease: {holder} renewed {operator.lease} {describe_age(age_s)} ago by this machine's "
            "clock, so no operator acts, or the clock is wrong",
        )
    return Finding("ok", f"lease: {holder} holds {operator.lease}, and acts")


def check_claim(name: str, claim: Manifest | None) -> Finding:
    """Whether a claim can hold checkpoints."""
    if claim is None:
        return Finding(
            "problem",
            f"storage: there is no PersistentVolumeClaim {name}; create it (docs/kubernetes.md)",
        )
    phase = (claim.get("status") or {}).get("phase", "Pending")
    modes = claim["spec"].get("accessModes") or []
    if "ReadWriteMany" not in modes:
        return Finding(
            "problem",
            f"storage: claim {name} is {' and '.join(modes)}, and all pods of a stream must write "
            "to it: use one with ReadWriteMany",
        )
    if phase != "Bound":
        return Finding(
            "problem",
            f"storage: claim {name} is {phase}; kubectl describe pvc {name} says what it waits for",
        )
    return Finding("ok", f"storage: claim {name} is bound, ReadWriteMany")


def check_spec(resource: Manifest) -> Finding:
    """Whether this release accepts a stream's spec, and the operator has acted on it."""
    try:
        read_spec(resource["spec"])
    except InvalidInputError as error:
        return Finding("problem", f"spec: {error}")
    unknown = find_unknown(resource["spec"])
    if unknown:
        return Finding(
            "problem", f"spec: release {__version__} does not know, and ignores, {_name(unknown)}"
        )
    removed = find_removed(resource["spec"])
    if removed:
        return Finding(
            "problem",
            f"spec: without effect in release {__version__}, remove it: {_name(removed)}",
        )
    observed = read_status(resource).observed_generation
    if observed == UNSEEN:
        return Finding("problem", "spec: valid, but no operator has looked at the stream yet")
    if observed < resource["metadata"].get("generation", 0):
        return Finding("problem", "spec: valid, but the operator has not acted on its newest form")
    return Finding("ok", "spec: valid, and the operator has acted on it")


def check_metrics(resource: Manifest, name: str) -> Finding:
    """Whether the operator reads the stream's load from Prometheus, as it says itself."""
    own = (resource["spec"].get("metrics") or {}).get("prometheusUrl")
    url = hide_userinfo(own) if own else "the operator's own"
    available = read_status(resource).recall(METRICS_AVAILABLE)
    if available.holds:
        return Finding(
            "ok", f"prometheus: the operator reaches {url}, which scrapes the driver of {name}"
        )
    message = available.message or "the operator has not asked it yet"
    if available.holds is False:
        remedy = METRICS_AVAILABLE.find_remedy("False", "")
        return Finding("problem", f"prometheus: {message}. {remedy}")
    return Finding("unseen", f"prometheus: nobody has asked it about {name} yet: {message}")


def read_target(resource: Manifest) -> TargetRef | None:
    """The application that a stream names; None if it names none, or if its spec is wrong."""
    try:
        return read_spec(resource["spec"]).target_ref
    except InvalidInputError:
        return None


def check_target(target: TargetRef, pods: Sequence[Manifest], now_s: float) -> Finding:
    """Whether the application that a stream names has a driver that runs."""
    driver = describe_target(target, pods, now_s)
    if driver.phase == "Failing":
        remedy = RUNNING.find_remedy("False", driver.reason)
        return Finding("problem", f"driver: {driver.message}. {remedy}")
    if not driver.running:
        return Finding("unseen", f"driver: {driver.message}")
    return Finding("ok", f"driver: pod {driver.pod} of {target} runs")


def check_spark(name: str, executors: Sequence[Manifest], *, ours: bool = True) -> Finding:
    """Whether the image has a Spark that BalancedStream is tested with, as its pods say.

    `ours` tells whether the operator runs the executors.
    """
    versions = sorted(
        {(pod["metadata"].get("labels") or {}).get(SPARK_LABEL, "") for pod in executors} - {""}
    )
    if not versions:
        return Finding(
            "unseen",
            f"spark: no executor of {name} runs, and only a running one says which Spark the image "
            "has",
        )
    shown = " and ".join(versions)
    tested = f"{', '.join(TESTED_SPARK[:-1])} and {TESTED_SPARK[-1]}"
    if any(".".join(v.split(".")[:2]) not in TESTED_SPARK for v in versions):
        return Finding(
            "problem",
            f"spark: {name} runs on Spark {shown}; {tested} are tested"
            + (". Build its image on balancedstream-spark" if ours else ""),
        )
    return Finding("ok", f"spark: {name} runs on Spark {shown}")
