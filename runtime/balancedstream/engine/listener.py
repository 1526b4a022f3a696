"""Compiles and starts the listener in the driver's JVM, where no event costs a round trip."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

PACKAGE = "io.balancedstream"
SHIPPED = "PreloadTask"
"""The class that executors run, too."""


@dataclass(frozen=True)
class Listener:
    """The listener in the driver's JVM.

    Attributes:
        java: the `BatchListener`.
        unprepared: why no executor can load state ahead of a move; "" if they can.
    """

    java: Any
    unprepared: str


def start_listener(spark: SparkSession) -> Listener:
    """Compiles `BatchListener.java`, creates an object and registers it.

    Raises:
        py4j.protocol.Py4JError: this version of Spark has no such class or method.
    """
    context = spark.sparkContext._jsc.sc()
    session: Any = spark._jsparkSession
    jvm: Any = spark._jvm
    queries = session.sharedState().activeStreamingQueries()
    hosts = jvm.java.util.concurrent.ConcurrentHashMap()
    common = _compile(
        spark, ("StatefulOperators", "BatchStages", "RunningQueries", "Preparing")
    ).loader
    preparing, unprepared = None, ""
    try:
        preparing = _start_preparing(spark, common, queries, hosts)
    except Py4JError as error:
        unprepared = str(error).strip().splitlines()[0]
    listener = _create(
        spark,
        _compile(spark, ("Placements", "BatchListener"), common).loader,
        "BatchListener",
        find_coordinator(spark),
        context.schedulerBackend(),
        queries,
        hosts,
        preparing,
    )
    context.addSparkListener(listener)
    executors = context.statusStore().executorList(True)
    for i in range(executors.size()):
        summary = executors.apply(i)
        if summary.id() != "driver":
            host = summary.hostPort().rsplit(":", 1)[0]
            listener.addExecutor(summary.id(), host, summary.totalCores())
    return Listener(listener, unprepared)


def _start_preparing(spark: SparkSession, common: Any, queries: Any, hosts: Any) -> Any:
    """Compiles what loads state ahead, and offers executors the class that they run."""
    compiled = _compile(
        spark, (SHIPPED, "StateStores", "SideJobs", "Preparations"), common, keep=SHIPPED
    )
    jvm: Any = spark._jvm
    jar = Path(jvm.org.apache.spark.SparkFiles.getRootDirectory()) / "balancedstream.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for name, code in compiled.bytecodes.items():
            archive.writestr(f"{name.replace('.', '/')}.class", code)
    context = spark.sparkContext._jsc.sc()
    context.addJar(str(jar))
    jobs = _create(spark, compiled.loader, "SideJobs", context)
    return _create(spark, compiled.loader, "Preparations", queries, jobs, hosts)


def find_coordinator(spark: SparkSession) -> Any:
    """The driver's `StateStoreCoordinatorRef`, shared by all sessions of the application."""
    session: Any = spark._jsparkSession
    return session.sessionState().streamingQueryManager().stateStoreCoordinator()


def compile_class(
    spark: SparkSession, name: str, *arguments: Any, needs: Sequence[str] = ()
) -> Any:
    """Compiles a Java class of this folder with Spark's Janino; returns a new object of it.

    Args:
        spark: a running session.
        name: of the class, and of its file.
        arguments: of its only constructor.
        needs: other classes of this folder that it uses, in an order in which they compile.

    Raises:
        py4j.protocol.Py4JError: this version of Spark has no such class or method.
    """
    return _create(spark, _compile(spark, (*needs, name)).loader, name, *arguments)


@dataclass(frozen=True)
class _Compiled:
    loader: Any
    bytecodes: dict[str, bytes]


def _compile(
    spark: SparkSession, names: Sequence[str], parent: Any = None, *, keep: str = ""
) -> _Compiled:
    """Compiles classes of this folder, each with those before it; keeps the code of one."""
    jvm: Any = spark._jvm
    loader = parent or jvm.java.lang.Thread.currentThread().getContextClassLoader()
    bytecodes: dict[str, bytes] = {}
    for name in names:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(resources.files(__package__).joinpath(f"{name}.java").read_text("utf-8"))
        loader = compiler.getClassLoader()
        if name == keep:
            bytecodes = {key: bytes(code) for key, code in compiler.getBytecodes().items()}
    return _Compiled(loader, bytecodes)


def _create(spark: SparkSession, loader: Any, name: str, *arguments: Any) -> Any:
    """A new object of a compiled class, by its only constructor."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    java_class = loader.loadClass(f"{PACKAGE}.{name}")
    values = gateway.new_array(jvm.java.lang.Object, len(arguments))
    for position, argument in enumerate(arguments):
        values[position] = argument
    return java_class.getDeclaredConstructors()[0].newInstance(values)
