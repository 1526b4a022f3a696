"""Reads what a stream's objects say, without the operator's code, and compares it with its spec.

What a spec promises is read from `crds/balancedstreams.yaml` and `docs/`, and what pods are made of
from Kubernetes' API reference.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pod_templates import find_missing, read_entries, same_quantity

Json = Any
Objects = Mapping[tuple[str, str], Mapping[str, Json]]
"""By kind and name."""

SCRIPT = "/etc/balancedstream-script/script.py"
"""Where the driver finds a script of a ConfigMap."""

CONF_DIR = "SPARK_CONF_DIR"
"""Variable with the folder that Spark reads its settings from."""

_LEFT_ALONE = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations that keep autoscalers from a pod, by their own documentation."""

_LET_GO = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
"""That lets cluster-autoscaler evict one that has a /tmp, which it else leaves alone."""


def find_differences(
    spec: Mapping[str, Json], name: str, partitions: int, objects: Objects
) -> Iterator[str]:
    """What does not run as it is declared, by fields.

    Args:
        spec: of a stream that runs its own application, with the schema's defaults filled in.
        name: of the stream.
        partitions: that its status tells.
        objects: that it consists of.
    """
    configuration = objects["ConfigMap", f"{name}-configuration"]["data"]
    conf = read_properties(configuration["spark-defaults.conf"])
    # As Spark's client reads it: JSON begins with a brace. In YAML some texts are numbers to it.
    executor = json.loads(
        configuration[posixpath.basename(conf["spark.kubernetes.executor.podTemplateFile"])]
    )
    driver = objects["StatefulSet", f"{name}-driver"]["spec"]
    said = {
        **_compare_conf(spec, name, partitions, conf),
        **_compare_driver(spec, name, driver),
        **_compare_account(spec, name, objects),
        **_compare_executors(spec, executor, driver["template"]),
        **_compare_metadata(spec, name, executor, objects),
        **_compare_evictable(spec, driver, objects["PodDisruptionBudget", f"{name}-driver"]),
    }
    for field, (declared, found) in said.items():
        if declared != found and not same_quantity(declared, found):
            yield f"{field}: {declared!r} is declared, and {found!r} runs"
    for field, pod in (("driver", driver["template"]), ("executors", executor)):
        template = _name_account(spec[field]["podTemplate"])
        yield from find_missing(template, pod, f"{field}.podTemplate")


