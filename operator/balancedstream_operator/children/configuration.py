"""Spark's settings of a stream's job, and their file: pure."""

from __future__ import annotations

from collections.abc import Mapping

from balancedstream.core.wire.objects import STREAM_LABEL
from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.spec import StreamSpec
from balancedstream_operator.children.authentication import has_secret, secret_conf
from balancedstream_operator.children.pods import (
    BLOCK_MANAGER_PORT,
    CONF_DIR,
    DRIVER_PORT,
    build_executor_pod,
    checkpoint_dir,
)
from balancedstream_operator.children.spark_pods import carry_over


def build_spark_conf(stream: Stream, spec: StreamSpec, partitions: int) -> dict[str, str]:
    """The job's Spark settings: our defaults, then the user's own, then what the pods need."""
    executors = spec.executors
    defaults = {
        **carry_over(build_executor_pod(stream, spec)),
        "spark.executor.memoryOverhead": executors.memory_overhead,
        "spark.driver.memory": spec.driver.memory,
        "spark.executor.memory": executors.memory,
        "spark.executor.cores": str(executors.cores),
        "spark.kubernetes.container.image.pullPolicy": spec.image_pull_policy,
        "spark.authenticate": "true",
        # A stream outlives its executors. By default Spark ends the driver after a few executors
        # were lost or refused by a quota, over any time. Without an interval it remembers each.
        "spark.executor.maxNumFailures": str(2**31 - 1),
        "spark.executor.failuresValidityInterval": "1h",
    }
    owned = {
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.app.name": stream.name,
        # A change of executors.min restarts nothing: the plan asks for the right number.
        "spark.executor.instances": str(executors.min),
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.checkpointLocation": checkpoint_dir(stream, spec),
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.kubernetes.namespace": stream.namespace,
        "spark.kubernetes.container.image": spec.image,
        "spark.kubernetes.executor.podTemplateFile": f"{CONF_DIR}/executor.yaml",
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        # Otherwise Spark creates and deletes ConfigMaps, which the driver may not.
        "spark.kubernetes.executor.disableConfigMap": "true",
        # Otherwise Spark deletes Services and claims when it stops, which the driver may not.
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        f"spark.kubernetes.executor.label.{STREAM_LABEL}": stream.name,
    }
    if executors.cpu:
        defaults["spark.kubernetes.executor.request.cores"] = executors.cpu
    return {**defaults, **spec.spark_conf, **owned}


def build_running_conf(stream: Stream, spec: StreamSpec) -> dict[str, str]:
    """All settings with which Spark creates executor pods: the file's, the command's, PySpark's."""
    return {
        "spark.executorEnv.PYTHONHASHSEED": "0",
        **build_spark_conf(stream, spec, spec.partitions or 1),
        **(secret_conf(stream) if has_secret(spec) else {}),
    }


_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\f", "\\f"))


def render_properties(conf: Mapping[str, str]) -> str:
    r"""Settings as a Java properties file, which is what spark-defaults.conf is.

    >>> print(render_properties({"spark.a": "C:\\x", "spark.b": "x y"}), end="")
    spark.a=C:\\x
    spark.b=x y
    """

    def escape(text: str) -> str:
        for raw, safe in _ESCAPES:
            text = text.replace(raw, safe)
        return text

    def escape_key(text: str) -> str:
        text = escape(text)
        for character in " :=#!":
            text = text.replace(character, f"\\{character}")
        return text

    def escape_value(text: str) -> str:
        # A properties file ignores spaces before a value, so the first one needs a backslash.
        return f"\\{escape(text)}" if text.startswith(" ") else escape(text)

    return "".join(f"{escape_key(key)}={escape_value(conf[key])}\n" for key in sorted(conf))
