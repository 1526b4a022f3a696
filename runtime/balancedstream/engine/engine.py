"""One Spark application: where its state partitions run, and how they move."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext

from balancedstream.core.samples import SlotHolder
from balancedstream.engine.admission import bound_rows
from balancedstream.engine.capabilities import Capabilities, check_capabilities
from balancedstream.engine.driver import DriverSession, read_settings
from balancedstream.engine.events import (
    ApplicationEnded,
    BatchFinished,
    BatchPlanned,
    Event,
    EventsDropped,
    ExecutorAdded,
    ExecutorRemoved,
    QueryEnded,
    QueryIdle,
    QueryStarted,
    RowsWaiting,
    TaskFailed,
)
from balancedstream.engine.gone import GoneExecutors
from balancedstream.engine.jvm.listener import introduce_executors
from balancedstream.engine.measuring.batches import QueryRun
from balancedstream.engine.measuring.losses import find_loss
from balancedstream.engine.repartition.ends import QueryEnds
from balancedstream.engine.session import labels
from balancedstream.engine.session.limits import BOUND_MB, BOUNDED, find_memory_limits
from balancedstream.engine.session.settings import (
    LOCALITY_WAIT_IS_OURS,
    LOCALITY_WAIT_PROCESS,
    find_own_wait,
)
from balancedstream.engine.traits import find_traits
from balancedstream.engine.warming import WarmUp

log = logging.getLogger(__name__)

AS_SOON_AS_POSSIBLE = 2**62
"""A batch number that stands for "the next batch"."""

SPARKS_WAIT_MS = 3000
"""Of a task for its executor, where the user has set no `spark.locality.wait`."""

AS_ALL = -1
"""Tasks that read sources wait as long as all do."""

UNNAMED_STORE = "default"


class SparkEngine:
    """Measures the stateful operators of an application, places partitions, sets its size.

    Any thread may call any method, but only one at a time may call `wait`.

    Args:
        spark: a running session; all sessions of its application are included.
        acts: whether it will do more than measure; if not, executors get nothing from it.
    """

    def __init__(self, spark: DriverSession, *, acts: bool = True) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        self._context: Any = spark.sparkContext._jsc.sc()
        self._queries: dict[str, QueryRun] = {}
        self._labels = labels.of_process
        self._cores: dict[str, int] = {}
        self._draining: set[str] = set()
        self._cold: set[str] = set()
        self._warms_up = False
        self._requested: int | None = None
        self._wait_before: dict[str, str | None] = {}
        settings = read_settings(spark)
        self.own_wait = find_own_wait(settings)
        own = spark._jsparkSession.conf()
        of_session = ((key, own.get(key, None)) for key in (BOUNDED, BOUND_MB))
        self.memory_limits = find_memory_limits({**settings, **{k: v for k, v in of_session if v}})
        self.capabilities: Capabilities = check_capabilities(spark, acts=acts)
        self._listener: Any = self.capabilities.listener
        self._ends = QueryEnds(spark)
        self._gone = GoneExecutors(spark, acts=acts)
        self._warm_up = WarmUp(
            spark, self.capabilities.rows, self.capabilities.reading, self._tell_warm
        )

    def executors(self) -> dict[str, int]:
        """Live executors that take work, id to cores; without those that drain or are cold."""
        out = self._draining | self._cold
        return {e: c for e, c in self._cores.items() if e not in out}

    def wait(self, timeout_s: float) -> Event | None:
        """The next event; None if none came in time."""
        deadline_s = time.monotonic() + timeout_s
        while text := self._listener.next(max(0, int((deadline_s - time.monotonic()) * 1000))):
            event = self._read(json.loads(text))
            if event is not None:
                return event
        return None

    def place(
        self,
        query: str,
        operator: int,
        targets: Mapping[int, str],
        *,
        from_batch: int | None = None,
    ) -> None:
        """Asks for partitions of an operator to run on the given executors, until the next call.

        The placement is asserted at the end of every batch until the tasks run there: Spark's
        `StateStoreCoordinator` records that the store is active on the target. This is a hint; the
        result is right wherever a task runs. A new call replaces the operator's placement.

        Args:
            query: what it is called in events.
            operator: the operator's `StatefulOperator.id`.
            targets: partition to executor id; Spark chooses for partitions that are left out.
            from_batch: the first batch with the placement; None for the next one.
        """
        run = self._find(query)
        if run is None:
            return
        group = next((o for o in run.operators if o.id == operator), None)
        if group is None:
            return
        wanted = ",".join(targets.get(p, "") for p in range(group.partitions))
        next_batch = AS_SOON_AS_POSSIBLE if from_batch is None else run.last_batch + 1
        for operator_id in group.ids:
            self._listener.place(
                run.run_id,
                operator_id,
                run.state_roots[operator_id],
                self._store_names(run, operator_id),
                wanted,
                from_batch or 0,
                next_batch,
            )

    def set_warm_up(self, *, wanted: bool) -> None:
        """Sets whether executors that join a running query are warmed up first, from now on.

        Such a one is in `executors()`, and `ExecutorAdded` tells of it, when it is warm.
        """
        self._warms_up = wanted
        self.capabilities.reading.setWanted(wanted)

    def list_holders(self) -> tuple[SlotHolder, ...]:
        """The queries that hold slots now: in Real-Time Mode, or under continuous processing.

        Spark ends a query in Real-Time Mode if its tasks do not find enough free slots at the start
        of a batch. While one runs, executors are warmed up by nothing; state is loaded ahead, and
        executors are retired, only as far as the slots allow that all queries need.
        """
        return tuple(
            SlotHolder(self._labels.find(query_id, name), trigger, slots, held)
            for query_id, name, trigger, slots, held in json.loads(self._listener.listHolders())
        )

    def _runs_real_time(self) -> bool:
        return any(holder.trigger == "real-time" for holder in self.list_holders())

    def can_prepare(self) -> bool:
        """Whether executors can load the state of partitions before these move to them."""
        return self.capabilities.preparing

    def prepare(
        self,
        query: str,
        operator: int,
        targets: Mapping[int, str],
        *,
        partners: Mapping[int, int] | None = None,
        from_batch: int | None = None,
    ) -> None:
        """Has executors load the state of partitions that are to move to them, beside the batches.

        `place` holds such a partition back until its target has the state, or has failed to get it.
        A new call replaces the operator's preparations.

        Args:
            query: what it is called in events.
            operator: the operator's `StatefulOperator.id`.
            targets: partition to executor id.
            partners: partition to the one that moves in the same batch, unless a load fails; both
                ways. None if each moves for itself.
            from_batch: the first batch with the placement; None for any.
        """
        run = self._find(query)
        group = next((o for o in run.operators if o.id == operator), None) if run else None
        if run is None or group is None:
            return
        self._listener.prepare(
            run.run_id,
            ",".join(str(i) for i in group.ids),
            ",".join(targets.get(p, "") for p in range(group.partitions)),
            ",".join(str((partners or {}).get(p, "")) for p in range(group.partitions)),
            from_batch or 0,
        )

    def is_between_batches(self, query: str) -> bool:
        """Whether no batch of a query runs, so that a placement holds from the next one on."""
        run = self._find(query)
        return run is not None and not self._listener.isRunning(run.run_id)

    def set_executor_count(self, count: int) -> bool:
        """Asks the cluster manager for `count` executors in total; never stops a running one.

        Returns:
            False if the cluster manager refused the request.
        """
        nothing = self._jvm.scala.Predef.Map().empty()
        self._requested = count
        return bool(self._context.requestTotalExecutors(count, 0, nothing))

    def is_connection_lost(self, error: Exception) -> bool:
        """Whether an error means that the application ended."""
        return is_connection_lost(error) or self._context.isStopped()

    def drain(self, executor: str) -> None:
        """Takes an executor out of `executors()`, so that nothing new is placed on it."""
        self._draining.add(executor)

    def remove_executor(self, executor: str) -> None:
        """Retires an executor through Spark's decommissioning, between two batches.

        It takes no new task, copies its shuffle blocks to its peers and leaves, so nothing is
        computed again. Place its partitions elsewhere first. If the batches of several queries
        leave no gap, it leaves after a few batches.
        """
        # The number is lowered here, and not by Spark when the executor leaves: that would undo
        # what is asked for meanwhile, and count a number that was never requested as 0.
        requested = len(self._cores) if self._requested is None else self._requested
        self.set_executor_count(max(0, requested - 1))
        self.drain(executor)
        self._listener.retire(executor)

    def set_locality_wait_s(self, wait_s: float, *, at_once: bool = False) -> None:
        """Sets how long a task waits for the executor with its state, from the next stage on.

        Tasks that read a source have none, and wait as before; see `WaitingTasks.java`.

        Spark reads `spark.locality.wait.process` for each stage, and again for running ones when an
        executor joins or is lost (`TaskSetManager.recomputeLocality`). A wait that the user has set
        stays.

        Args:
            wait_s: seconds.
            at_once: also for tasks that wait already.
        """
        if self.own_wait:
            return
        conf = self._context.conf()
        if not self._wait_before:
            keys = LOCALITY_WAIT_PROCESS, LOCALITY_WAIT_IS_OURS
            self._wait_before = {k: conf.get(k) if conf.contains(k) else None for k in keys}
            self.capabilities.waiting.setReadersWait(SPARKS_WAIT_MS)
        conf.set(LOCALITY_WAIT_IS_OURS, "true")
        conf.set(LOCALITY_WAIT_PROCESS, f"{int(wait_s * 1000)}ms")
        if at_once:
            self.capabilities.waiting.reconsider()

    def watch_sources(self, *, wanted: bool) -> None:
        """Sets whether `BatchPlanned` and `RowsWaiting` come, for which sources are asked."""
        self._listener.watchSources(wanted)

    def bound(self, query: str, rows: float | None) -> str:
        """Bounds the rows of the next batches of a query, below the limits that the user has set.

        A bound decides where batches are cut, and nothing else. It ends by itself when three
        batches have ended since it was set, and with `close`. Files are bounded by bytes, and what
        a row has of them is measured with `watch_sources` only.

        Args:
            query: what it is called in events.
            rows: that a batch may read; None for the user's own limits alone.

        Returns:
            Why none of its sources takes a bound; "" if one does.
        """
        run = self._find(query)
        if run is None:
            return "the query does not run"
        if rows is None:
            self._listener.giveLimitsBack(run.run_id)
            return ""
        bytes_too = find_traits(self._spark.version).limits_bytes
        return bound_rows(self._listener, run.run_id, run.backlog, rows, bytes_too=bytes_too)

    def find_checkpoints(self) -> tuple[str, ...]:
        """Paths of the checkpoints whose state could be written anew, for other partitions.

        None before every query has committed a batch.

        Raises:
            RepartitionError: that would be refused; the message says why.
            UnsupportedSparkError: this Spark cannot.
        """
        return self._ends.find_checkpoints()

    def end_queries(self) -> bool:
        """Lets each query end after the batch that it is at; returns whether none runs any more.

        To be called again and again, with a pause: a query that waits for its next trigger is
        interrupted.
        """
        return self._ends.end()

    def close(self) -> None:
        """Ends measuring and placing for good; tasks wait for their executor as they did before.

        The queries run on where their partitions are. Spark first hands the listener what has
        happened so far, and this waits for it.
        """
        self._context.removeSparkListener(self._listener)
        self._listener.close()
        self.give_locality_wait_back()

    def give_locality_wait_back(self) -> None:
        """Tasks wait for their executor as they did before `set_locality_wait_s`, at once."""
        if not self._wait_before:
            return
        conf = self._context.conf()
        for key, value in self._wait_before.items():
            if value is None:
                conf.remove(key)
            else:
                conf.set(key, value)
        self._wait_before = {}
        self.capabilities.waiting.setReadersWait(AS_ALL)

    def _find(self, query: str) -> QueryRun | None:
        return next((q for q in self._queries.values() if q.label == query), None)

    def _store_names(self, run: QueryRun, operator: int) -> str:
        """Comma-separated names of the state stores in each partition of an operator.

        A join has several stores a partition, each in its own folder (Spark's
        `StateStoreId.storeCheckpointLocation`); any other operator has the unnamed one.
        """
        if operator not in run.stores:
            path = self._jvm.org.apache.hadoop.fs.Path(f"{run.state_roots[operator]}/{operator}/0")
            files = path.getFileSystem(self._context.hadoopConfiguration()).listStatus(path)
            names = sorted(f.getPath().getName() for f in files if f.isDirectory())
            named = [n for n in names if not n.startswith("_") and n != "SSTs"]
            run.stores[operator] = ",".join(named) or UNNAMED_STORE
        return run.stores[operator]

    def _read(self, event: dict[str, Any]) -> Event | None:
        """What the listener reported; None if it does not matter, or cannot be read."""
        try:
            return self._parse(event)
        except Exception as error:
            if self.is_connection_lost(error):
                raise
            run = self._queries.get(event.get("run", ""))
            if run is None or not run.is_odd:
                whose = run.label if run else "the application"
                log.warning(
                    "%s: %s cannot be read, and is left out: balancing goes on without it (%r)",
                    whose,
                    event["event"],
                    error,
                )
            if run is not None:
                run.is_odd = True
            return None

    def _parse(self, event: dict[str, Any]) -> Event | None:
        match event["event"]:
            case "batch_finished":
                return self._finish_batch(event)
            case "batch_planned" | "rows_waiting" | "rows_unknown":
                return self._look_ahead(event)
            case "query_started":
                return self._start_query(event)
            case "query_terminated":
                run = self._queries.pop(event["run"], None)
                return QueryEnded(run.label if run else event["run"], event["error"])
            case "query_idle":
                run = self._queries.get(event["run"])
                return QueryIdle(run.label if run else event["run"])
            case "executor_added" | "executor_warm" | "executor_removed":
                return self._note_executor(event)
            case "task_failed":
                run = self._queries.get(event["run"])
                label = run.label if run else event["run"]
                return TaskFailed(label, event["executor"])
            case "events_dropped":
                return EventsDropped(event["count"])
            case _:
                return ApplicationEnded()

    def _note_executor(self, event: dict[str, Any]) -> Event | None:
        was_warming = bool(self._cold)
        noted = self._note_change(event)
        if bool(self._cold) != was_warming:
            self.capabilities.waiting.setWarming(bool(self._cold))
        return noted

    def _note_change(self, event: dict[str, Any]) -> Event | None:
        executor = event["executor"]
        match event["event"]:
            case "executor_added":
                self._cores[executor] = event["cores"]
                if self._begin_warm_up(executor):
                    return None
                return ExecutorAdded(executor, event["cores"])
            case "executor_warm":
                if executor not in self._cold:
                    return None
                self._cold.discard(executor)
                return ExecutorAdded(executor, self._cores[executor])
            case _:
                self._cores.pop(executor, None)
                self._draining.discard(executor)
                self._cold.discard(executor)
                self._gone.watch()
                return ExecutorRemoved(executor, event["reason"], find_loss(event["reason"]))

    def _start_query(self, event: dict[str, Any]) -> QueryStarted:
        label = self._labels.find(event["id"], event["name"])
        # Spark may tell of the end of the run before only now.
        for run_id in [r for r, query in self._queries.items() if query.label == label]:
            del self._queries[run_id]
        self._queries[event["run"]] = QueryRun.begin(label, event["run"])
        if self._runs_real_time():
            self._warm_up.give_up()
        return QueryStarted(label, named=bool(event["name"]), trigger=event["trigger"])

    def _begin_warm_up(self, executor: str) -> bool:
        """Begins to warm up an executor, if a query runs that its first tasks would delay."""
        if not self._warms_up or all(q.last_batch < 0 for q in self._queries.values()):
            return False
        if self._runs_real_time():
            return False
        self._cold.add(executor)
        self._warm_up.begin(executor, self._cores[executor])
        return True

    def _tell_warm(self, executor: str) -> None:
        self._listener.tellWarm(executor)

    def _look_ahead(self, event: dict[str, Any]) -> BatchPlanned | RowsWaiting | None:
        run = self._queries.get(event["run"])
        # Of a query that began before, the first batch tells.
        if run is None:
            return None
        if (cause := event.get("cause")) is not None and cause not in run.causes:
            run.causes.add(cause)
            log.warning("%s: what waits at its sources is not seen early: %s", run.label, cause)
        match event["event"]:
            case "batch_planned":
                return run.plan_batch(event)
            case "rows_waiting":
                return run.ask_sources(event)
        return None

    def _finish_batch(self, event: dict[str, Any]) -> BatchFinished:
        if not event["knows_all_executors"]:
            introduce_executors(self._spark, self._listener)
        self._gone.forget()
        progress = event["progress"]
        label = self._labels.find(progress["id"], progress["name"])
        run = self._queries.get(event["run"])
        if run is None:
            run = self._queries[event["run"]] = QueryRun.begin(label, event["run"])
        return run.finish_batch(event)


def is_connection_lost(error: BaseException) -> bool:
    """Whether a call failed because the JVM ended, as after `spark.stop()`."""
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return True
    # If the JVM ends during a call, py4j raises its plain error (`GatewayClient.send_command`), as
    # it does for a missing class.
    return type(error) is Py4JError and not _is_jvm_alive()


def _is_jvm_alive() -> bool:
    gateway: Any = SparkContext._gateway
    try:
        gateway.jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        return False
    return True
