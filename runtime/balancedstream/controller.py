"""The embedded loop: observe what the engine reports, decide with the core, realize the decision.

One thread owns everything here. It never raises into the user's job: when it ends, for whatever
reason, the queries run on where their partitions are.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable

from balancedstream.core.decisions import Decision, Observation, decide
from balancedstream.core.hotspots import diminish
from balancedstream.core.loads import prune
from balancedstream.core.observations import BatchSample, TaskSample
from balancedstream.core.planning import propose
from balancedstream.core.policy import BalancePolicy, Policy
from balancedstream.core.scaling import ScalingDecision
from balancedstream.engine.engine import Engine, is_connection_lost
from balancedstream.engine.events import (
    ApplicationEnded,
    BatchFinished,
    Event,
    ExecutorAdded,
    ExecutorRemoved,
    QueryEnded,
    QueryStarted,
    TaskFailed,
)
from balancedstream.exporter import Exporter
from balancedstream.history import BatchRecord, DecisionKind, History, OperatorBatchLoad
from balancedstream.journal import Journal
from balancedstream.live import View
from balancedstream.realizing import Realizer, Why

log = logging.getLogger(__name__)

POLL_S = 0.5
"""How long the loop sleeps at most before it looks whether it shall stop."""

LOCALITY_WAIT_LEAST_S = 3.0
LOCALITY_WAIT_MOST_S = 60.0
LOCALITY_WAIT_BATCHES = 3
"""A task waits for its state's executor as long as three of the longest recent batches: a busy
executor is worth waiting for, one that died in the middle of a batch is not."""


class Controller:
    """Keeps every query of a Spark application balanced, from a thread of its own.

    Args:
        engine: the application.
        policy: all knobs.
        history: takes down what happens.
        view: shows it.
        exporter: serves it as metrics.
        record: called with each observation that led to a plan, for `explain`.
        clock: seconds since the Unix epoch.
    """

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        history: History,
        view: View,
        *,
        exporter: Exporter | None = None,
        record: Callable[[Observation], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._policy = policy
        self._journal = Journal(history, view, exporter, clock)
        self._realizer = Realizer(engine, policy.migration, self._journal)
        self._record = record
        self._clock = clock
        self._tasks: list[TaskSample] = []
        self._batches: deque[BatchSample] = deque()
        self._seen_queries: set[str] = set()
        self._warm: set[str] = set()
        self._last_scaled_s: float | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="balancedstream", daemon=True)

    def start(self) -> None:
        """Begins; returns at once."""
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ends after what Spark already reported was taken in; the queries run on."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while True:
                event = self._engine.wait(POLL_S)
                if event is not None:
                    self._handle(event)
                if isinstance(event, ApplicationEnded):
                    return
                if event is None and self._stopping.is_set():
                    return
        except Exception as error:
            if not is_connection_lost(error):
                log.exception("balancing ended; the job runs on where its partitions are")

    def _handle(self, event: Event) -> None:
        match event:
            case BatchFinished():
                self._finish_batch(event)
            case QueryStarted(query=query):
                if query in self._seen_queries:
                    self._journal.add_restart(query, "started again by the job")
                self._seen_queries.add(query)
            case QueryEnded(query=query, error=error):
                if error:
                    self._journal.note(f"{query} failed: {error.partition(chr(10))[0]}")
                self._forget(query)
            case ExecutorAdded():
                self._realizer.add_executor()
            case ExecutorRemoved(executor=executor, reason=reason):
                self._realizer.lose_executor(executor)
                self._journal.note(f"executor {executor} left: {reason}")
            case TaskFailed(query=query):
                self._journal.add_task_failure(query)
            case ApplicationEnded():
                pass

    def _finish_batch(self, event: BatchFinished) -> None:
        now_s = self._clock()
        self._take_in(event, now_s)
        self._realizer.finish_batch(event)
        executors = self._engine.executors()
        self._journal.add_batch(event, _summarize(event, executors), executors)
        if executors:
            self._decide(event, executors, now_s)
        self._realizer.retire_drained()

    def _take_in(self, event: BatchFinished, now_s: float) -> None:
        """Keeps what the next decisions look at."""
        self._batches.append(event.sample)
        if event.query in self._warm:
            self._tasks.extend(event.tasks)
        elif not event.in_rocksdb:
            self._journal.note(
                f"{event.query}: its checkpoint keeps state in memory (HDFS-backed), not in "
                "RocksDB. The answers are right; a move loads a partition's whole state, which "
                "takes longer. A new checkpoint would have RocksDB, this one cannot be changed."
            )
        # The first batch measures the start of Python workers, not the load.
        self._warm.add(event.query)
        self._prune(now_s)
        if self._policy.balance.mode == "auto":
            self._follow_batch_time()

    def _decide(self, event: BatchFinished, executors: dict[str, int], now_s: float) -> None:
        """Decides on what is known now; realizes what changes something."""
        observation = Observation(
            now_s=now_s,
            executors=executors,
            tasks=tuple(self._tasks),
            batches=tuple(self._batches),
            load_cost=self._realizer.load_cost,
            requested=self._realizer.requested,
            last_scaled_s=self._last_scaled_s,
        )
        decision = decide(observation, self._policy)
        moving = self._realizer.wanted()
        # The others have nothing new since the last decision on them.
        ran = {(event.query, operator.id) for operator in event.operators}
        for key in sorted(ran & decision.balance.keys() - moving.keys()):
            self._tell_balance(key, decision)
        self._tell_scaling(decision.scaling, observation.asked)
        plan = propose(self._realizer.epoch + 1, observation, decision, self._policy, wanted=moving)
        if plan is None:
            return
        scaling = decision.scaling
        why = Why(
            {key: b.reason for key, b in decision.balance.items() if b.moves},
            str(scaling.verdict),
            scaling.reason,
        )
        if len(plan.executors) != observation.asked:
            self._last_scaled_s = now_s
        self._realizer.apply(plan, why)
        if self._record:
            self._record(observation)

    def _prune(self, now_s: float) -> None:
        self._tasks = prune(self._tasks, self._policy.window, now_s)
        scaling = self._policy.scaling
        horizon_s = now_s - 1.1 * max(scaling.window_s, scaling.scale_in_delay_s)
        kept: deque[BatchSample] = deque()
        newest: Counter[str] = Counter()
        for batch in reversed(self._batches):
            newest[batch.query] += 1
            # A query with a slow trigger is measured on its last batches, however old they are.
            if batch.finished_s >= horizon_s or newest[batch.query] <= scaling.min_batches + 1:
                kept.appendleft(batch)
        self._batches = kept

    def _follow_batch_time(self) -> None:
        recent = [b.duration_s for b in list(self._batches)[-LOCALITY_WAIT_BATCHES:]]
        wait_s = LOCALITY_WAIT_BATCHES * max(recent)
        self._engine.set_locality_wait_s(
            min(max(wait_s, LOCALITY_WAIT_LEAST_S), LOCALITY_WAIT_MOST_S)
        )

    def _tell_balance(self, key: tuple[str, int], decision: Decision) -> None:
        balance = decision.balance[key]
        mode = self._policy.balance.mode
        kind: DecisionKind = "none"
        if balance.moves:
            kind = "move" if mode == "auto" else "hold"
        elif balance.unsplittable is not None:
            kind = "unsplittable"
        reason = balance.reason if mode == "auto" else f"{mode}: {balance.reason}"
        self._journal.add_balance(key, kind, reason, balance)

    def _tell_scaling(self, scaling: ScalingDecision, asked: int) -> None:
        policy = self._policy.scaling
        if policy.max_executors == 0 or policy.mode == "off":
            return
        changes = scaling.executors != asked and policy.mode == "auto"
        prefix = "advise: " if policy.mode == "advise" else ""
        self._journal.add_scaling(
            "scale" if changes else "none", f"{prefix}{scaling.verdict}: {scaling.reason}"
        )

    def _forget(self, query: str) -> None:
        self._warm.discard(query)
        self._tasks = [t for t in self._tasks if t.query != query]
        self._batches = deque(b for b in self._batches if b.query != query)
        self._realizer.end_query(query)
        self._journal.end_query(query)


def _summarize(event: BatchFinished, executors: dict[str, int]) -> BatchRecord:
    tasks: dict[int, dict[int, TaskSample]] = defaultdict(dict)
    for task in event.tasks:
        tasks[task.operator][task.partition] = task
    loads = []
    for operator in event.operators:
        of_operator = tasks.get(operator.id, {})
        if not of_operator:
            continue
        busy_s = {p: max(0.0, t.busy_s - t.load_s) for p, t in of_operator.items()}
        seen = dict.fromkeys((t.executor for t in of_operator.values()), 1)
        measured = diminish(
            busy_s,
            {p: t.executor for p, t in of_operator.items()},
            {**seen, **executors},
            _MEASURE_ONLY,
        )
        count = range(operator.partitions)
        loads.append(
            OperatorBatchLoad(
                operator=operator.id,
                name=operator.name,
                partition_busy_s=tuple(busy_s.get(p, 0.0) for p in count),
                partition_executor=tuple(
                    of_operator[p].executor if p in of_operator else "" for p in count
                ),
                imbalance=measured.imbalance_before,
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
    )


_MEASURE_ONLY = BalancePolicy(act_above=1000.0)
