"""The loop beside the job: reads what the engine reports, and gets plans made and realized.

Embedded, `deciding` makes the plans. In Kubernetes the operator makes them and `following` fetches
them. One thread owns everything here. It never raises into the user's job: whatever ends the loop,
the queries run on where their partitions are.
"""

from __future__ import annotations

import logging
import math
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue

from balancedstream.core.balance.imbalance import measure_imbalance
from balancedstream.core.memory.history import FinishedReads, MemoryHistory
from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy
from balancedstream.core.samples import ShuffleRecord, SlotHolder
from balancedstream.core.scaling.slots import list_unknown
from balancedstream.engine.causes import name_cause
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
from balancedstream.loop.deciding import Decider
from balancedstream.loop.following import Follower
from balancedstream.loop.ports import Engine, FinishedBatch, PlanChannel, Planner
from balancedstream.loop.realizing import Realizer
from balancedstream.loop.stopping import Stopping
from balancedstream.record.journal import Journal
from balancedstream.record.records import BatchRecord, OperatorBatchLoad
from balancedstream.shuffling.collecting import watch

log = logging.getLogger(__name__)

POLL_S = 0.5
"""The loop checks at least this often whether it is to stop."""

MAX_FAILURES = 5
"""After so many calls in a row that failed, the engine works no more. An event that cannot be
handled does not count: what is odd about one query must not end the balancing of others."""

PAUSE_S = 0.5
"""Before the call after the first that failed, and twice as long after each that follows: what
makes calls fail for a moment must not end balancing."""

FIRST_LOCALITY_WAIT_S = 10.0
MIN_LOCALITY_WAIT_S = 3.0
MAX_LOCALITY_WAIT_S = 60.0
LOCALITY_WAIT_BATCHES = 3
RECENT_BATCHES = 5
"""A task waits as long as tasks run in three usual batches for the executor that holds its state: a
busy executor is worth the wait, one that died in the middle of a batch is not. Usual is the median
of the recent batches; their maximum would be the first batch, or one that lost an executor. Time
in which no task ran does not count: tasks may have waited then, and would wait longer for it.

The wait is Spark's only one, so stateless tasks that prefer an executor wait as long as that (those
of Kafka's partitions since Spark 4.1, and of cached data). Spark reads it when it makes a stage's
`TaskSetManager`, before any listener hears of the stage, and neither a resource profile nor a local
property has one: they cannot be spared. A stage without preferences never waits."""

END_S = 2.0
"""After its time to stop, the loop ends with the event that it is at."""


_UNNAMED = (
    "query {} has no name: unless it sets its own checkpointLocation, it starts again without its "
    "state each time the driver starts. Give it a name with queryName(...)."
)


_UNKNOWN = (
    "a query in Real-Time Mode runs ({}): nothing is moved or scaled until its next batch has "
    "begun, because only then it is known how many slots it needs at once"
)

_HOLDERS = {
    "real-time": (
        "it runs in Real-Time Mode, where all tasks of a batch run at once: it is not measured or "
        "moved, and other queries are balanced in the slots that it leaves"
    ),
    "continuous": (
        "it runs under continuous processing, which has no batches: it is not measured or moved"
    ),
}


