"""Warms up executors that join a running query, before state is placed on them.

An executor's first tasks load classes, compile what they run, and start Python workers, which takes
seconds and once made whole batches long. A small job with one task a core does that instead, beside
the batches. As long as it runs, it holds the slots of that executor, so no task of a query comes in
between.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from balancedstream.engine.functions import list_functions, make_mapper, make_processor

log = logging.getLogger(__name__)

WARM_UP_S = 60.0
"""After this time an executor counts as it is: it may be busy with tasks of a batch. On half a core
a warm-up takes 10 seconds, and 20 if it starts Python."""

POOL = "balancedstream"
"""Under Spark's FAIR scheduler a job of this pool gets the next free slot."""

IN_ROCKSDB = (
    "spark.sql.streaming.stateStore.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
)
"""Spark's only store for `transformWithState`."""


class WarmUp:
    """Runs warm-ups, each from a thread of its own.

    Args:
        spark: a running session.
        rows: a `PinnedRows`.
        tell: called with each executor that is warm, or as warm as it gets; maybe twice.
    """

    def __init__(self, spark: SparkSession, rows: Any, tell: Callable[[str], None]) -> None:
        self._spark = spark
        self._context: Any = spark.sparkContext._jsc.sc()
        self._rows = rows
        self._tell = tell

    def begin(self, executor: str, cores: int, python_operators: str) -> None:
        """Begins to warm up an executor.

        Args:
            executor: id of one that has just joined.
            cores: how many tasks it runs at a time.
            python_operators: Spark's names of the operators that run Python there. Only a user's
                own process starts it: an agent may have another Python than executors.
        """
        name = f"balancedstream-warm-up-{executor}"
        arguments = (executor, cores, python_operators)
        threading.Thread(target=self._run, args=arguments, name=name, daemon=True).start()

    def _run(self, executor: str, cores: int, python_operators: str) -> None:
        group = f"balancedstream-warm-up-{executor}"
        limit = threading.Timer(WARM_UP_S, self._give_up, [executor, group])
        limit.daemon = True
        limit.start()
        try:
            what = f"balancedstream: warms up executor {executor}"
            self._context.setJobGroup(group, what, True)
            self._context.setLocalProperty("spark.scheduler.pool", POOL)
            self._run_job(executor, cores, python_operators)
        except Exception as error:
            # It left, or Spark ends, or it was too busy: nothing is lost but the time.
            log.info("executor %s was not warmed up: %s", executor, str(error).partition("\n")[0])
        finally:
            limit.cancel()
            self._tell(executor)

    def _give_up(self, executor: str, group: str) -> None:
        # The job may not have begun yet, and is not waited for.
        self._tell(executor)
        self._context.cancelJobGroup(group)

    def _run_job(self, executor: str, cores: int, python_operators: str) -> None:
        session = self._spark._jsparkSession.cloneSession()
        rows = self._rows.generate(session, executor, cores)
        if rows is None:
            return
        if not python_operators or not isinstance(self._spark, SparkSession):
            self._rows.compute(self._rows.countByKey(rows, cores), executor)
            return
        functions = list_functions(self._spark)
        frame = DataFrame(rows, SparkSession(self._spark.sparkContext, session))
        if "TransformWithStateIn" not in python_operators:
            loaded = frame.mapInPandas(make_mapper(functions), "k long")
            self._rows.compute(self._rows.countByKey(loaded._jdf, cores), executor)
            return
        # Spark has other workers for operators with state.
        session.conf().set(*IN_ROCKSDB)
        session.conf().set("spark.sql.shuffle.partitions", str(cores))
        keyed: Any = frame.groupBy("k")
        states = keyed.transformWithStateInPandas(
            make_processor(functions), "k long", "Append", "None"
        )
        self._rows.compute(states._jdf, executor)
