"""One query after the other in one session: the arms of a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from balancedstream.core.policy import Policy
from balancedstream.engine.events import BatchFinished
from balancedstream.record.history import History
from harness.benchmark import alternate, make_folder
from harness.measuring import DEFAULT_POLICY, MeasuringEngine, balancing, watching
from harness.rows import start_query

WorkloadT = TypeVar("WorkloadT")


class ArmRunner(Generic[WorkloadT]):
    """A session in which one query after the other is measured.

    Each benchmark derives its own, which says what the queries of its arms do.
    """

    def __init__(self, work: Path, spark: SparkSession, workload: WorkloadT) -> None:
        self._work = work
        self._spark = spark
        self._workload = workload
        self._engine = MeasuringEngine(spark)

    def under(self, workload: WorkloadT) -> Self:
        """The same runner with another load: a session has one engine."""
        other = copy(self)
        other._workload = workload
        return other

    def warm_up(self, states: DataFrame, batches: int) -> None:
        """The first query of a session is slow, whatever it does."""
        with watching(self._engine):
            self.run_query(states, "warm-up", batches)

    def run_in_turns(
        self,
        repetition: int,
        arms: Sequence[str],
        run_arm: Callable[[str], dict[str, Any]],
        policy: Policy = DEFAULT_POLICY,
    ) -> tuple[dict[str, dict[str, Any]], dict[str, History]]:
        """Runs the arms, `vanilla` with Spark alone and the others balanced.

        Returns:
            What `run_arm` measured in each arm, in the order in which they ran, and what was
            decided in each balanced one.
        """
        measured: dict[str, dict[str, Any]] = {}
        histories: dict[str, History] = {}
        for arm in alternate(repetition, *arms):
            if arm == "vanilla":
                with watching(self._engine):
                    measured[arm] = run_arm(arm)
            else:
                with balancing(self._engine, policy) as histories[arm]:
                    measured[arm] = run_arm(arm)
        return measured, histories

    def run_query(self, states: DataFrame, name: str, batches: int) -> list[BatchFinished]:
        """Runs a query from its beginning and gives its first batches.

        Raises:
            MeasurementError: the query failed, or takes too long.
        """
        query = self.start(states, name)
        try:
            return self._engine.await_batches(query, batches)[:batches]
        finally:
            query.stop()

    def start(self, states: DataFrame, name: str) -> StreamingQuery:
        """Starts a query from its beginning, and forgets the events of those before it."""
        self._engine.forget_events()
        return start_query(states, name, make_folder(self._work, name))
