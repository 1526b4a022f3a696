"""The pod that is tried for an executor is the one that Spark itself makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from manifests import STREAM, make_spec
from pyspark.java_gateway import launch_gateway

from balancedstream.engine.session.java import check_java
from balancedstream_operator.children.configuration import build_running_conf
from balancedstream_operator.children.pods import build_executor_pod
from balancedstream_operator.children.spark_pods import make_executor_pod

pytestmark = pytest.mark.integration

Manifest = dict[str, Any]

HOST = "10.0.0.7"
APPLICATION = "spark-1f"
_OF = "spark.kubernetes.executor."
_IN = "spark.kubernetes.authenticate"
_CLAIM = f"{_OF}volumes.persistentVolumeClaim"

SETTINGS: dict[str, str] = {
    f"{_OF}label.team": "shop",
    f"{_OF}label.example.com/cost": "{{APP_ID}}",
    f"{_OF}annotation.note": "{{APP_ID}}/{{EXECUTOR_ID}}",
    "spark.kubernetes.node.selector.disk": "ssd",
    f"{_OF}node.selector.zone": "a",
    f"{_OF}scheduler.name": "volcano",
    "spark.kubernetes.scheduler.name": "yunikorn",
    "spark.kubernetes.container.image.pullSecrets": "one, two",
    f"{_OF}container.image": "other:1",
    "spark.kubernetes.container.image.pullPolicy": "Always",
    f"{_IN}.executor.serviceAccountName": "workers",
    f"{_OF}request.cores": "250m",
    f"{_OF}limit.cores": "3",
    "spark.executor.cores": "2",
    "spark.executor.memory": "3g",
    "spark.executor.memoryOverhead": "700",
    "spark.executor.pyspark.memory": "100m",
    "spark.memory.offHeap.enabled": "true",
    "spark.memory.offHeap.size": "134217728",
    "spark.executor.resource.gpu.amount": "2",
    "spark.executor.resource.gpu.vendor": "nvidia.com",
    "spark.executor.extraClassPath": "/jars/*",
    "spark.executor.extraJavaOptions": "-Dapp={{APP_ID}} '-Dtext=a b'",
    "spark.executor.defaultJavaOptions": "-XX:+UseZGC",
    "spark.executorEnv.REGION": "eu",
    "spark.rpc.askTimeout": "30s",
    "spark.network.timeout": "90s",
    "spark.blockManager.port": "7999",
    "spark.authenticate": "false",
    "spark.authenticate.secret": "known to users",
    "spark.decommission.enabled": "true",
    f"{_OF}secrets.credentials": "/credentials",
    f"{_OF}secretKeyRef.TOKEN": "credentials:token",
    f"{_CLAIM}.spark-local-dir-1.mount.path": "/local",
    f"{_CLAIM}.spark-local-dir-1.options.claimName": "OnDemand",
    f"{_CLAIM}.data.mount.path": "/data",
    f"{_CLAIM}.data.options.claimName": "data-SPARK_EXECUTOR_ID",
    f"{_CLAIM}.data.mount.readOnly": "true",
    f"{_OF}volumes.emptyDir.cache.mount.path": "/cache",
    f"{_OF}volumes.emptyDir.cache.options.medium": "Memory",
    f"{_OF}volumes.emptyDir.cache.options.sizeLimit": "1Gi",
    f"{_OF}volumes.hostPath.disk.mount.path": "/disk",
    f"{_OF}volumes.hostPath.disk.options.path": "/mnt",
    f"{_OF}volumes.hostPath.disk.mount.subPath": "a",
    f"{_OF}volumes.nfs.share.mount.path": "/share",
    f"{_OF}volumes.nfs.share.options.server": "files",
    f"{_OF}volumes.nfs.share.options.path": "/export",
    "spark.local.dir": "/scratch",
    "spark.kubernetes.local.dirs.tmpfs": "true",
    f"{_OF}terminationGracePeriodSeconds": "2min",
    f"{_OF}securityContext.allowPrivilegeEscalation": "true",
}
"""Each kind of setting that makes a difference to an executor's pod."""

TOGETHER = ("nfs", "hostPath", "emptyDir", "Claim.data", "Claim.spark", "resource.gpu", "offHeap")
"""Settings that Spark takes all or none of."""

TEMPLATE: Manifest = {
    "metadata": {"labels": {"team": "web"}, "annotations": {"note": "mine"}},
    "spec": {
        "terminationGracePeriodSeconds": 90,
        "nodeSelector": {"disk": "any"},
        "imagePullSecrets": [{"name": "registry"}],
        "schedulerName": "mine",
        "containers": [
            {
                "name": "executor",
                "env": [{"name": "REGION", "value": "us"}],
                "ports": [{"name": "debug", "containerPort": 5005}],
                "resources": {"limits": {"cpu": "4"}, "requests": {"example.com/fpga": "1"}},
                "securityContext": {"allowPrivilegeEscalation": True},
                "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
            },
            {"name": "sidecar", "image": "sidecar:1"},
        ],
    },
}


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A JVM with Spark's classes; no session is needed to make a pod."""
    check_java()
    gateway = launch_gateway()
    yield gateway.jvm
    gateway.shutdown()
    # At the end of its standard input the JVM ends.
    gateway.proc.stdin.close()
    gateway.proc.wait()


