"""A Spark setting is carried out, or refused by its name where it is set."""

from __future__ import annotations

import pytest
from manifests import make_spec

from balancedstream.errors import InvalidInputError
from balancedstream_operator.api.spark_settings import OWNED_CONF

CANNOT_WORK = [
    "spark.dynamicAllocation.maxExecutors",
    "spark.dynamicAllocation.shuffleTracking.enabled",
    "spark.driver.cores",
    "spark.driver.supervise",
    "spark.driver.memoryOverheadFactor",
    "spark.driver.minMemoryOverhead",
    "spark.executor.memoryOverheadFactor",
    "spark.executor.minMemoryOverhead",
    "spark.executorEnv.SPARK_EXECUTOR_ID",
    "spark.executorEnv.SPARK_JAVA_OPT_0",
    "spark.executorEnv.SPARK_LOCAL_DIRS",
    "spark.kubernetes.appKillPodDeletionGracePeriod",
    "spark.kubernetes.authenticate.driver.oauthToken",
    "spark.kubernetes.authenticate.driver.serviceAccountName",
    "spark.kubernetes.authenticate.submission.caCertFile",
    "spark.kubernetes.configMap.maxSize",
    "spark.kubernetes.context",
    "spark.kubernetes.driver.annotateExitException",
    "spark.kubernetes.driver.annotation.note",
    "spark.kubernetes.driver.container.image",
    "spark.kubernetes.driver.label.team",
    "spark.kubernetes.driver.limit.cores",
    "spark.kubernetes.driver.master",
    "spark.kubernetes.driver.node.selector.disk",
    "spark.kubernetes.driver.pod.featureSteps",
    "spark.kubernetes.driver.podTemplateFile",
    "spark.kubernetes.driver.request.cores",
    "spark.kubernetes.driver.resourceNamePrefix",
    "spark.kubernetes.driver.reusePersistentVolumeClaim",
    "spark.kubernetes.driver.scheduler.name",
    "spark.kubernetes.driver.secretKeyRef.TOKEN",
    "spark.kubernetes.driver.secrets.credentials",
    "spark.kubernetes.driver.service.ipFamilies",
    "spark.kubernetes.driver.volumes.emptyDir.a.mount.path",
    "spark.kubernetes.driver.waitToReusePersistentVolumeClaim",
    "spark.kubernetes.driverEnv.REGION",
    "spark.kubernetes.executor.decommissionLabel",
    "spark.kubernetes.executor.label.app.kubernetes.io/name",
    "spark.kubernetes.executor.podDeletionCost",
    "spark.kubernetes.executor.pvc.resizeInterval",
    "spark.kubernetes.executor.resizeInterval",
    "spark.kubernetes.executor.secretKeyRef._SPARK_AUTH_SECRET",
    "spark.kubernetes.file.upload.path",
    "spark.kubernetes.hadoop.configMapName",
    "spark.kubernetes.kerberos.tokenSecret.name",
    "spark.kubernetes.memoryOverheadFactor",
    "spark.kubernetes.report.interval",
    "spark.kubernetes.resource.type",
    "spark.kubernetes.submission.waitAppCompletion",
    "spark.kubernetes.submitInDriver",
    "spark.ui.port",
]

IS_CARRIED_OUT = [
    "spark.app.id",
    "spark.blockManager.port",
    "spark.driver.extraJavaOptions",
    "spark.driver.maxResultSize",
    "spark.driver.memory",
    "spark.driver.memoryOverhead",
    "spark.dynamicAllocation.enabled",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.executor.pyspark.memory",
    "spark.executorEnv.REGION",
    "spark.kubernetes.allocation.batch.size",
    "spark.kubernetes.authenticate.caCertFile",
    "spark.kubernetes.container.image.pullSecrets",
    "spark.kubernetes.driver.connectionTimeout",
    "spark.kubernetes.driver.requestTimeout",
    "spark.kubernetes.executor.annotation.note",
    "spark.kubernetes.executor.container.image",
    "spark.kubernetes.executor.deleteOnTermination",
    "spark.kubernetes.executor.label.team",
    "spark.kubernetes.executor.limit.cores",
    "spark.kubernetes.executor.podNamePrefix",
    "spark.kubernetes.executor.request.cores",
    "spark.kubernetes.executor.scheduler.name",
    "spark.kubernetes.executor.secrets.credentials",
    "spark.kubernetes.local.dirs.tmpfs",
    "spark.kubernetes.node.selector.disk",
    "spark.kubernetes.scheduler.name",
    "spark.submit.pyFiles",
    "spark.ui.enabled",
]


@pytest.mark.parametrize("name", [*OWNED_CONF, *CANNOT_WORK])
def test_a_setting_that_would_not_be_carried_out_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        make_spec(sparkConf={name: "1"})
    path, _, problem = str(raised.value).partition(": ")
    assert path == f"spec.sparkConf.{name}"
    assert problem


@pytest.mark.parametrize("name", IS_CARRIED_OUT)
def test_a_setting_that_is_carried_out_is_taken(name: str) -> None:
    make_spec(sparkConf={name: "1"})


@pytest.mark.parametrize("value", ["true", "TRUE", " true"])
def test_dynamic_allocation_is_refused_in_each_way_that_spark_reads_true(value: str) -> None:
    with pytest.raises(InvalidInputError, match=r"set executors\.min and executors\.max"):
        make_spec(sparkConf={"spark.dynamicAllocation.enabled": value})


def test_only_spark_itself_makes_executor_pods() -> None:
    name = "spark.kubernetes.allocation.pods.allocator"
    make_spec(sparkConf={name: "direct"})
    with pytest.raises(InvalidInputError, match="must be direct"):
        make_spec(sparkConf={name: "statefulset"})
