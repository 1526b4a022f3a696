"""Ends the queries of an application between two batches, so that their state can be written anew.

`StreamingQuery.stop()` interrupts a batch, and a batch that was begun and is not committed must run
again before anything else. Spark has no other call; but each batch begins only while the state of
its `StreamExecution` is not `TERMINATED`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from balancedstream.core.repartition import Checkpoint, needs_repartition
from balancedstream.engine.driver import DriverSession, find_java_class
from balancedstream.engine.repartition.files import find_checkpoint, read_checkpoint
from balancedstream.engine.traits import check_repartition
from balancedstream.errors import RepartitionError

TRIES = 3
"""Whoever runs the query renames and removes files meanwhile."""


class QueryEnds:
    """Ends the queries of one application.

    Args:
        spark: one of its sessions.
    """

    def __init__(self, spark: DriverSession) -> None:
        self._spark = spark
        # Runs of queries that begin no batch any more.
        self._ending: set[str] = set()

    def find_checkpoints(self) -> tuple[str, ...]:
        """The checkpoints whose state a repartition would write anew.

        A query that has begun no batch, as nothing has come yet, has no state: it takes the number
        with which it starts next.

        Returns:
            None of them before every query that has begun a batch has committed one.

        Raises:
            RepartitionError: it would be refused; the message says why.
            UnsupportedSparkError: this Spark cannot.
        """
        check_repartition(self._spark.version)
        locations = sorted(str(query.resolvedCheckpointRoot()) for query in self._list_queries())
        paths, waiting = [], False
        for location in locations:
            path = find_checkpoint(location)
            found = _read(path)
            if found.planned is None:
                waiting = True
            elif found.committed is None:
                return ()
            elif needs_repartition(found):
                paths.append(str(path))
        if locations and not paths and not waiting:
            message = "no query of this stream has state. Nothing was changed."
            raise RepartitionError(message)
        return tuple(paths)

    def end(self) -> bool:
        """Lets each query end after the batch that it is at; returns whether none runs any more.

        To be called again and again, with a pause.
        """
        queries = self._list_queries()
        for query in queries:
            run = str(query.runId())
            if run not in self._ending:
                query.state().set(self._find_terminated(query))
                self._ending.add(run)
            elif _awaits_trigger(query):
                _interrupt(query)
        return not queries

    def _list_queries(self) -> list[Any]:
        java: Any = self._spark._jsparkSession
        return list(java.sharedState().activeStreamingQueries().values())

    def _find_terminated(self, query: Any) -> Any:
        """Scala's object `TERMINATED`, of the package of this Spark."""
        package = query.state().get().getClass().getPackage().getName()
        terminated = find_java_class(self._spark._jvm, f"{package}.TERMINATED$")
        return terminated.getField("MODULE$").get(None)


def _read(path: Path) -> Checkpoint:
    for _ in range(TRIES - 1):
        try:
            return read_checkpoint(path)
        except RepartitionError:
            pass
    return read_checkpoint(path)


def _awaits_trigger(query: Any) -> bool:
    """Whether a query sleeps until its next trigger, after which it looks at its state.

    Its status does not tell: Spark looks at the state before it says that a batch is under way.
    """
    frames = query.queryExecutionThread().getStackTrace()
    return any(frame.getMethodName() == "waitTillTime" for frame in frames)


def _interrupt(query: Any) -> None:
    """Wakes a query that waits for its next trigger, and has it end."""
    try:
        query.stop()
    except (Py4JError, PySparkException):
        # It does not end in time; the next call looks again.
        return
