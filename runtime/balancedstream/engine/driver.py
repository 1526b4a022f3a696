"""Reaches a driver from another process than its own; and a plugin from the driver's own process.

The plugin is the JVM's part (`spark-plugin/`). It starts a Py4J gateway, and the agent beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway

from balancedstream.errors import InvalidInputError

PREFIX = "spark.balancedstream."
PLUGIN = f"{PREFIX}plugin"
"""The version of the plugin that the application runs with; the plugin sets it."""


class DriverContext(Protocol):
    """As much of a `SparkContext` as the engine looks at."""

    @property
    def appName(self) -> str:  # noqa: N802 - Spark's name
        """The application's name."""

    @property
    def master(self) -> str:
        """Where its executors come from."""

    @property
    def _gateway(self) -> Any: ...

    @property
    def _jsc(self) -> Any: ...


class DriverSession(Protocol):
    """As much of a `SparkSession` as the engine looks at: an agent has no more of its driver's."""

    @property
    def version(self) -> str:
        """Of Spark."""

    @property
    def sparkContext(self) -> DriverContext:  # noqa: N802 - Spark's name
        """The application's context."""

    @property
    def _jvm(self) -> Any: ...

    @property
    def _jsparkSession(self) -> Any: ...  # noqa: N802 - Spark's name


@dataclass(frozen=True)
class _Context:
    """The context of a driver in another process."""

    appName: str  # noqa: N815 - Spark's name
    master: str
    _gateway: Any
    _jsc: Any


@dataclass(frozen=True)
class _Session:
    """The session of a driver in another process.

    A real one would bind the agent to the driver's version of PySpark, and register an accumulator.
    """

    version: str
    sparkContext: _Context  # noqa: N815 - Spark's name
    _jvm: Any
    _jsparkSession: Any  # noqa: N815 - Spark's name


def connect_driver() -> DriverSession:
    """The application of the driver whose plugin started this process.

    Returns:
        A stand-in, good for `SparkEngine` and `attach` only.

    Raises:
        InvalidInputError: the application has no default session.
    """
    gateway = launch_gateway()
    # `is_connection_lost` asks PySpark's gateway whether the JVM lives.
    SparkContext._gateway = gateway
    jvm: Any = gateway.jvm
    default = jvm.org.apache.spark.sql.SparkSession.getDefaultSession()
    if default.isEmpty():
        message = (
            "the application has no default session (SparkSession.setDefaultSession), "
            "which knows the running queries"
        )
        raise InvalidInputError(message)
    session = default.get()
    context = session.sparkContext()
    java = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(context)
    return _Session(
        context.version(),
        _Context(context.appName(), context.master(), gateway, java),
        jvm,
        session,
    )


def find_java_class(jvm: Any, name: str) -> Any:
    """A class by its name, also one of a jar that the application has added."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.java.lang.Class.forName(name, True, loader)


def read_settings(spark: DriverSession) -> Mapping[str, str]:
    """The application's own Spark settings, as they are now."""
    entries = spark.sparkContext._jsc.sc().conf().getAll()
    return {entry._1(): entry._2() for entry in entries}


def join_plugin(spark: DriverSession) -> None:
    """Tells the plugin that its agent, which is this process, has begun: it has an end, too."""
    if isinstance(spark, _Session):
        jvm: Any = spark._jvm
        jvm.io.balancedstream.Plugin.join()


def stand_plugin_down(spark: DriverSession, reason: str) -> None:
    """Ends the plugin's agent for good, if there is one; when this returns, nothing of it is left.

    Args:
        spark: a session of the user's process; the agent's own is left alone.
        reason: why, for a person.
    """
    if isinstance(spark, _Session):
        return
    if spark.sparkContext._jsc.sc().conf().contains(PLUGIN):
        jvm: Any = spark._jvm
        jvm.io.balancedstream.Plugin.standDown(reason)