def ask_spark(java: Any, conf: dict[str, str], template: Path) -> Manifest:
    """The executor's pod of Spark's own making."""
    of = java.org.apache.spark
    nothing = getattr(java.scala, "None$").__getattr__("MODULE$")
    made_of = of.SparkConf(False)
    # The driver's Secret, which executors do not get from Spark.
    secret = {"spark.authenticate.secret": "of the driver"}
    for name, value in {**secret, **conf, "spark.driver.host": HOST}.items():
        made_of.set(name, value)
    made_of.set(f"{_OF}podTemplateFile", str(template))
    profiles = getattr(of.resource, "ResourceProfile$").__getattr__("MODULE$")
    profiles.clearDefaultProfile()
    profile = profiles.getOrCreateDefaultProfile(made_of)
    executor = of.deploy.k8s.KubernetesConf.createExecutorConf(
        made_of, "1", APPLICATION, nothing, profile.id()
    )
    keys = getattr(of.internal.config, "package$").__getattr__("MODULE$")
    security = of.SecurityManager(made_of, nothing, keys.AUTH_SECRET_FILE())
    kubernetes = java.io.fabric8.kubernetes.client
    client = kubernetes.KubernetesClientBuilder().build()
    builder = of.scheduler.cluster.k8s.KubernetesExecutorBuilder()
    built = builder.buildFromFeatures(executor, security, client, profile).pod()
    client.close()
    profiles.clearDefaultProfile()
    write = kubernetes.utils.Serialization.asJson
    pod: Manifest = json.loads(write(built.pod()))
    container = json.loads(write(built.container()))
    # Spark's allocator puts the container in, after those of the template.
    pod["spec"]["containers"] = [*pod["spec"].get("containers", ()), container]
    return pod


def compare(pod: Manifest) -> Manifest:
    """A pod without what only its maker knows, and without the order that Spark draws."""
    metadata, spec = pod["metadata"], pod["spec"]
    name = metadata.pop("name")
    metadata.pop("namespace", None)
    metadata["labels"].pop("spark-version", None)
    assert spec.pop("hostname") == name
    spec["containers"].sort(key=lambda container: str(container["name"]))
    for volume in spec.get("volumes", ()):
        claim = volume.get("persistentVolumeClaim") or {}
        if claim.get("claimName", "").startswith(name):
            # One of several is counted in another order.
            claim["claimName"] = "on demand"
    spec["volumes"].sort(key=lambda volume: str(volume["name"]))
    for container in spec["containers"]:
        for mount in container.get("volumeMounts", ()):
            mount.update(mountPath=hide_draw(mount["mountPath"]))
            for field in ("subPath", "subPathExpr"):
                if not mount.get(field):
                    mount.pop(field, None)
        container.get("volumeMounts", []).sort(key=lambda m: (m["mountPath"], m["name"]))
        entries = [normalize(entry) for entry in container.get("env", ())]
        container["env"] = sorted(entries, key=json.dumps)
    found: Manifest = drop_empty(pod)
    return found


def hide_draw(path: str) -> str:
    return "/var/data/spark" if path.startswith("/var/data/spark-") else path


def normalize(entry: Manifest) -> Manifest:
    name, value = entry["name"], entry.get("value")
    if name.startswith("SPARK_JAVA_OPT_"):
        # Their order is that of a map of Java's.
        return {"name": "SPARK_JAVA_OPT", "value": value}
    if name in {"SPARK_USER", "_SPARK_AUTH_SECRET"}:
        return {"name": name}
    if name == "SPARK_LOCAL_DIRS" and value:
        return {"name": name, "value": hide_draw(value)}
    return entry


def drop_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: drop_empty(inner) for key, inner in value.items()}
        # An emptyDir without options is one all the same.
        return {k: v for k, v in kept.items() if v not in ({}, [], None, "") or k == "emptyDir"}
    return [drop_empty(inner) for inner in value] if isinstance(value, list) else value


def choose(names: set[str]) -> dict[str, str]:
    parts = {part for part in TOGETHER for name in names if part in name}
    return {
        key: value
        for key, value in SETTINGS.items()
        if key in names or any(part in key for part in parts)
    }


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.sets(st.sampled_from(sorted(SETTINGS)), max_size=12), st.booleans(), st.booleans())
@example(set(), False, True)
@example(set(SETTINGS), False, False)
@example(set(SETTINGS), True, True)
def test_what_is_tried_is_what_spark_makes(
    java: Any, tmp_path: Path, names: set[str], templated: bool, claimed: bool
) -> None:
    executors = {"max": 4, "cpu": "500m", "podTemplate": TEMPLATE if templated else {}}
    checkpoints = {"claim": "checkpoints"} if claimed else {"uri": "s3a://bucket/clicks"}
    spec = make_spec(
        executors=executors,
        checkpoints=checkpoints,
        sparkConf=choose(names),
        imagePullSecrets=["registry"],
        labels={"example.com/owner": "web"},
    )
    template, conf = build_executor_pod(STREAM, spec), build_running_conf(STREAM, spec)
    file = tmp_path / "executor.json"
    file.write_text(json.dumps(template))
    made = ask_spark(java, conf, file)
    name = made["metadata"]["name"]
    conf["spark.driver.host"] = HOST
    tried = make_executor_pod(template, conf, name=name, application=APPLICATION)
    assert "\n".join(find_differences(compare(tried), compare(made))) == ""


def find_differences(tried: Any, made: Any, path: str = "pod") -> Iterator[str]:
    if isinstance(tried, dict) and isinstance(made, dict):
        for key in sorted(tried.keys() | made.keys()):
            yield from find_differences(tried.get(key), made.get(key), f"{path}.{key}")
    elif isinstance(tried, list) and isinstance(made, list) and len(tried) == len(made):
        for number, (one, other) in enumerate(zip(tried, made, strict=True)):
            yield from find_differences(one, other, f"{path}[{number}]")
    elif tried != made:
        yield f"{path}: {tried!r} is tried, and {made!r} is made"