class Controller:
    """Keeps every query of a Spark application balanced, from a thread of its own.

    Args:
        engine: the application.
        policy: all knobs.
        journal: records what happens.
        record: called with each observation that led to a plan, for `explain`.
        plans: brings plans from elsewhere; None to make them here.
        baseline_batches: batches to measure of each query before the first plan made here.
        clock: seconds since the Unix epoch.
    """

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        journal: Journal,
        *,
        record: Callable[[Observation], None] | None = None,
        plans: PlanChannel | None = None,
        baseline_batches: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._policy = policy
        self._journal = journal
        self._realizer = Realizer(engine, journal)
        self._planner: Planner = (
            Follower(self._realizer, plans, journal, Stopping(engine, plans, journal))
            if plans
            else Decider(self._realizer, policy, journal, record, baseline_batches)
        )
        # Where nothing may be changed, the partitions of a lost executor are Spark's to place.
        self._acts = "auto" in {policy.balance.mode, policy.scaling.mode}
        self._in_cluster = plans is not None
        self._clock = clock
        self._ran_s: dict[str, deque[float]] = {}
        self._memory = MemoryHistory()
        self._seen_queries: set[str] = set()
        self._warned: set[str] = set()
        self._merged: set[tuple[str, str]] = set()
        self._unsound: set[str] = set()
        self._unhandled: set[tuple[str, type[Exception]]] = set()
        # Filled by Spark's own thread, which must not wait for this one.
        self._shuffled: SimpleQueue[ShuffleRecord] = SimpleQueue()
        self._is_shared = False
        self._holders: tuple[SlotHolder, ...] = ()
        self._has_dropped = False
        self._failures = 0
        self._stopping = threading.Event()
        self._stop_by_s = math.inf
        self._thread = threading.Thread(target=self._run, name="balancedstream", daemon=True)

    def start(self) -> None:
        """Begins; returns at once."""
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it has begun and not ended."""
        return self._thread.is_alive()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ends once everything that Spark reported so far is handled; the queries run on.

        Args:
            timeout_s: when it ends in any case; batches may come without a pause.
        """
        self._stop_by_s = time.monotonic() + timeout_s
        self._stopping.set()
        self._thread.join(timeout_s + END_S)

    def _run(self) -> None:
        unwatch = watch(self._shuffled.put)
        has_begun = False
        try:
            while self._failures < MAX_FAILURES:
                try:
                    if not has_begun:
                        self._begin()
                        has_begun = True
                    if self._is_over():
                        return
                    self._failures = 0
                except Exception as error:
                    if self._engine.is_connection_lost(error):
                        self._journal.end_application()
                        self._planner.end_application()
                        return
                    self._failures += 1
                    log.exception("Spark was not reached: balancing goes on with the next call")
                    if self._failures < MAX_FAILURES:
                        self._stopping.wait(PAUSE_S * 2 ** (self._failures - 1))
            log.error(
                "balancing ended, because %d calls in a row failed: the job runs on "
                "where its partitions are, and no data is at risk; mend the cause above, then "
                "start the job again",
                self._failures,
            )
        finally:
            unwatch()
            self._close_engine()

    def _close_engine(self) -> None:
        try:
            self._engine.close()
        except Exception as error:
            if not self._engine.is_connection_lost(error):
                log.exception("balancing ended, but Spark may go on collecting what nobody reads")

    def _is_over(self) -> bool:
        """Handles the next event, if one comes in time; returns whether it was the last one."""
        event = self._engine.wait(POLL_S)
        while not self._shuffled.empty():
            self._take_in(self._shuffled.get())
        self._heed_holders()
        if event is not None:
            self._take_in(event)
        if isinstance(event, ApplicationEnded):
            self._planner.end_application()
            return True
        if self._stopping.is_set() and (event is None or time.monotonic() >= self._stop_by_s):
            return True
        self._planner.look_for_plans(self._engine.executors(), self._clock())
        self._share_batch()
        return False

    @property
    def _is_real_time(self) -> bool:
        return any(holder.trigger == "real-time" for holder in self._holders)

    def _heed_holders(self) -> None:
        """Works around queries that hold slots, and waits as long as it is not known how many."""
        holders = self._engine.list_holders()
        if holders == self._holders:
            return
        before, was_real_time = {h.query for h in self._holders}, self._is_real_time
        self._holders = holders
        unknown = list_unknown(holders)
        reason = _UNKNOWN.format(", ".join(unknown)) if unknown else ""
        self._planner.pause(reason)
        self._realizer.pause(reason)
        self._planner.note_holders(holders)
        self._journal.add_holders(holders)
        for holder in holders:
            if holder.query not in before:
                self._journal.add_unbalanced(holder.query, _HOLDERS[holder.trigger])
        if not self._acts or was_real_time == self._is_real_time:
            return
        self._engine.set_warm_up(wanted=not self._is_real_time)
        if self._is_real_time:
            # A task in Real-Time Mode that waits for an executor stalls all the others.
            self._engine.give_locality_wait_back()
        else:
            self._journal.note("no query in Real-Time Mode runs any more")

    def _take_in(self, event: Event | ShuffleRecord) -> None:
        """Handles an event; what cannot be handled is said once for each query and cause."""
        try:
            if isinstance(event, ShuffleRecord):
                self._journal.add_shuffle(event)
            elif isinstance(event, BatchPlanned | RowsWaiting):
                self._planner.see(event, self._engine.executors(), self._clock())
            else:
                self._handle(event)
        except Exception as error:
            if self._engine.is_connection_lost(error):
                raise
            query = getattr(event, "query", "the application")
            if (query, type(error)) not in self._unhandled:
                self._unhandled.add((query, type(error)))
                log.exception(
                    "%s: %s cannot be handled, and is left out: balancing goes on without it",
                    query,
                    type(event).__name__,
                )

    def _handle(self, event: Event) -> None:
        match event:
            case BatchFinished():
                self._finish_batch(event)
            case QueryStarted(query=query, named=named):
                self._journal.start_query(query)
                if self._in_cluster and not named:
                    self._journal.note(_UNNAMED.format(query))
                if query in self._seen_queries:
                    self._journal.add_restart(query, "started again by the job")
                self._seen_queries.add(query)
            case QueryEnded(query=query, error=error):
                self._end_query(query, error)
            case QueryIdle(query=query):
                now_s = self._clock()
                self._journal.add_idle(query, now_s)
                self._planner.note_idle(query, self._engine.executors(), now_s)
                self._realizer.note_idle(query)
                self._realizer.retire_drained()
            case ExecutorRemoved(executor=executor, reason=reason, loss=loss):
                loses = self._acts and self._realizer.lose_executor(executor)
                # A realizer that is paused says that nothing was lost.
                if loses and self._policy.balance.mode == "auto" and not self._is_real_time:
                    # The rest of this batch must not wait for it.
                    self._engine.set_locality_wait_s(MIN_LOCALITY_WAIT_S, at_once=True)
                self._journal.add_executors(self._engine.executors())
                self._journal.add_departure(executor, reason, loss)
            case ExecutorAdded(executor=executor):
                # A plan can give it state from the next batch on.
                self._realizer.add_executor(executor)
                executors = self._engine.executors()
                self._journal.add_executors(executors)
                self._planner.note_executors(executors, self._clock())
            case TaskFailed(query=query):
                self._journal.add_task_failure(query)
            case EventsDropped(count=count):
                self._warn_of_lag(count)
            case ApplicationEnded():
                self._journal.end_application()

    def _finish_batch(self, event: BatchFinished) -> None:
        if not event.is_sound():
            # Decisions are made from all queries: one such number would end those of all.
            self._warn_of_unsound(event)
            return
        if event.trigger != "micro-batch":
            self._show_only(event)
            return
        self._warn_of_store(event)
        self._warn_of_merged(event)
        recent = self._ran_s.setdefault(event.query, deque(maxlen=RECENT_BATCHES))
        recent.append(event.sample.duration_s - event.sample.gaps_s)
        self._is_shared = False
        if self._policy.balance.mode == "auto" and not self._is_real_time:
            self._follow_batch_time()
        self._realizer.finish_batch(event)
        executors = self._engine.executors()
        record = summarize(event, executors)
        self._memory = self._memory.after(
            FinishedReads(event.sample, event.tasks, event.stores, event.processes, executors)
        )
        memory = self._memory.measure(executors, self._engine.memory_limits)
        self._journal.add_batch(event, record, executors)
        self._journal.add_memory(memory, event.stores)
        self._planner.finish_batch(FinishedBatch(event, record, executors, self._clock(), memory))
        self._realizer.retire_drained()

    def _show_only(self, event: BatchFinished) -> None:
        """A batch whose tasks run as long as it does: their time says nothing of its load."""
        executors = self._engine.executors()
        shown = replace(event, tasks=(), stages=(), operators=(), preparations=())
        self._journal.add_batch(shown, summarize(shown, executors), executors)

    def _end_query(self, query: str, error: str | None) -> None:
        if error:
            self._journal.note(f"{query} failed: {name_cause(error)}")
        self._ran_s.pop(query, None)
        self._memory = self._memory.end_query(query)
        self._realizer.end_query(query)
        self._planner.end_query(query)
        self._journal.end_query(query)

    def _warn_of_unsound(self, event: BatchFinished) -> None:
        if event.query not in self._unsound:
            self._unsound.add(event.query)
            self._journal.note(
                f"{event.query}: batch {event.sample.batch} is left out, because a time, a size or "
                "a number of rows of it is negative or absurd; so are others like it. Results are "
                "right"
            )

    def _warn_of_store(self, event: BatchFinished) -> None:
        if not event.in_rocksdb and event.query not in self._warned:
            self._warned.add(event.query)
            self._journal.note(
                f"{event.query}: its checkpoint keeps state in memory (HDFS-backed), not in "
                "RocksDB. Results are right, but a move restores a partition's whole state, which "
                "takes longer. This checkpoint cannot be changed; a new one would use RocksDB."
            )

    def _warn_of_merged(self, event: BatchFinished) -> None:
        for name in event.merged:
            if (event.query, name) not in self._merged:
                self._merged.add((event.query, name))
                self._journal.note(
                    f"{event.query}: {name} is not balanced: a coalesce behind it runs several of "
                    "its partitions in one task, where none can be measured or moved alone. "
                    "repartition instead of coalesce keeps them apart"
                )

    def _warn_of_lag(self, dropped: int) -> None:
        if not self._has_dropped:
            self._has_dropped = True
            self._journal.note(
                f"balancing is slower than the batches: {dropped} batches or tasks were not "
                "measured. Results are right; decisions follow the batches that are measured. "
                "Longer batches or fewer partitions would let it keep up"
            )

    def _share_batch(self) -> None:
        """Lets executors that are about to join take tasks of the batch that runs.

        Spark looks at the wait again when one joins (`TaskSetManager.executorAdded`), not later.
        """
        acts = self._policy.balance.mode == "auto" and not self._is_real_time
        if acts and not self._is_shared and self._realizer.should_share():
            self._is_shared = True
            self._engine.set_locality_wait_s(MIN_LOCALITY_WAIT_S)

    def _begin(self) -> None:
        scaling = self._policy.scaling
        scales = scaling.max_executors > 0 and scaling.mode != "off"
        bounds = self._policy.admission.mode == "auto"
        self._engine.watch_sources(wanted=not self._in_cluster and (scales or bounds))
        self._engine.set_warm_up(wanted=self._acts)
        if self._policy.balance.mode == "auto":
            if self._engine.own_wait:
                self._journal.note(self._engine.own_wait)
            self._engine.set_locality_wait_s(FIRST_LOCALITY_WAIT_S)

    def _follow_batch_time(self) -> None:
        # Spark has one wait for all queries: too long for a short one costs it only where an
        # executor is busy, too short for a long one moves its state.
        usual_s = max(statistics.median(recent) for recent in self._ran_s.values())
        wait_s = LOCALITY_WAIT_BATCHES * usual_s
        self._engine.set_locality_wait_s(min(max(wait_s, MIN_LOCALITY_WAIT_S), MAX_LOCALITY_WAIT_S))


