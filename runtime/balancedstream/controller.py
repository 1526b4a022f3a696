"""The embedded loop: observe what the engine reports, decide with the core, realize the decision.

One thread owns everything here. It never raises into the user's job: when it ends, for whatever
reason, the queries run on where their partitions are.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from balancedstream.core.decisions import Decision, Observation, decide
from balancedstream.core.handoffs import LoadCost, learn_load_cost
from balancedstream.core.hotspots import BalanceDecision, Move, diminish
from balancedstream.core.loads import OperatorLoad, prune
from balancedstream.core.migration import steps, steps_within
from balancedstream.core.observations import BatchSample, TaskSample
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
from balancedstream.history import (
    BatchRecord,
    DecisionKind,
    DecisionRecord,
    History,
    MoveRecord,
    OperatorBatchLoad,
    RestartRecord,
    ScaleRecord,
)
from balancedstream.live import View

log = logging.getLogger(__name__)

POLL_S = 0.5
"""How long the loop sleeps at most before it looks whether it shall stop."""

SETTLE_BATCHES = 5
"""A move whose task is not on its target after so many batches is given up, with the reason."""

LOCALITY_WAIT_LEAST_S = 3.0
LOCALITY_WAIT_MOST_S = 60.0
LOCALITY_WAIT_BATCHES = 3
"""A task waits for its state's executor as long as three of the longest recent batches: a busy
executor is worth waiting for, one that died in the middle of a batch is not."""

OperatorKey = tuple[str, int]


@dataclass
class _Migration:
    """The moves of one operator that are under way: some asserted, the rest still to come."""

    coming: deque[tuple[Move, ...]]
    asserted: dict[int, Move] = field(default_factory=dict)
    asserted_after_batch: int = -1


class Controller:
    """Keeps every query of a Spark application balanced, from a thread of its own.

    Args:
        engine: the application.
        policy: all knobs.
        history: takes down what happens.
        view: shows it.
        exporter: serves it as metrics.
        record: called with each observation that led to a decision, for `explain`.
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
        self._history = history
        self._view = view
        self._exporter = exporter
        self._epoch = 0
        self._record = record
        self._clock = clock
        self._tasks: list[TaskSample] = []
        self._batches: deque[BatchSample] = deque()
        self._load_cost = LoadCost()
        self._migrations: dict[OperatorKey, _Migration] = {}
        self._ran_on: dict[OperatorKey, dict[int, str]] = {}
        self._seen_queries: set[str] = set()
        self._warm: set[str] = set()
        self._requested: int | None = None
        self._last_scaled_s: float | None = None
        self._retiring: set[str] = set()
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
                    self._history.add_restart(
                        RestartRecord(self._clock(), query, "started again by the job")
                    )
                self._seen_queries.add(query)
            case QueryEnded(query=query, error=error):
                if error:
                    self._view.note(f"{query} failed: {error.partition(chr(10))[0]}")
                self._forget(query)
            case ExecutorAdded():
                if self._requested is not None and len(self._engine.executors()) >= self._requested:
                    self._requested = None
            case ExecutorRemoved(executor=executor, reason=reason):
                self._retiring.discard(executor)
                self._view.note(f"executor {executor} left: {reason}")
            case TaskFailed(query=query):
                if self._exporter:
                    self._exporter.on_task_failure(query)
            case ApplicationEnded():
                pass

    def _finish_batch(self, event: BatchFinished) -> None:
        now_s = self._clock()
        self._batches.append(event.sample)
        if event.query in self._warm:
            self._tasks.extend(event.tasks)
        elif not event.in_rocksdb:
            self._view.note(
                f"{event.query}: its checkpoint keeps state in memory (HDFS-backed), not in "
                "RocksDB. The answers are right; a move loads a partition's whole state, which "
                "takes longer. A new checkpoint would have RocksDB, this one cannot be changed."
            )
        # The first batch measures the start of Python workers, not the load.
        self._warm.add(event.query)
        self._load_cost = learn_load_cost(self._load_cost, event.tasks)
        self._prune(now_s)
        if self._policy.balance.mode == "auto":
            self._follow_batch_time()
        self._settle(event, now_s)
        executors = self._engine.executors()
        record = _summarize(event, executors)
        self._history.add_batch(record)
        self._view.on_batch(record)
        if self._exporter:
            self._exporter.on_batch(event.sample, event.tasks, executors)
        if not executors:
            return
        observation = Observation(
            now_s=now_s,
            executors=executors,
            tasks=tuple(self._tasks),
            batches=tuple(self._batches),
            load_cost=self._load_cost,
            requested=self._requested,
            last_scaled_s=self._last_scaled_s,
        )
        decision = decide(observation, self._policy)
        acted = self._realize_balance(event, decision, now_s)
        acted |= self._realize_scaling(decision.scaling, now_s)
        self._retire_drained()
        if acted and self._record:
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

    def _settle(self, event: BatchFinished, now_s: float) -> None:
        """Ticks off the moves that came true; gives up those that never will."""
        by_operator: dict[int, dict[int, TaskSample]] = defaultdict(dict)
        for task in event.tasks:
            by_operator[task.operator][task.partition] = task
        for operator, tasks in by_operator.items():
            key = event.query, operator
            self._ran_on[key] = {p: t.executor for p, t in tasks.items()}
            migration = self._migrations.get(key)
            if migration is None:
                continue
            for partition, move in list(migration.asserted.items()):
                ran = tasks.get(partition)
                reason = self._why_given_up(move, migration, event.sample.batch)
                if ran is not None and ran.executor == move.target:
                    del migration.asserted[partition]
                    self._tell_settled(key, ran, now_s)
                elif reason:
                    del migration.asserted[partition]
                    self._tell_dropped(key, partition, now_s, reason)
            if not migration.asserted:
                self._assert_next_step(key, migration, event.sample.batch)

    def _why_given_up(self, move: Move, migration: _Migration, batch: int) -> str:
        if move.target not in self._engine.executors():
            return f"executor {move.target} is gone or leaving"
        waited = batch - migration.asserted_after_batch
        if waited >= SETTLE_BATCHES:
            return (
                f"after {waited} batches the task still runs elsewhere: executor {move.target} "
                "took no task in time (see spark.locality.wait)"
            )
        return ""

    def _realize_balance(self, event: BatchFinished, decision: Decision, now_s: float) -> bool:
        acted = False
        for operator in event.operators:
            key = event.query, operator.id
            balance = decision.balance.get(key)
            if balance is None or key in self._migrations:
                continue
            mode = self._policy.balance.mode
            kind: DecisionKind = "none"
            if balance.moves:
                kind = "move" if mode == "auto" else "hold"
            elif balance.unsplittable is not None:
                kind = "unsplittable"
            reason = balance.reason if mode == "auto" else f"{mode}: {balance.reason}"
            self._tell_decision(key, kind, reason, balance, now_s)
            if self._exporter:
                self._exporter.on_balance(
                    *key, balance.imbalance_before, balance.bound, len(balance.moves), kind
                )
            if balance.moves and mode == "auto":
                acted = True
                self._begin_migration(key, event.sample.batch, balance, decision.loads[key], now_s)
        return acted

    def _begin_migration(
        self,
        key: OperatorKey,
        batch: int,
        balance: BalanceDecision,
        load: OperatorLoad,
        now_s: float,
    ) -> None:
        for move in balance.moves:
            record = MoveRecord(
                query=key[0],
                operator=key[1],
                partition=move.partition,
                source=move.source,
                target=move.target,
                decided_s=now_s,
                reason=balance.reason,
                decided_after_batch=batch,
            )
            self._history.add_move(record)
            self._view.on_move(record)
        self._epoch += 1
        if self._exporter:
            self._exporter.on_epoch(self._epoch)
        migration = _Migration(deque(self._split(balance.moves, load)))
        self._migrations[key] = migration
        self._assert_next_step(key, migration, batch)

    def _split(self, moves: Sequence[Move], load: OperatorLoad) -> list[tuple[Move, ...]]:
        policy = self._policy.migration
        if policy.strategy != "budgeted":
            return steps(moves, policy.strategy, batch_size=policy.batch_size)
        return steps_within(
            moves,
            policy.budget_s,
            lambda m: self._load_cost.estimate_s(load.state_bytes.get(m.partition, 0)),
        )

    def _assert_next_step(self, key: OperatorKey, migration: _Migration, batch: int) -> None:
        query, operator = key
        if migration.coming:
            migration.asserted = {m.partition: m for m in migration.coming.popleft()}
            migration.asserted_after_batch = batch
        else:
            del self._migrations[key]
        targets = {p: m.target for p, m in migration.asserted.items()}
        self._engine.place(query, operator, targets)

    def _realize_scaling(self, scaling: ScalingDecision, now_s: float) -> bool:
        policy = self._policy.scaling
        if policy.max_executors == 0 or policy.mode == "off":
            return False
        executors = self._engine.executors()
        present = self._requested if self._requested is not None else len(executors)
        wanted = scaling.executors
        changes = wanted != present
        kind: DecisionKind = "scale" if changes and policy.mode == "auto" else "none"
        reason = f"{scaling.verdict}: {scaling.reason}"
        if policy.mode == "advise":
            reason = f"advise: {reason}"
        self._tell_decision(("", None), kind, reason, None, now_s)
        if not changes or policy.mode != "auto":
            return False
        if wanted > present:
            self._engine.set_executor_count(wanted + len(self._retiring))
            self._requested = wanted
        else:
            for executor in self._choose_victims(present - wanted):
                self._engine.drain(executor)
                self._retiring.add(executor)
        self._last_scaled_s = now_s
        record = ScaleRecord(now_s, present, wanted, str(scaling.verdict), scaling.reason)
        self._history.add_scale(record)
        self._view.on_scale(record)
        if self._exporter:
            self._exporter.on_scale(present, len(executors), wanted)
        return True

    def _choose_victims(self, count: int) -> list[str]:
        """The executors whose state is cheapest to hand over."""
        state_bytes = dict.fromkeys(self._engine.executors(), 0)
        newest: dict[tuple[str, int, int], TaskSample] = {}
        for task in self._tasks:
            newest[task.query, task.operator, task.partition] = task
        for task in newest.values():
            if task.executor in state_bytes:
                state_bytes[task.executor] += task.state_bytes
        return sorted(state_bytes, key=lambda e: (state_bytes[e], e))[:count]

    def _retire_drained(self) -> None:
        """Lets those executors go that no longer run any state partition."""
        used = {executor for places in self._ran_on.values() for executor in places.values()}
        for executor in sorted(self._retiring - used):
            self._retiring.discard(executor)
            self._engine.remove_executor(executor)

    def _forget(self, query: str) -> None:
        self._warm.discard(query)
        self._tasks = [t for t in self._tasks if t.query != query]
        self._batches = deque(b for b in self._batches if b.query != query)
        now_s = self._clock()
        for key in [k for k in self._migrations if k[0] == query]:
            migration = self._migrations.pop(key)
            left = [*migration.asserted.values(), *(m for step in migration.coming for m in step)]
            for move in left:
                self._tell_dropped(key, move.partition, now_s, "the query ended")
        self._ran_on = {k: v for k, v in self._ran_on.items() if k[0] != query}
        if self._exporter:
            self._exporter.on_query_ended(query)

    def _tell_settled(self, key: OperatorKey, task: TaskSample, now_s: float) -> None:
        move = self._history.settle_move(*key, task.partition, settled_s=now_s, load_s=task.load_s)
        if move:
            self._view.on_move(move)
        if self._exporter:
            self._exporter.on_moves_settled(1)

    def _tell_dropped(self, key: OperatorKey, partition: int, now_s: float, reason: str) -> None:
        move = self._history.drop_move(*key, partition, dropped_s=now_s, reason=reason)
        if move:
            self._view.on_move(move)

    def _tell_decision(
        self,
        key: tuple[str, int | None],
        kind: DecisionKind,
        reason: str,
        balance: BalanceDecision | None,
        now_s: float,
    ) -> None:
        record = DecisionRecord(
            at_s=now_s,
            query=key[0],
            operator=key[1],
            kind=kind,
            reason=reason,
            imbalance=balance.imbalance_before if balance else None,
            bound=balance.bound if balance else None,
            moves=len(balance.moves) if balance else 0,
        )
        self._history.add_decision(record)
        self._view.on_decision(record)


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
