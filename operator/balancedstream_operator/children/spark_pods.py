"""Makes executor pods from a pod template and Spark's settings, as Spark does: pure.

Spark's own classes are `KubernetesExecutorBuilder` and the feature steps that it runs, such as
`BasicExecutorFeatureStep`. `tests/integration/test_spark_pods.py` compares our pods with Spark's.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from balancedstream.core.sizing import parse_mib
from balancedstream_operator.api.resource import Manifest
from balancedstream_operator.api.spark_settings import refuse_setting

CONTAINER = "executor"

_OF_EXECUTORS = "spark.kubernetes.executor."
_VOLUMES = f"{_OF_EXECUTORS}volumes."
_LOCAL_DIR = "spark-local-dir-"
"""Spark keeps shuffle files in volumes with this prefix in their name."""

_ON_DEMAND = "OnDemand"
"""With this name of a claim, Spark creates a claim for each executor."""

_VOLUME_KINDS = ("emptyDir", "hostPath", "nfs", "persistentVolumeClaim")
_NEEDED = {
    "hostPath": ("path",),
    "nfs": ("server", "path"),
    "persistentVolumeClaim": ("claimName",),
}
"""Options that each kind of volume needs; without them Spark ends."""

_GRACE = f"{_OF_EXECUTORS}terminationGracePeriodSeconds"
_ESCALATION = f"{_OF_EXECUTORS}securityContext.allowPrivilegeEscalation"

RESERVED_LABELS = (
    "spark-app-name",
    "spark-app-selector",
    "spark-exec-id",
    "spark-exec-resourceprofile-id",
    "spark-role",
    "spark-version",
)
"""Labels that Spark sets itself; it ends if a setting sets one."""


def carry_over(template: Mapping[str, Any]) -> dict[str, str]:
    """Settings that repeat a template's fields; Spark would overwrite these with its defaults.

    >>> containers = [{"name": "executor"}]
    >>> carry_over({"spec": {"terminationGracePeriodSeconds": 90, "containers": containers}})
    {'spark.kubernetes.executor.terminationGracePeriodSeconds': '90s'}
    """
    spec = template["spec"]
    found = {}
    container = _find_container(spec)
    grace_s = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace_s, int) and not isinstance(grace_s, bool):
        found[_GRACE] = f"{grace_s}s"
    if _map(container.get("securityContext")).get("allowPrivilegeEscalation") is True:
        found[_ESCALATION] = "true"
    return found


def _find_container(spec: Mapping[str, Any]) -> Manifest:
    containers = [c for c in _list(spec.get("containers")) if isinstance(c, dict)]
    return next(c for c in containers if c.get("name") == CONTAINER)


def makes_claims(conf: Mapping[str, str]) -> bool:
    """Whether Spark creates a claim for each executor.

    >>> volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.a"
    >>> makes_claims({f"{volume}.options.claimName": "OnDemand"})
    True
    """
    return any(
        kind == "persistentVolumeClaim" and options.get("options.claimName") == _ON_DEMAND
        for (kind, _), options in _read_volumes(conf).items()
    )


def mounts_claims(conf: Mapping[str, str]) -> bool:
    """Whether Spark mounts a claim into executors."""
    return any(kind == "persistentVolumeClaim" for kind, _ in _read_volumes(conf))


def make_executor_pod(
    template: Mapping[str, Any],
    conf: Mapping[str, str],
    *,
    name: str,
    executor: str = "1",
    application: str = "spark-application",
) -> Manifest:
    """The pod that Spark makes from a template.

    It has no label `spark-version`, because only the image knows its version.

    Args:
        template: template of executor pods, with a container named executor.
        conf: all settings of the driver.
        name: name of the pod.
        executor: id of the executor; Spark counts it up.
        application: id of Spark's application.

    Raises:
        InvalidInputError: Spark cannot make a pod from these settings; the message names one.
    """
    pod = copy.deepcopy(dict(template))
    metadata = pod.setdefault("metadata", {})
    spec = pod["spec"]
    metadata["name"] = name
    labels = _substitute(_below(conf, f"{_OF_EXECUTORS}label."), application, executor)
    _refuse_labels(labels)
    metadata["labels"] = {
        **_map(metadata.get("labels")),
        **labels,
        "spark-app-name": conf.get("spark.app.name", ""),
        "spark-app-selector": application,
        "spark-exec-id": executor,
        "spark-exec-resourceprofile-id": "0",
        "spark-role": "executor",
    }
    annotations = _substitute(_below(conf, f"{_OF_EXECUTORS}annotation."), application, executor)
    metadata["annotations"] = {**_map(metadata.get("annotations")), **annotations}
    spec["hostname"] = re.sub(r"[^\w-]+", "_", re.sub(r"^\W+", "", name[-63:], flags=re.A))
    spec["restartPolicy"] = "Never"
    spec["terminationGracePeriodSeconds"] = _read_seconds(conf.get(_GRACE, "30s"))
    spec["nodeSelector"] = {
        **_map(spec.get("nodeSelector")),
        **_below(conf, "spark.kubernetes.node.selector."),
        **_below(conf, f"{_OF_EXECUTORS}node.selector."),
    }
    spec["imagePullSecrets"] = [
        *_list(spec.get("imagePullSecrets")),
        *({"name": secret} for secret in read_pull_secrets(conf)),
    ]
    own, general = f"{_OF_EXECUTORS}scheduler.name", "spark.kubernetes.scheduler.name"
    if scheduler := conf.get(own, conf.get(general)):
        spec["schedulerName"] = scheduler
    account = conf.get(
        "spark.kubernetes.authenticate.executor.serviceAccountName",
        conf.get("spark.kubernetes.authenticate.driver.serviceAccountName"),
    )
    if account and not spec.get("serviceAccount"):
        spec["serviceAccount"] = spec["serviceAccountName"] = account
    container = _find_container(spec)
    _fill_container(container, conf, executor, application)
    _add_secrets(spec, container, conf)
    _add_volumes(spec, container, conf, name, executor)
    _add_local_dirs(spec, container, conf)
    return pod


def _fill_container(
    container: Manifest, conf: Mapping[str, str], executor: str, application: str
) -> None:
    image = "spark.kubernetes.container.image"
    container["image"] = conf.get(f"{_OF_EXECUTORS}container.image", conf.get(image, ""))
    container["imagePullPolicy"] = conf.get(f"{image}.pullPolicy", "IfNotPresent")
    container["args"] = [*_list(container.get("args")), "executor"]
    container["env"] = [
        *_list(container.get("env")),
        *_list_variables(conf, executor, application),
    ]
    port = conf.get("spark.blockManager.port", "7079")
    if port.isdecimal() and int(port):
        block_manager = {"name": "blockmanager", "containerPort": int(port)}
        container["ports"] = [*_list(container.get("ports")), block_manager]
    _fill_resources(container, conf)
    security = container["securityContext"] = _map(container.get("securityContext"))
    security["allowPrivilegeEscalation"] = _is_true(conf.get(_ESCALATION))
    if _is_true(conf.get("spark.decommission.enabled")):
        script = conf.get("spark.kubernetes.decommission.script", "/opt/decom.sh")
        container["lifecycle"] = {"preStop": {"exec": {"command": [script]}}}


def _fill_resources(container: Manifest, conf: Mapping[str, str]) -> None:
    given = _map(container.get("resources"))
    cores = conf.get("spark.executor.cores", "1")
    memory = f"{_read_memory_mib(conf)}Mi"
    requests = {**_map(given.get("requests")), "memory": memory}
    requests["cpu"] = conf.get(f"{_OF_EXECUTORS}request.cores", cores)
    limits = {**_map(given.get("limits")), "memory": memory}
    if limit := conf.get(f"{_OF_EXECUTORS}limit.cores"):
        limits["cpu"] = limit
    resources = _below(conf, "spark.executor.resource.")
    for key, amount in resources.items():
        kind, _, field = key.rpartition(".")
        if field == "amount":
            limits[f"{resources.get(f'{kind}.vendor', '')}/{kind}"] = amount
    container["resources"] = {**given, "requests": requests, "limits": limits}
    container["resizePolicy"] = [
        *_list(container.get("resizePolicy")),
        *({"resourceName": name, "restartPolicy": "NotRequired"} for name in ("cpu", "memory")),
    ]


def _read_memory_mib(conf: Mapping[str, str]) -> int:
    heap_mib = _read_mib(conf.get("spark.executor.memory", "1g"))
    overhead_mib = _read_mib(conf.get("spark.executor.memoryOverhead", "384m"))
    off_heap = _is_true(conf.get("spark.memory.offHeap.enabled"))
    size = conf.get("spark.memory.offHeap.size", "0").strip()
    # Spark reads this size in bytes if it has no unit.
    size_mib = _read_mib(f"{size}b" if size.isdecimal() else size) if off_heap else 0
    return heap_mib + overhead_mib + size_mib


def _read_mib(text: str) -> int:
    """A size in MiB; 0 if Spark cannot read it, because the driver then ends and says so."""
    try:
        return parse_mib(text)
    except ValueError:
        return 0


def _read_seconds(text: str) -> int:
    found = re.fullmatch(r"([0-9]+)(s|m|min|h|d)?", text.strip(), re.ASCII)
    scale = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
    return int(found[1]) * scale[found[2]] if found else 30


def _list_variables(
    conf: Mapping[str, str], executor: str, application: str
) -> Iterator[dict[str, Any]]:
    host, port = conf.get("spark.driver.host", "driver"), conf.get("spark.driver.port", "7078")
    memory_mib = _read_mib(conf.get("spark.executor.memory", "1g"))
    values = [
        ("SPARK_USER", "spark"),
        ("SPARK_DRIVER_URL", f"spark://CoarseGrainedScheduler@{host}:{port}"),
        ("SPARK_EXECUTOR_CORES", conf.get("spark.executor.cores", "1")),
        ("SPARK_EXECUTOR_MEMORY", f"{memory_mib}m"),
        ("SPARK_APPLICATION_ID", application),
        ("SPARK_CONF_DIR", "/opt/spark/conf"),
        ("SPARK_EXECUTOR_ID", executor),
        ("SPARK_RESOURCE_PROFILE_ID", "0"),
        *_below(conf, "spark.executorEnv.").items(),
    ]
    file = "spark.authenticate.secret.file"
    authenticates = _is_true(conf.get("spark.authenticate"))
    if authenticates and not conf.get("spark.authenticate.secret.executor.file", conf.get(file)):
        # Spark sets the secret here; its value must not get into our copy.
        values.append(("_SPARK_AUTH_SECRET", ""))
    if classpath := conf.get("spark.executor.extraClassPath"):
        values.append(("SPARK_CLASSPATH", classpath))
    options = enumerate(_list_java_options(conf, executor, application))
    values += [(f"SPARK_JAVA_OPT_{number}", option) for number, option in options]
    yield from ({"name": name, "value": value} for name, value in values)
    for name, path in (
        ("SPARK_EXECUTOR_POD_IP", "status.podIP"),
        ("SPARK_EXECUTOR_POD_NAME", "metadata.name"),
    ):
        yield {
            "name": name,
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}},
        }


_AT_THE_START = re.compile(
    r"spark\.(auth(?!enticate\.secret$)|rpc|network|ssl\.).*|spark\..*\.port(\..*)?"
)
"""Settings that an executor needs before it can ask the driver for all settings."""


def _list_java_options(conf: Mapping[str, str], executor: str, application: str) -> Iterator[str]:
    for kind in ("default", "extra"):
        text = conf.get(f"spark.executor.{kind}JavaOptions", "")
        try:
            yield from shlex.split(_replace(text, application, executor))
        except ValueError:
            yield text
    for name in sorted(conf):
        if _AT_THE_START.fullmatch(name):
            yield f"-D{name}={conf[name]}"


def _add_secrets(spec: Manifest, container: Manifest, conf: Mapping[str, str]) -> None:
    for secret, path in _below(conf, f"{_OF_EXECUTORS}secrets.").items():
        volume = f"{secret}-volume"
        _append(spec, "volumes", {"name": volume, "secret": {"secretName": secret}})
        _append(container, "volumeMounts", {"name": volume, "mountPath": path})
    for variable, reference in _below(conf, f"{_OF_EXECUTORS}secretKeyRef.").items():
        name, colon, key = reference.partition(":")
        if not colon or ":" in key:
            refuse_setting(
                f"{_OF_EXECUTORS}secretKeyRef.{variable}", f"must be NAME:KEY, not {reference}"
            )
        source = {"secretKeyRef": {"name": name, "key": key}}
        _append(container, "env", {"name": variable, "valueFrom": source})


def _add_volumes(
    spec: Manifest, container: Manifest, conf: Mapping[str, str], pod: str, executor: str
) -> None:
    for number, ((kind, name), options) in enumerate(sorted(_read_volumes(conf).items())):
        path = f"{_VOLUMES}{kind}.{name}"
        if kind not in _VOLUME_KINDS:
            refuse_setting(
                path, f"Spark has no volumes of kind {kind}, but {', '.join(_VOLUME_KINDS)}"
            )
        for needed in ("mount.path", *(f"options.{option}" for option in _NEEDED.get(kind, ()))):
            if needed not in options:
                refuse_setting(f"{path}.{needed}", "missing: Spark would end")
        source: dict[str, Any] = {}
        if kind == "persistentVolumeClaim":
            claim = options["options.claimName"]
            claim = f"{pod}-pvc-{number}" if claim == _ON_DEMAND else claim
            source["claimName"] = claim.replace("SPARK_EXECUTOR_ID", executor)
            source["readOnly"] = _is_true(options.get("mount.readOnly"))
        else:
            for option in ("path", "type", "server", "medium", "sizeLimit"):
                if f"options.{option}" in options:
                    source[option] = options[f"options.{option}"]
        _append(spec, "volumes", {"name": name, kind: source})
        mount: dict[str, Any] = {"name": name, "mountPath": options["mount.path"]}
        mount["readOnly"] = _is_true(options.get("mount.readOnly"))
        for field in ("subPath", "subPathExpr"):
            if f"mount.{field}" in options:
                mount[field] = options[f"mount.{field}"]
        _append(container, "volumeMounts", mount)


def _add_local_dirs(spec: Manifest, container: Manifest, conf: Mapping[str, str]) -> None:
    mounts = [m for m in _list(container.get("volumeMounts")) if isinstance(m, Mapping)]
    named = [m for m in mounts if str(m.get("name", "")).startswith(_LOCAL_DIR)]
    paths = [str(m.get("mountPath", "")) for m in named]
    if not paths:
        paths = conf.get("spark.local.dir", "/var/data/spark").split(",")
        in_memory = _is_true(conf.get("spark.kubernetes.local.dirs.tmpfs"))
        for number, path in enumerate(paths, 1):
            name = f"{_LOCAL_DIR}{number}"
            source = {"medium": "Memory"} if in_memory else {}
            _append(spec, "volumes", {"name": name, "emptyDir": source})
            _append(container, "volumeMounts", {"name": name, "mountPath": path})
    _append(container, "env", {"name": "SPARK_LOCAL_DIRS", "value": ",".join(paths)})


def _read_volumes(conf: Mapping[str, str]) -> dict[tuple[str, str], dict[str, str]]:
    found: dict[tuple[str, str], dict[str, str]] = {}
    for key, value in _below(conf, _VOLUMES).items():
        kind, _, rest = key.partition(".")
        name, _, option = rest.partition(".")
        found.setdefault((kind, name), {})[option] = value
    return found


def read_pull_secrets(conf: Mapping[str, str]) -> list[str]:
    """Names of the Secrets for pulling images.

    >>> read_pull_secrets({"spark.kubernetes.container.image.pullSecrets": "a, b"})
    ['a', 'b']
    """
    text = conf.get("spark.kubernetes.container.image.pullSecrets", "")
    return [name.strip() for name in text.split(",") if name.strip()]


def _refuse_labels(labels: Mapping[str, str]) -> None:
    for name in RESERVED_LABELS:
        if name in labels:
            refuse_setting(f"{_OF_EXECUTORS}label.{name}", "Spark sets this label, and would end")


def _below(conf: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key[len(prefix) :]: conf[key] for key in sorted(conf) if key.startswith(prefix)}


def _substitute(values: Mapping[str, str], application: str, executor: str) -> dict[str, str]:
    return {key: _replace(value, application, executor) for key, value in values.items()}


def _replace(text: str, application: str, executor: str) -> str:
    return text.replace("{{APP_ID}}", application).replace("{{EXECUTOR_ID}}", executor)


def _append(owner: Manifest, field: str, entry: Manifest) -> None:
    owner[field] = [*_list(owner.get(field)), entry]


def _list(value: Any) -> list[Any]:
    """The value if it is a list; otherwise an empty list, so that `find_lost` reports the value."""
    return value if isinstance(value, list) else []


def _map(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"
