"""What Spark makes of the settings that keep its secret out of the pods of executors."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifests import STREAM, executor_pod, make_spec
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from balancedstream_operator.authentication import SECRET_DIR, fill_secret, secret_conf
from balancedstream_operator.children import build_spark_conf

CONTENT = fill_secret(b"random")


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """Of a driver that has the Secret, and the template of executors, in a folder."""
    (tmp_path / "secret").write_text(CONTENT["secret"], "utf-8")
    (tmp_path / "executor.yaml").write_text(yaml.safe_dump(executor_pod()), "utf-8")
    of_secret = {
        name: value.replace(SECRET_DIR, str(tmp_path))
        for name, value in secret_conf(STREAM).items()
    }
    return {
        **build_spark_conf(STREAM, make_spec(), 24),
        **of_secret,
        "spark.driver.host": "10.0.0.7",
        "spark.kubernetes.executor.podTemplateFile": str(tmp_path / "executor.yaml"),
    }


def make_conf(spark: SparkSession, settings: dict[str, str]) -> Any:
    jvm: Any = spark.sparkContext._jvm
    conf = jvm.org.apache.spark.SparkConf(False)
    for name, value in settings.items():
        conf.set(name, value)
    return conf


def make_security(spark: SparkSession, conf: Any, whose: str) -> Any:
    """The SecurityManager of a driver or an executor."""
    jvm: Any = spark.sparkContext._jvm
    entries = getattr(getattr(jvm.org.apache.spark.internal.config, "package$"), "MODULE$")
    entry = getattr(entries, f"AUTH_SECRET_FILE_{whose}")()
    return jvm.org.apache.spark.SecurityManager(conf, jvm.scala.Option.empty(), entry)


def build_executor(spark: SparkSession, settings: dict[str, str]) -> dict[str, Any]:
    """The container of an executor, as a driver with these settings makes it."""
    jvm: Any = spark.sparkContext._jvm
    conf = make_conf(spark, settings)
    security = make_security(spark, conf, "DRIVER")
    security.initializeAuth()
    no_pod = jvm.scala.Option.empty()
    kubernetes = jvm.org.apache.spark.deploy.k8s.KubernetesConf
    executor = kubernetes.createExecutorConf(conf, "1", "spark-1", no_pod, 0)
    fabric8 = jvm.io.fabric8.kubernetes.client
    client = fabric8.KubernetesClientBuilder().withConfig(fabric8.Config.empty()).build()
    profile = jvm.org.apache.spark.resource.ResourceProfile.getOrCreateDefaultProfile(conf)
    builder = jvm.org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBuilder()
    built = builder.buildFromFeatures(executor, security, client, profile)
    found: dict[str, Any] = json.loads(fabric8.utils.Serialization.asJson(built.pod().container()))
    return found


def test_the_driver_takes_the_key_that_executors_are_given(
    spark: SparkSession, settings: dict[str, str]
) -> None:
    security = make_security(spark, make_conf(spark, settings), "DRIVER")
    security.initializeAuth()
    assert security.getSecretKey() == CONTENT["key"]
    assert base64.b64decode(CONTENT["key"]).decode() == CONTENT["secret"]


def test_the_pod_of_an_executor_names_the_secret_and_does_not_show_it(
    spark: SparkSession, settings: dict[str, str]
) -> None:
    container = build_executor(spark, settings)
    found = [e for e in container["env"] if e["name"] == "_SPARK_AUTH_SECRET"]
    reference = {"name": "clicks-authentication-uid-1", "key": "key"}
    assert found == [{"name": "_SPARK_AUTH_SECRET", "valueFrom": {"secretKeyRef": reference}}]
    text = json.dumps(container)
    assert not any(value in text for value in CONTENT.values())


def test_without_these_settings_spark_shows_its_secret_in_the_pod(
    spark: SparkSession, settings: dict[str, str]
) -> None:
    plain = {name: value for name, value in settings.items() if name not in secret_conf(STREAM)}
    container = build_executor(spark, plain)
    (found,) = [e for e in container["env"] if e["name"] == "_SPARK_AUTH_SECRET"]
    assert found["value"]


def test_an_executor_that_has_only_a_file_finds_no_secret(
    spark: SparkSession, settings: dict[str, str]
) -> None:
    # What an executor knows before it has asked its driver.
    known = {name: value for name, value in settings.items() if name.startswith("spark.auth")}
    security = make_security(spark, make_conf(spark, known), "EXECUTOR")
    with pytest.raises(Py4JJavaError, match="A secret key must be specified"):
        security.getSecretKey()
