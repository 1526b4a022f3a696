"""What Spark makes of a secret in a file, on Kubernetes."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from manifests import STREAM, make_spec
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from balancedstream_operator.children.authentication import SECRET_DIR, fill_secret, secret_conf
from balancedstream_operator.children.configuration import build_spark_conf

CONTENT = fill_secret(b"random")


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """Of a driver that has the Secret in a folder."""
    (tmp_path / "secret").write_text(CONTENT["secret"], "utf-8")
    of_secret = {
        name: value.replace(SECRET_DIR, str(tmp_path))
        for name, value in secret_conf(STREAM).items()
    }
    return {**build_spark_conf(STREAM, make_spec(), 24), **of_secret}


def make_conf(spark: SparkSession, settings: dict[str, str]) -> Any:
    jvm: Any = spark.sparkContext._jvm
    conf = jvm.org.apache.spark.SparkConf(False)
    for name, value in settings.items():
        conf.set(name, value)
    return conf


def find_object(package: Any, name: str) -> Any:
    """An object of Scala."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def make_security(spark: SparkSession, conf: Any, whose: str) -> Any:
    """The SecurityManager of a driver or an executor."""
    jvm: Any = spark.sparkContext._jvm
    entries = find_object(jvm.org.apache.spark.internal.config, "package")
    entry = getattr(entries, f"AUTH_SECRET_FILE_{whose}")()
    return jvm.org.apache.spark.SecurityManager(conf, jvm.scala.Option.empty(), entry)


def test_the_driver_takes_the_key_that_executors_are_given(
    spark: SparkSession, settings: dict[str, str]
) -> None:
    security = make_security(spark, make_conf(spark, settings), "DRIVER")
    security.initializeAuth()
    assert security.getSecretKey() == CONTENT["key"]
    assert base64.b64decode(CONTENT["key"]).decode() == CONTENT["secret"]


def test_an_executor_that_has_only_a_file_finds_no_secret(
    spark: SparkSession, settings: dict[str, str]
) -> None:
    # What an executor knows before it has asked its driver.
    known = {name: value for name, value in settings.items() if name.startswith("spark.auth")}
    security = make_security(spark, make_conf(spark, known), "EXECUTOR")
    with pytest.raises(IllegalArgumentException, match="A secret key must be specified"):
        security.getSecretKey()
