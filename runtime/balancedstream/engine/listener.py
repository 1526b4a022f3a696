"""Starts the listener inside the driver's JVM that measures batches and keeps placements."""

from __future__ import annotations

from importlib import resources
from typing import Any

from pyspark.sql import SparkSession

CLASS_NAME = "io.balancedstream.BatchListener"


def start_listener(spark: SparkSession) -> Any:
    """Compiles `BatchListener.java` with Spark's own Janino and registers it; returns the object.

    Raises:
        py4j.protocol.Py4JError: this Spark lacks a class or a method that the listener needs.
    """
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    source = resources.files(__package__).joinpath("BatchListener.java").read_text("utf-8")
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    java_class = compiler.getClassLoader().loadClass(CLASS_NAME)
    context = spark.sparkContext._jsc.sc()
    values = gateway.new_array(jvm.java.lang.Object, 2)
    values[0] = find_coordinator(spark)
    values[1] = context.schedulerBackend()
    listener = java_class.getDeclaredConstructors()[0].newInstance(values)
    context.addSparkListener(listener)
    executors = context.statusStore().executorList(True)
    for i in range(executors.size()):
        summary = executors.apply(i)
        if summary.id() != "driver":
            host = summary.hostPort().rsplit(":", 1)[0]
            listener.addExecutor(summary.id(), host, summary.totalCores())
    return listener


def find_coordinator(spark: SparkSession) -> Any:
    """The driver's `StateStoreCoordinatorRef`, which is one for all sessions of the application."""
    session: Any = spark._jsparkSession
    return session.sessionState().streamingQueryManager().stateStoreCoordinator()
