"""The self-test at start-up: what works with this version of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError

from balancedstream.engine.driver import DriverSession
from balancedstream.engine.jvm.listener import find_coordinator, start_listener
from balancedstream.engine.traits import (
    OLDEST,
    find_traits,
    is_tested,
    name_version,
    to_scala_list,
)
from balancedstream.version import TESTED_SPARK


@dataclass(frozen=True)
class Capabilities:
    """What works, and a sentence for each thing that does not.

    Attributes:
        placement: tasks can be measured and partitions placed.
        problems: sentences for the user; empty if everything works.
        listener: in the driver's JVM; None without `placement`, because nobody would read it.
        rows: makes data for a chosen executor, in the driver's JVM; None without `placement`.
        preparing: executors can load the state of a partition before it moves to them.
        waiting: has tasks that wait heed another wait, in the driver's JVM; None without
            `placement`.
        reading: what running queries read, in the driver's JVM; None without `placement`.
    """

    placement: bool
    problems: tuple[str, ...]
    listener: Any = None
    rows: Any = None
    preparing: bool = False
    waiting: Any = None
    reading: Any = None


def check_capabilities(spark: DriverSession, *, acts: bool = True) -> Capabilities:
    """Tries each private API once, with a query that does not exist.

    Who only watches (`acts` is false) gives executors nothing to load.
    """
    problems = []
    version = spark.version
    traits = find_traits(version)
    if traits.version < OLDEST:
        problem = (
            f"Spark {version} is too old for balancedstream. The job runs on without balancing; "
            f"no data is at risk. Use Spark {name_version(OLDEST)} or newer."
        )
        return Capabilities(placement=False, problems=(problem,))
    if not is_tested(version):
        problems.append(f"Spark {version} is not tested with balancedstream; {_list_tested()} are.")
    backend = spark.sparkContext._jsc.sc().schedulerBackend().getClass().getName()
    if backend.endswith("LocalSchedulerBackend"):
        problems.append(
            f"The master {spark.sparkContext.master} has a single executor inside the driver: "
            "there is nothing to balance. Use `balancedstream run --local MIN:MAX`, or a cluster."
        )
        return Capabilities(placement=False, problems=tuple(problems))
    listener = rows = waiting = reading = None
    placement = preparing = False
    try:
        placement = _try_placement(spark)
        if placement:
            loads_ahead = acts and traits.loads_ahead
            started = start_listener(spark, loads_ahead=loads_ahead)
            listener, rows = started.java, started.rows
            waiting, reading = started.waiting, started.reading
            preparing = loads_ahead and not started.unprepared
            problems.extend(traits.list_weaknesses())
            if started.unprepared:
                problems.append(
                    f"State cannot be loaded ahead of moves with Spark {version} "
                    f"({started.unprepared}): a moved partition's first batch waits for its state. "
                    "Results are right."
                )
    except Py4JError as error:
        placement = False
        first_line = str(error).strip().splitlines()[0]
        problems.append(
            f"Placement does not work with Spark {version} ({first_line}). "
            "The job runs on without balancing; no data is at risk. "
            f"Spark {_list_tested()} are tested."
        )
    return Capabilities(placement, tuple(problems), listener, rows, preparing, waiting, reading)


def _try_placement(spark: DriverSession) -> bool:
    """Whether Spark finds a state store where it was reported active."""
    jvm: Any = spark._jvm
    state = jvm.org.apache.spark.sql.execution.streaming.state
    run_id = jvm.java.util.UUID.randomUUID()
    probe = state.StateStoreProviderId(
        state.StateStoreId("file:/balancedstream-self-test", 0, 0, "default"), run_id
    )
    coordinator = find_coordinator(spark)
    coordinator.reportActiveInstance(probe, "host", "executor", to_scala_list(jvm))
    found = coordinator.getLocation(probe).toString()
    coordinator.deactivateInstances(run_id)
    return "executor_host_executor" in found


def _list_tested() -> str:
    return f"{', '.join(TESTED_SPARK[:-1])} and {TESTED_SPARK[-1]}"