def find_broken_limits(spec: Mapping[str, Json], status: Mapping[str, Json]) -> Iterator[str]:
    """Where a decision is not between `executors.min` and the lowest limit, or not `fixed`."""
    limits, desired = spec["executors"], status.get("desiredExecutors")
    wanted = limits.get("fixed") or desired
    most = [limits["max"]]
    if "maxCores" in limits:
        most.append(limits["maxCores"] // limits["cores"])
    if "maxMemory" in limits:
        one = _read_mib(limits["memory"]) + _read_mib(limits["memoryOverhead"])
        most.append(_read_mib(limits["maxMemory"]) // one)
    if desired is not None and desired != max(limits["min"], min(*most, wanted)):
        yield f"executors: {limits} is declared, and {desired} are desired"


def _read_mib(size: str) -> int:
    return int(size[:-1]) * {"m": 1, "g": 1024}[size[-1]]


def least_partitions(spec: Mapping[str, Json]) -> int:
    """As many state partitions as a new stream has at least."""
    executors = spec["executors"]
    given: int | None = spec.get("partitions")
    return given or min(8 * executors["max"] * executors["cores"], 10_000)


Said = dict[str, tuple[Json, Json]]
"""What is declared and what runs, by fields."""


def _compare_conf(
    spec: Mapping[str, Json], name: str, partitions: int, conf: Mapping[str, str]
) -> Said:
    executors, checkpoints, own = spec["executors"], spec["checkpoints"], spec["sparkConf"]
    folder = f"/checkpoints/{checkpoints.get('path', name)}"
    settings: dict[str, tuple[str, str | None]] = {
        "image": ("spark.kubernetes.container.image", spec["image"]),
        "imagePullPolicy": (
            "spark.kubernetes.container.image.pullPolicy",
            spec["imagePullPolicy"],
        ),
        "driver.memory": ("spark.driver.memory", spec["driver"]["memory"]),
        "executors.min": ("spark.executor.instances", str(executors["min"])),
        "executors.cores": ("spark.executor.cores", str(executors["cores"])),
        # Without it, Spark asks for as many CPUs as an executor has cores.
        "executors.cpu": ("spark.kubernetes.executor.request.cores", executors.get("cpu")),
        "executors.memory": ("spark.executor.memory", executors["memory"]),
        "executors.memoryOverhead": ("spark.executor.memoryOverhead", executors["memoryOverhead"]),
        "partitions": ("spark.sql.shuffle.partitions", str(partitions)),
        "checkpoints": (
            "spark.sql.streaming.checkpointLocation",
            checkpoints.get("uri", folder),
        ),
        "executors.podTemplate": (
            "spark.kubernetes.executor.podTemplateContainerName",
            "executor",
        ),
    }
    said: Said = {
        f"{field} ({setting})": (own.get(setting, declared), conf.get(setting))
        for field, (setting, declared) in settings.items()
    }
    return {**said, "sparkConf": (own, {key: conf.get(key) for key in own})}


def _compare_driver(spec: Mapping[str, Json], name: str, driver: Mapping[str, Json]) -> Said:
    """The pod template of a spec has the last word on the container that it names."""
    wanted, application, template = spec["driver"], spec["application"], driver["template"]
    container = _Container(template, "driver")
    own = _Container(wanted["podTemplate"], "driver")
    memory = f"{_mebibytes(wanted['memory']) + _mebibytes(wanted['memoryOverhead'])}Mi"
    fields = {
        "image": (("image",), spec["image"]),
        "imagePullPolicy": (("imagePullPolicy",), spec["imagePullPolicy"]),
        "driver.cpu": (("resources", "requests", "cpu"), wanted["cpu"]),
        "driver.memory": (("resources", "requests", "memory"), memory),
        "driver.memoryOverhead": (("resources", "limits", "memory"), memory),
    }
    said: Said = {
        f"{field} (of the driver)": (
            own.read(*path, default=declared),
            # The API server leaves out what is empty.
            container.read(*path, default=""),
        )
        for field, (path, declared) in fields.items()
    }
    said["suspend"] = (0 if spec["suspend"] else 1), driver["replicas"]
    if own.read("args") is None:
        command = [application.get("file", SCRIPT), *application["arguments"]]
        options, found = _split(container.read("args", default=[]), len(command))
        given = dict(pairwise(options))
        said["application"] = command, found
        said["metrics.hotKeys"] = spec["metrics"]["hotKeys"], given.get("--hot-keys", "plain")
    if "configMap" in application:
        said["application.configMap"] = application["configMap"], _find_script(template)
    folders = [entry.get("value", "") for entry in read_entries(container.read("env"), CONF_DIR)]
    settings = [_find_config_map(template, folder).get("name") for folder in folders]
    said["sparkConf (that the driver reads)"] = [f"{name}-configuration"], settings
    return said


def _compare_account(spec: Mapping[str, Json], name: str, objects: Objects) -> Said:
    account, given = spec["driver"]["serviceAccount"], spec["driver"]["podTemplate"]
    own = given.get("spec") or {}
    named = own.get("serviceAccountName") or own.get("serviceAccount")
    wanted = named or account.get("name", f"{name}-driver")
    pod = objects["StatefulSet", f"{name}-driver"]["spec"]["template"]["spec"]
    (subject,) = objects["RoleBinding", f"{name}-driver"]["subjects"]
    said: Said = {
        "driver.serviceAccount.name": (wanted, pod.get("serviceAccountName", "")),
        "driver.serviceAccount.name (its Role)": (wanted, subject["name"]),
    }
    if wanted == f"{name}-driver":
        there = objects.get(("ServiceAccount", wanted))
        found = there and (there["metadata"].get("annotations") or {})
        annotations = {**spec["annotations"], **account["annotations"]}
        said["driver.serviceAccount.annotations"] = annotations, found
    return said


def _compare_executors(
    spec: Mapping[str, Json], executor: Mapping[str, Json], driver: Mapping[str, Json]
) -> Said:
    own = _name_account(spec["executors"]["podTemplate"]).get("spec") or {}
    named = own.get("serviceAccountName") or spec["executors"]["serviceAccount"].get("name")
    account = named or driver["spec"]["serviceAccountName"]
    secrets = [
        name
        for name in spec["imagePullSecrets"]
        if not all(
            {"name": name} in (pod["spec"].get("imagePullSecrets") or ())
            for pod in (executor, driver)
        )
    ]
    claimed = "claim" in spec["checkpoints"]
    groups: Said = {}
    for field, pod in (("driver", driver), ("executors", executor)):
        given = (spec[field]["podTemplate"].get("spec") or {}).get("securityContext") or {}
        if claimed and "fsGroup" not in given:
            found = pod["spec"]["securityContext"].get("fsGroup", 0)
            groups[f"fsGroup (of {field})"] = spec["fsGroup"], found
    return {
        **groups,
        "executors.serviceAccount.name": (account, executor["spec"].get("serviceAccountName")),
        "imagePullSecrets (that a pod lacks)": ([], secrets),
    }


_CHILDREN = (
    "ConfigMap",
    "PodDisruptionBudget",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
    "StatefulSet",
)


def _compare_metadata(
    spec: Mapping[str, Json], name: str, executor: Mapping[str, Json], objects: Objects
) -> Said:
    """Labels and annotations of all objects and pods; what is said of one object comes first."""
    driver = objects["StatefulSet", f"{name}-driver"]["spec"]["template"]
    said: Said = {}
    for field in ("labels", "annotations"):
        nearer = {
            "ServiceAccount": spec["driver"]["serviceAccount"]["annotations"],
            "driver": (spec["driver"]["podTemplate"].get("metadata") or {}).get(field),
            "executors": (spec["executors"]["podTemplate"].get("metadata") or {}).get(field),
        }
        places = {
            **{kind: found for (kind, _), found in objects.items() if kind in _CHILDREN},
            "driver": driver,
            "executors": executor,
        }
        for place, found in places.items():
            wanted = {k: v for k, v in spec[field].items() if k not in (nearer.get(place) or {})}
            there = found["metadata"].get(field) or {}
            kept = {key: there.get(key) for key in wanted}
            said[f"{field} (of {place})"] = wanted, kept
    return said


def _compare_evictable(
    spec: Mapping[str, Json], driver: Mapping[str, Json], budget: Mapping[str, Json]
) -> Said:
    evictable, template = spec["driver"]["evictable"], spec["driver"]["podTemplate"]
    own = (template.get("metadata") or {}).get("annotations") or {}
    found = driver["template"]["metadata"].get("annotations") or {}
    wanted = _LET_GO if evictable else _LEFT_ALONE
    free = [key for key in _LEFT_ALONE if {**spec["annotations"], **own}.get(key) is None]
    return {
        "driver.evictable": (1 if evictable else 0, budget["spec"]["maxUnavailable"]),
        "driver.evictable (whom it concerns)": (driver["selector"], budget["spec"]["selector"]),
        "driver.evictable (by autoscalers)": (
            {key: wanted.get(key) for key in free},
            {key: found.get(key) for key in free},
        ),
    }


class _Container:
    """A container of a pod or of a template; the last one of a name counts, field by field."""

    def __init__(self, pod: Mapping[str, Json], name: str) -> None:
        self._entries = read_entries((pod.get("spec") or {}).get("containers"), name)

    def read(self, *path: str, default: Json = None) -> Json:
        """A field, or the default where it is not given or null."""
        for entry in reversed(self._entries):
            value: Json = entry
            for name in path:
                value = value.get(name) if isinstance(value, Mapping) else None
            if value is not None:
                return value
        return default


def _find_script(pod: Mapping[str, Json]) -> Json:
    """Name and key of the ConfigMap that the driver reads its script from."""
    folder, file = posixpath.split(SCRIPT)
    source = _find_config_map(pod, folder)
    keys = {item["path"]: item["key"] for item in source.get("items", ())}
    return {"name": source.get("name"), "key": keys.get(file)}


def _find_config_map(pod: Mapping[str, Json], folder: str) -> Mapping[str, Json]:
    """The ConfigMap that the driver has in a folder, as a volume; empty if it has none there."""
    mounts = read_entries(_Container(pod, "driver").read("volumeMounts"), folder, "mountPath")
    sources = [
        volume["configMap"]
        for mount in mounts
        for volume in read_entries(pod["spec"].get("volumes"), mount["name"])
        if volume.get("configMap")
    ]
    return sources[0] if sources else {}


def _split(args: Sequence[str], count: int) -> tuple[Sequence[str], Sequence[str]]:
    """Arguments without the last ones, and those."""
    return args[: len(args) - count], args[len(args) - count :]


def _mebibytes(size: str) -> int:
    """Mebibytes of a size as Java writes it, with m or g."""
    return int(size[:-1]) * {"m": 1, "g": 1024}[size[-1]]


def _name_account(template: Mapping[str, Json]) -> Mapping[str, Json]:
    """The older name of a field holds where the newer one says nothing."""
    spec = template.get("spec") or {}
    if not isinstance(spec, Mapping) or not spec.get("serviceAccount"):
        return template
    named = {"serviceAccountName": spec["serviceAccount"], **spec}
    return {**template, "spec": {k: v for k, v in named.items() if k != "serviceAccount"}}


def read_properties(text: str) -> dict[str, str]:
    """What `java.util.Properties.load` makes of a text without comments and continued lines."""
    escapes = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}

    def unescape(part: str) -> str:
        return re.sub(r"\\(.)", lambda m: escapes.get(m[1], m[1]), part, flags=re.DOTALL)

    # `splitlines` knows more ends of lines than Java does.
    lines = [line for line in re.split(r"[\r\n]", text) if line.strip(" \t\f")]
    entry = re.compile(r"[ \t\f]*((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
    found = [entry.fullmatch(line) for line in lines]
    return {unescape(match[1]): unescape(match[2]) for match in found if match}
