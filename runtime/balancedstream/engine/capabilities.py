"""The self-test at start-up: what can be done with this Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from balancedstream.engine.listener import find_coordinator, start_listener

TESTED_VERSIONS = ("4.2", "4.3")


@dataclass(frozen=True)
class Capabilities:
    """What was found to work, and a sentence for each thing that was not.

    Attributes:
        placement: tasks can be measured and partitions placed.
        problems: sentences for the user, empty when all is well.
        listener: the listener in the driver's JVM, None where there is none.
    """

    placement: bool
    problems: tuple[str, ...]
    listener: Any = None


def check_capabilities(spark: SparkSession) -> Capabilities:
    """Tries each private API once, on a query that does not exist, and reports what it found."""
    problems = []
    version = spark.version
    if ".".join(version.split(".")[:2]) not in TESTED_VERSIONS:
        tested = " and ".join(TESTED_VERSIONS)
        problems.append(f"Spark {version} was never tested with balancedstream; {tested} were.")
    listener = None
    placement = False
    try:
        listener = start_listener(spark)
        placement = _try_placement(spark)
    except Py4JError as error:
        first_line = str(error).strip().splitlines()[0]
        problems.append(
            f"Placement is not possible with Spark {version} ({first_line}). "
            "The job runs on, unbalanced; no data is at risk. "
            f"Use PySpark {' or '.join(TESTED_VERSIONS)} to have it balanced."
        )
    backend = spark.sparkContext._jsc.sc().schedulerBackend().getClass().getName()
    if backend.endswith("LocalSchedulerBackend"):
        placement = False
        problems.append(
            f"The master {spark.sparkContext.master} has a single executor inside the driver: "
            "there is nothing to balance. Use `--local MIN:MAX`, or a cluster."
        )
    return Capabilities(placement, tuple(problems), listener)


def _try_placement(spark: SparkSession) -> bool:
    """Whether a store that is reported active somewhere is found there."""
    jvm: Any = spark._jvm
    state = jvm.org.apache.spark.sql.execution.streaming.state
    run_id = jvm.java.util.UUID.randomUUID()
    probe = state.StateStoreProviderId(
        state.StateStoreId("file:/balancedstream-self-test", 0, 0, "default"), run_id
    )
    coordinator = find_coordinator(spark)
    none = jvm.scala.jdk.javaapi.CollectionConverters.asScala(jvm.java.util.ArrayList()).toSeq()
    coordinator.reportActiveInstance(probe, "host", "executor", none)
    found = coordinator.getLocation(probe).toString()
    coordinator.deactivateInstances(run_id)
    return "executor_host_executor" in found
