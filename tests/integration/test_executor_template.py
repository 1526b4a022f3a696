"""Spark's own client reads the executors' pod template as the operator means it."""

from __future__ import annotations

from typing import Any

import pytest
from manifests import child
from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

TEXTS = ("12e4567", "1e3", "0x1F", "yes", "null", "\x85", "\u2028", "😀", "")
"""Numbers, words and ends of lines to some readers of YAML."""


def test_a_text_of_a_pod_template_is_the_same_text_to_spark(spark: SparkSession) -> None:
    annotations = {f"text-{number}": text for number, text in enumerate(TEXTS)}
    executors = {"min": 1, "max": 4, "podTemplate": {"metadata": {"annotations": annotations}}}
    data = child("ConfigMap", "clicks-configuration", executors=executors)["data"]
    java: Any = spark._jvm
    assert java is not None
    pod = java.io.fabric8.kubernetes.client.utils.Serialization.unmarshal(data["executor.yaml"])
    ours = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    assert dict(pod.getMetadata().getAnnotations()) == ours | annotations
