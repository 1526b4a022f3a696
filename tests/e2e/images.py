"""The images of the tests: built from the working tree and loaded into the cluster's node."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from clusters import HERE, Node
from jars import fetch_jars

REPOSITORY = HERE.parents[1]

OPERATOR = "localhost/balancedstream-operator:e2e"
SPARK = "localhost/balancedstream-spark:e2e"
APP = "localhost/balancedstream-app:e2e"
"""SPARK with the applications of this folder in /app, Spark's Kafka connector and Hadoop's S3A."""
OLDEST_SPARK = "3.5"
OLDEST = "localhost/balancedstream-oldest:e2e"
"""`apps/rate.py` on that Spark."""
KAFKA = "localhost/balancedstream-kafka:e2e"
PROMETHEUS = "localhost/balancedstream-prometheus:e2e"
OBJECT_STORE = "localhost/balancedstream-objectstore:e2e"
KUBEFLOW = "localhost/balancedstream-kubeflow:e2e"


def build_project_images(node: Node) -> None:
    """The project's own two images, as a release builds them."""
    for image, stage in ((OPERATOR, "operator"), (SPARK, "spark")):
        node.build(_tag(image), REPOSITORY, ["--target", stage])


def build_app_image(node: Node, app: str = APP, spark: str = SPARK) -> None:
    """What a user does: one image on top of the project's, with an application in it.

    Args:
        node: where it goes.
        app: its name.
        spark: that of the project's.
    """
    _build(node, app, HERE / "apps", f"--build-arg=SPARK={spark}")


def build_oldest_image(node: Node) -> None:
    """The project's image with the oldest Spark, and one with an application on top of it."""
    options = ["--target", "spark", "--build-arg", f"SPARK={OLDEST_SPARK}"]
    node.build(f"{_tag(SPARK)}-{OLDEST_SPARK}", REPOSITORY, options)
    with tempfile.TemporaryDirectory() as scratch:
        for file in (HERE / "oldest" / "Dockerfile", HERE / "apps" / "rate.py"):
            shutil.copy(file, scratch)
        node.build(_tag(OLDEST), Path(scratch), [])


def build_kafka_image(node: Node) -> None:
    """A broker from Maven Central's jars."""
    _build(node, KAFKA, HERE / "kafka")


def build_prometheus_image(node: Node) -> None:
    """Debian's Prometheus."""
    _build(node, PROMETHEUS, HERE / "prometheus")


def build_object_store_image(node: Node) -> None:
    """An S3 server from Go's module proxy."""
    _build(node, OBJECT_STORE, HERE / "objectstore")


def build_kubeflow_image(node: Node, source: Path) -> None:
    """Spark's operator of kubeflow, from a clone of its sources, on top of the project's Spark."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(HERE / "kubeflow" / "Dockerfile", scratch)
        _compile(source, f"{scratch}/bin/spark-operator", "./cmd/operator")
        node.build(_tag(KUBEFLOW), Path(scratch), [])


def _build(node: Node, image: str, folder: Path, *options: str) -> None:
    """Builds a folder's Dockerfile.

    The jars that its pom.xml names are in `jars/`, the tools of its go.mod in `bin/`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        context = Path(scratch) / folder.name
        shutil.copytree(folder, context, ignore=shutil.ignore_patterns("__pycache__"))
        pom = folder / "pom.xml"
        if pom.exists():
            shutil.copytree(fetch_jars(pom), context / "jars")
        if (folder / "go.mod").exists():
            _compile(folder, f"{context}/bin/", "tool")
        node.build(_tag(image), context, options)


def _compile(folder: Path, output: str, packages: str) -> None:
    """Builds what a folder has in Go; Go's own cache makes a second time a matter of seconds."""
    command = ["go", "build", "-trimpath", "-o", output, packages]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    subprocess.run(command, cwd=folder, env=environment, check=True)


def _tag(image: str) -> str:
    return image.removeprefix("localhost/")
