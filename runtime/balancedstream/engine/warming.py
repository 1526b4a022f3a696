"""Warms up executors that join a running query, before state is placed on them.

An executor's first tasks load classes, compile what they run, and start Python workers, which takes
seconds and once made whole batches long. A small job with one task a core does that instead, beside
the batches. Its tasks hold the slots of that executor, so few tasks of a query come in between.
Then it reads a few rows again that queries have read, up to their first shuffle.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from balancedstream.engine.driver import DriverSession
from balancedstream.engine.functions import list_functions, make_loader, make_processor
from balancedstream.engine.session.settings import PROVIDER, ROCKSDB, SHUFFLE_PARTITIONS

log = logging.getLogger(__name__)

WARM_UP_S = 60.0
"""After this time an executor counts as it is: it may be busy with tasks of a batch. On half a core
a warm-up takes about 10 s, and 35 s if it keeps state in Python."""

READ_S = 20.0
"""Of that, for reading what queries read, of which a partition may be large. On 0.4 of a core it
takes 10 s."""

CANCEL_AGAIN_S = 0.5
"""After this time a warm-up that has not ended is cancelled once more."""

POOL = "balancedstream"
"""Under Spark's FAIR scheduler a job of this pool gets the next free slot."""

SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    PROVIDER: ROCKSDB,
}
"""Of a warm-up's own session: its tasks are not merged, and `transformWithState` needs RocksDB."""


class WarmUp:
    """Runs warm-ups, each from a thread of its own.

    Args:
        spark: a running session.
        rows: a `PinnedRows`.
        reading: a `ReadingStages`.
        tell: called with each executor that is warm, or as warm as it gets; maybe twice.
    """

    def __init__(
        self, spark: DriverSession, rows: Any, reading: Any, tell: Callable[[str], None]
    ) -> None:
        self._spark = spark
        self._context: Any = spark.sparkContext._jsc.sc()
        self._rows = rows
        self._reading = reading
        self._tell = tell
        self._under_way: dict[str, Callable[[], None]] = {}  # by executor, what ends it

    def begin(self, executor: str, cores: int) -> None:
        """Begins to warm up an executor."""
        group = f"balancedstream-warm-up-{executor}"
        over, ended = threading.Event(), threading.Event()
        # Before its thread runs: a query in Real-Time Mode may begin at any time.
        self._under_way[executor] = partial(self._end, executor, group, over, ended)
        arguments = (executor, cores, group, over, ended)
        thread = threading.Thread(target=self._run, args=arguments, name=group, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system gives no more threads
            del self._under_way[executor]
            log.info("executor %s was not warmed up: %s", executor, error)
            self._tell(executor)

    def give_up(self) -> None:
        """Ends all warm-ups that are under way; their executors count as they are."""
        for end in list(self._under_way.values()):
            threading.Thread(target=end, name="balancedstream-no-warm-up", daemon=True).start()

    def _run(
        self,
        executor: str,
        cores: int,
        group: str,
        over: threading.Event,
        ended: threading.Event,
    ) -> None:
        limit = threading.Timer(WARM_UP_S, self._under_way[executor])
        limit.daemon = True
        try:
            limit.start()
            what = f"balancedstream: warms up executor {executor}"
            self._context.setJobGroup(group, what, True)
            self._context.setLocalProperty("spark.scheduler.pool", POOL)
            self._run_jobs(executor, cores, over)
            self._read(executor, over)
        except Exception as error:
            # It left, or Spark ends, or it was too busy: nothing is lost but the time.
            log.info("executor %s was not warmed up: %s", executor, str(error).partition("\n")[0])
        finally:
            limit.cancel()
            ended.set()
            self._under_way.pop(executor, None)
            self._tell(executor)

    def _end(
        self, executor: str, group: str, over: threading.Event, ended: threading.Event
    ) -> None:
        # The job may not have begun yet, and is not waited for.
        over.set()
        self._tell(executor)
        self._context.cancelJobGroup(group)
        # Of a job that was just being submitted Spark did not know the group yet.
        while not ended.wait(CANCEL_AGAIN_S):
            self._context.cancelJobGroup(group)

    def _run_jobs(self, executor: str, cores: int, over: threading.Event) -> None:
        """Runs a job with the Python that queries run; without it if there is none, or it fails."""
        session = self._spark._jsparkSession.cloneSession()
        for name, value in SETTINGS.items():
            session.conf().set(name, value)
        session.conf().set(SHUFFLE_PARTITIONS, str(cores))
        rows = self._rows.generate(session, executor, cores)
        if rows is None:
            return
        if isinstance(self._spark, SparkSession):
            # An agent may have another Python than executors.
            try:
                passed = self._pass_through_python(rows)
                if passed is not None:
                    self._count(passed, executor, over)
                    return
            except Exception as error:
                if over.is_set():
                    raise
                log.warning(
                    "executor %s joins without having run Python, so its first batch may take "
                    "longer: %s",
                    executor,
                    str(error).partition("\n")[0],
                )
        self._count(self._rows.countByKey(rows), executor, over)

    def _read(self, executor: str, over: threading.Event) -> None:
        """Reads on an executor what queries read; what takes longer is left to their tasks."""
        limit = threading.Timer(READ_S, self._under_way[executor])
        limit.daemon = True
        limit.start()
        try:
            for plan in self._reading.list():
                if over.is_set():
                    return
                try:
                    self._rows.take(plan, executor)
                except Py4JError as error:
                    what = str(error).partition("\n")[0]
                    log.info("executor %s has not read what a query reads: %s", executor, what)
        finally:
            limit.cancel()

    def _count(self, rows: Any, executor: str, over: threading.Event) -> None:
        """Counts rows on an executor, if there is still time."""
        planned = rows.queryExecution().toRdd()
        if not over.is_set():
            self._rows.count(planned, executor)

    def _pass_through_python(self, rows: Any) -> Any:
        """Rows that pass the Python workers that running queries have; None if they have none.

        They do so after a shuffle: only there does Spark heed the session's settings, by which it
        tells workers apart.
        """
        functions = list_functions(self._spark)
        if functions.of_states:
            keyed: Any = DataFrame(rows, self._spark).groupBy("k")
            passed: DataFrame = keyed.transformWithStateInPandas(
                make_processor(functions.of_states), "k long", "Append", "None"
            )
        elif functions.others:
            passed = DataFrame(self._rows.countByKey(rows), self._spark).select("k")
        else:
            return None
        load = make_loader(functions.others)
        if functions.in_frames:
            passed = passed.mapInPandas(load, "k long")
        elif functions.others:
            passed = passed.select(F.udf(load, "long", useArrow=functions.in_arrow)("k"))
        return passed._jdf
