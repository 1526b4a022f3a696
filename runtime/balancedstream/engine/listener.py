"""Compiles and starts the listener in the driver's JVM, where no event costs a round trip."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from importlib import resources
from typing import Any

from pyspark.sql import SparkSession

PACKAGE = "io.balancedstream"

_loaders: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
"""By JVM: class name to its loader, the oldest first; each loader has the one before as its parent.

A class is compiled once: py4j remembers methods by the name of their class, and would call those of
the first one on an object of a second one, as after a second `attach`."""


def start_listener(spark: SparkSession) -> Any:
    """Compiles `BatchListener.java`, creates an object and registers it.

    Raises:
        py4j.protocol.Py4JError: this version of Spark has no such class or method.
    """
    context = spark.sparkContext._jsc.sc()
    session: Any = spark._jsparkSession
    listener = compile_class(
        spark,
        "BatchListener",
        find_coordinator(spark),
        context.schedulerBackend(),
        session.sharedState().activeStreamingQueries(),
        needs=("EventQueue", "StatefulOperators", "BatchStages", "RunningQueries"),
    )
    context.addSparkListener(listener)
    introduce_executors(spark, listener)
    return listener


def introduce_executors(spark: SparkSession, listener: Any) -> None:
    """Tells the listener of executors whose joining it did not hear of."""
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    for i in range(executors.size()):
        summary = executors.apply(i)
        if summary.id() != "driver":
            host = summary.hostPort().rsplit(":", 1)[0]
            listener.addExecutor(summary.id(), host, summary.totalCores())


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
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    loaders = _loaders.setdefault(gateway, {})
    for each in (*needs, name):
        if each in loaders:
            continue
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        newest = next(reversed(loaders.values()), None)
        compiler.setParentClassLoader(
            newest or jvm.java.lang.Thread.currentThread().getContextClassLoader()
        )
        compiler.cook(resources.files(__package__).joinpath(f"{each}.java").read_text("utf-8"))
        loaders[each] = compiler.getClassLoader()
    java_class = loaders[name].loadClass(f"{PACKAGE}.{name}")
    values = gateway.new_array(jvm.java.lang.Object, len(arguments))
    for position, argument in enumerate(arguments):
        values[position] = argument
    return java_class.getDeclaredConstructors()[0].newInstance(values)
