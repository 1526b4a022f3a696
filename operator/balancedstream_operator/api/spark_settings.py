"""Checks the Spark settings in a spec: pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from balancedstream.core.wire.objects import STREAM_LABEL
from balancedstream_operator.api.resource import KIND, refuse

OWNED_CONF = (
    "spark.master",
    "spark.app.name",
    "spark.submit.deployMode",
    "spark.executor.instances",
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.checkpointLocation",
    "spark.kubernetes.namespace",
    "spark.kubernetes.container.image",
    "spark.kubernetes.driver.pod.name",
    "spark.kubernetes.driver.ownPersistentVolumeClaim",
    "spark.kubernetes.driver.service.deleteOnTermination",
    "spark.kubernetes.executor.podTemplateFile",
    "spark.kubernetes.executor.podTemplateContainerName",
    "spark.kubernetes.executor.disableConfigMap",
    f"spark.kubernetes.executor.label.{STREAM_LABEL}",
    "spark.driver.host",
    "spark.driver.bindAddress",
    "spark.driver.port",
    "spark.driver.blockManager.port",
)
"""Settings that the rest of the spec determines, or that the driver pod depends on."""

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = ".RocksDBStateStoreProvider"
DYNAMIC = "spark.dynamicAllocation.enabled"

_TEMPLATE = "Spark does not make the driver's pod: set it in spec.driver.podTemplate"
_OVERHEAD = (
    "it has no effect, because {0}.memoryOverhead is always set: set spec.{0}.memoryOverhead"
)
_RIGHTS = "Spark would change {0} for it, and the driver's Role does not allow that"
_CLUSTER_MODE = "it belongs to spark-submit's cluster mode, but the driver runs in client mode"

_CANNOT_WORK: tuple[tuple[str, str], ...] = (
    (
        r"spark\.kubernetes\.driver\.annotateExitException",
        _RIGHTS.format("the driver's pod"),
    ),
    (
        r"spark\.kubernetes\.driver\.(wait\w*ToR|r)eusePersistentVolumeClaim",
        "Kubernetes deletes claims with their executors, so there is no claim to reuse",
    ),
    (r"spark\.kubernetes\.driver\.master", "the driver uses the API server of its own cluster"),
    (
        r"spark\.kubernetes\.driver\.(service|resourceNamePrefix)\b.*",
        "the operator makes the driver's Service, not Spark",
    ),
    (r"spark\.kubernetes\.driver\.(connectionTimeout|requestTimeout)", ""),
    (r"spark\.kubernetes\.(driver\.|driverEnv\.).*", _TEMPLATE),
    (
        r"spark\.kubernetes\.authenticate\.driver\.serviceAccountName",
        "set spec.driver.serviceAccount.name, and for executors spec.executors.serviceAccount",
    ),
    (r"spark\.kubernetes\.authenticate\.(driver|submission)\..*", _CLUSTER_MODE),
    (
        r"spark\.kubernetes\.(submission\..*|submitInDriver|file\.upload\.path|report\.interval|"
        r"appKillPodDeletionGracePeriod|configMap\.maxSize|resource\.type|kerberos\..*|"
        r"hadoop\.configMapName|jars\..*|executor\.useDriverPodIP)",
        _CLUSTER_MODE,
    ),
    (r"spark\.kubernetes\.context", "a pod has no kubeconfig"),
    (
        r"spark\.kubernetes\.executor\.(decommissionLabel|decommissionLabelValue|podDeletionCost|"
        r"resize\w+)",
        _RIGHTS.format("pods"),
    ),
    (r"spark\.kubernetes\.executor\.pvc\.resize\w+", _RIGHTS.format("claims")),
    (
        r"spark\.kubernetes\.memoryOverheadFactor|spark\.executor\.(memoryOverheadFactor|"
        r"minMemoryOverhead)",
        _OVERHEAD.format("executors"),
    ),
    (r"spark\.driver\.(memoryOverheadFactor|minMemoryOverhead)", _OVERHEAD.format("driver")),
    (r"spark\.driver\.cores", "it has no effect in client mode: set spec.driver.cpu"),
    (r"spark\.driver\.supervise", "Kubernetes restarts the driver anyway"),
    (r"spark\.ui\.port", "the driver's Service has Spark's page at port 4040"),
    (
        r"spark\.dynamicAllocation\.(?!enabled$).*",
        "the operator sets the number of executors: set executors.min and executors.max",
    ),
)
"""Patterns of settings without an effect, or without one everywhere, and what to do instead.

The first pattern that matches counts; an empty advice allows the setting.
"""

_ALLOCATOR = "spark.kubernetes.allocation.pods.allocator"

_VARIABLES = (
    "SPARK_USER|SPARK_DRIVER_URL|SPARK_EXECUTOR_(CORES|MEMORY|ID|POD_IP|POD_NAME)|"
    "SPARK_APPLICATION_ID|SPARK_CONF_DIR|SPARK_RESOURCE_PROFILE_ID|SPARK_JAVA_OPT_[0-9]+|"
    "SPARK_LOCAL_DIRS|SPARK_CLASSPATH|_SPARK_AUTH_SECRET"
)
_OWN_VARIABLES = re.compile(
    rf"spark\.(executorEnv|kubernetes\.executor\.secretKeyRef)\.({_VARIABLES})"
)
_OWN_LABELS = re.compile(
    r"spark\.kubernetes\.executor\.label\.app\.kubernetes\.io/(name|instance|managed-by)"
)


def check_conf(conf: Mapping[str, str]) -> None:
    """Refuses settings that the operator sets itself, or that would have no effect.

    Raises:
        InvalidInputError: a setting is refused; the message names it, and what to do instead.

    >>> check_conf({"spark.driver.cores": "2"})
    Traceback (most recent call last):
    balancedstream.errors.InvalidInputError: spec.sparkConf.spark.driver.cores: it has no effect \
in client mode: set spec.driver.cpu
    """
    for name in OWNED_CONF:
        if name in conf:
            refuse_setting(name, "the operator sets it")
    if conf.get(DYNAMIC, "").strip().lower() == "true":
        refuse_setting(DYNAMIC, "set executors.min and executors.max instead")
    if not conf.get(PROVIDER, ROCKSDB).endswith(ROCKSDB):
        refuse_setting(PROVIDER, "must be RocksDB")
    for name, value in conf.items():
        found = next((why for pattern, why in _CANNOT_WORK if re.fullmatch(pattern, name)), "")
        if found:
            refuse_setting(name, found)
        if _OWN_VARIABLES.fullmatch(name):
            refuse_setting(name, "Spark sets this variable itself")
        if _OWN_LABELS.fullmatch(name):
            refuse_setting(name, f"the objects of a {KIND} are found by this label")
        if name == _ALLOCATOR and value != "direct":
            refuse_setting(
                name, "must be direct: the driver may create pods, but nothing else that does"
            )


def refuse_setting(name: str, problem: str) -> NoReturn:
    """Refuses a setting of `spec.sparkConf`, as `refuse` does a field."""
    refuse(f"spec.sparkConf.{name}", problem)