def summarize(event: BatchFinished, executors: dict[str, int]) -> BatchRecord:
    """The batch as the history keeps it; `executors` (id to cores) take work now."""
    tasks = event.by_operator()
    loads = []
    for operator in event.operators:
        of_operator = tasks.get(operator.id, {})
        if not of_operator:
            continue
        busy_s = {p: t.work_s for p, t in of_operator.items()}
        seen = dict.fromkeys((t.executor for t in of_operator.values()), 1)
        placement = {p: t.executor for p, t in of_operator.items()}
        measured = measure_imbalance(busy_s, placement, {**seen, **executors})
        count = range(operator.partitions)
        loads.append(
            OperatorBatchLoad(
                operator=operator.id,
                name=operator.name,
                partition_busy_s=tuple(busy_s.get(p, 0.0) for p in count),
                partition_executor=tuple(
                    of_operator[p].executor if p in of_operator else "" for p in count
                ),
                imbalance=measured.imbalance,
                bound=measured.bound,
            )
        )
    return BatchRecord(
        query=event.query,
        batch=event.sample.batch,
        finished_s=event.sample.finished_s,
        duration_ms=round(event.sample.duration_s * 1000),
        input_rows=event.sample.input_rows,
        backlog_rows=event.sample.backlog_rows,
        executors=len(executors),
        loads=tuple(loads),
        has_state=event.has_state,
        trigger=event.trigger,
    )
