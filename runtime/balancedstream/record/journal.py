"""Reports everything that happens to the history, the spectator and the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set, Sized
from dataclasses import dataclass, replace

from balancedstream.core.balance.hotspots import Move
from balancedstream.core.balance.imbalance import ImbalanceMeasurement
from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.decisions import DecisionKind
from balancedstream.core.keys.text import name_key
from balancedstream.core.memory.use import Memory
from balancedstream.core.samples import (
    KeySample,
    LossCause,
    OperatorId,
    ShuffleRecord,
    SlotHolder,
    StoreSample,
    TaskSample,
)
from balancedstream.engine.events import BatchFinished
from balancedstream.record.history import History
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    KeyMoveRecord,
    MoveRecord,
    PreparationOutcome,
    RestartRecord,
    ScaleRecord,
)
from balancedstream.record.spectators import Metrics, Spectator


@dataclass(eq=False)
class Journal:
    """Writes down what happens, shows it, and serves it as metrics."""

    _history: History
    _spectator: Spectator
    _metrics: Metrics
    _clock: Callable[[], float]

    def note(self, text: str) -> None:
        """Shows a sentence to whoever watches."""
        self._spectator.note(text)

    def add_batch(
        self, event: BatchFinished, record: BatchRecord, executors: Mapping[str, int]
    ) -> None:
        """A micro-batch finished."""
        self._history.add_batch(record)
        self._spectator.on_batch(record)
        self._metrics.on_batch(event.sample, event.tasks, executors, event.stages)

    def add_holders(self, holders: Sequence[SlotHolder]) -> None:
        """These queries hold slots now."""
        self._metrics.on_holders(holders)

    def add_unbalanced(self, query: str, reason: str) -> None:
        """A query is not balanced, by the way in which it is triggered."""
        self._add_decision(DecisionRecord(self._clock(), query, None, "limited", reason))

    def add_memory(self, memory: Memory, stores: Sequence[StoreSample]) -> None:
        """What executors take of memory after a batch, and its state stores."""
        self._metrics.on_memory(memory, stores)

    def add_idle(self, query: str, at_s: float) -> None:
        """A query waits for data, as Spark said at this time (seconds since the Unix epoch)."""
        self._metrics.on_idle(query, at_s)

    def add_executors(self, executors: Mapping[str, int]) -> None:
        """An executor joined or left; these take work now."""
        self._metrics.on_executors(executors)

    def add_departure(self, executor: str, reason: str, loss: LossCause | None) -> None:
        """An executor left, in Spark's words; `loss` says what by if nobody wanted it to go."""
        self.note(f"executor {executor} left: {reason}")
        if loss is not None:
            self._metrics.on_loss(loss)

    def add_restart(self, query: str, reason: str) -> None:
        """A query of this run started again."""
        self._history.add_restart(RestartRecord(self._clock(), query, reason))

    def add_shuffle(self, record: ShuffleRecord) -> None:
        """A micro-batch went through a cost-aware shuffle."""
        self._history.add_shuffle(record)
        self._metrics.on_shuffle(record)
        if record.trusted != record.by_estimates:
            way = "estimated costs" if record.trusted else "round robin"
            following = record.batch + 1
            self.note(f"{record.shuffle}: {way} from batch {following} on: {record.reason}")

    def add_task_failure(self, query: str) -> None:
        """An attempt of a task failed."""
        self._metrics.on_task_failure(query)

    def start_query(self, query: str) -> None:
        """A query runs."""
        self._metrics.on_query_started(query)

    def end_query(self, query: str) -> None:
        """A query stopped."""
        self._metrics.on_query_ended(query)

    def end_application(self) -> None:
        """Spark stopped, or is lost."""
        self._metrics.on_application_ended()

    def add_measurement(self, record: BatchRecord, restore_cost: RestoreCost) -> None:
        """Serves what the operator needs for its decisions, beyond the batch itself."""
        for load in record.loads:
            self._metrics.on_imbalance(record.query, load.operator, load.imbalance, load.bound)
        self._metrics.on_restore_cost(restore_cost)

    def add_moves_under_way(self, wanted: Mapping[OperatorId, Sized]) -> None:
        """Partitions of each operator that are not on their target yet."""
        self._metrics.on_moves_under_way(
            {operator: len(moves) for operator, moves in wanted.items()}
        )

    def add_prepared(self, counts: Mapping[OperatorId, int]) -> None:
        """State is loaded ahead of these operators' moves, just now of so many partitions."""
        self._metrics.on_moves_prepared(counts)

    def add_epoch(self, epoch: int) -> None:
        """A plan was accepted."""
        self._metrics.on_epoch(epoch)

    def add_balance(
        self,
        operator: OperatorId,
        kind: DecisionKind,
        reason: str,
        measured: ImbalanceMeasurement,
        moves: int,
    ) -> None:
        """A decision on the placement of one operator, "no change" included."""
        self._add_decision(
            DecisionRecord(
                at_s=self._clock(),
                query=operator[0],
                operator=operator[1],
                kind=kind,
                reason=reason,
                imbalance=measured.imbalance,
                bound=measured.bound,
                moves=moves,
            )
        )
        self._metrics.on_imbalance(*operator, measured.imbalance, measured.bound)
        self._metrics.on_decision(*operator, kind)

    def add_scaling(self, kind: DecisionKind, reason: str, advised: int | None = None) -> None:
        """A decision on the number of executors; `advised` is the number if it only advises."""
        self._add_decision(DecisionRecord(self._clock(), "", None, kind, reason))
        if advised is not None:
            self._metrics.on_executors_advised(advised)

    def _add_decision(self, record: DecisionRecord) -> None:
        self._history.add_decision(record)
        self._spectator.on_decision(record)

    def add_scale(self, before: int, live: int, wanted: int, verdict: str, reason: str) -> None:
        """The number of executors is changed."""
        record = ScaleRecord(self._clock(), before, wanted, verdict, reason)
        self._history.add_scale(record)
        self._spectator.on_scale(record)
        self._metrics.on_scale(before, live, wanted)

    def add_move(self, operator: OperatorId, move: Move, reason: str, after_batch: int) -> None:
        """A move is decided; it can show in the batch after `after_batch`."""
        record = MoveRecord(
            query=operator[0],
            operator=operator[1],
            partition=move.partition,
            source=move.source,
            target=move.target,
            decided_s=self._clock(),
            reason=reason,
            decided_after_batch=after_batch,
        )
        self._history.add_move(record)
        self._spectator.on_move(record)
        self._metrics.on_move()

    def add_hot_keys(
        self, query: str, operator: int, keys: tuple[KeySample, ...], immovable: Set[str]
    ) -> None:
        """The hottest keys of a balanced operator's last batch; immovable ones are not served."""
        self._history.add_key_samples(replace(s, key=self.name_key(s.key)) for s in keys)
        # The operator must not decide on immovable keys again.
        movable = tuple(sample for sample in keys if sample.key not in immovable)
        self._metrics.on_hot_keys(query, operator, movable)

    def add_keys_under_way(self, query: str, count: int, last_arrival: int | None) -> None:
        """Keys that are not in their target partition yet, and when the last ones arrived."""
        self._metrics.on_keys_under_way(query, count, last_arrival)

    def begin_key_moves(
        self,
        operator: OperatorId,
        ways: Mapping[str, tuple[int, int]],
        reason: str,
        after_batch: int,
    ) -> None:
        """Keys begin to move from one state partition to another."""
        query, number = operator
        names = ", ".join(f"{self.name_key(key)} to {target}" for key, (_, target) in ways.items())
        self._spectator.note(f"{query}: keys move to another state partition: {names}")
        for key, (source, target) in ways.items():
            self._history.add_key_move(
                KeyMoveRecord(
                    query=query,
                    operator=number,
                    key=self.name_key(key),
                    source=source,
                    target=target,
                    decided_s=self._clock(),
                    reason=reason,
                    decided_after_batch=after_batch,
                )
            )
        self._metrics.on_key_moves(len(ways))

    def drop_key_moves(self, query: str, keys: Iterable[str], reason: str) -> None:
        """Keys stay where they are."""
        for key in keys:
            self._history.drop_key_move(
                query, self.name_key(key), dropped_s=self._clock(), reason=reason
            )

    def settle_key_move(self, query: str, key: str, batch: int) -> None:
        """A key reached its target partition, with its state."""
        self._history.settle_key_move(
            query, self.name_key(key), settled_s=self._clock(), settled_batch=batch
        )
        self._spectator.note(f"{query}: key {self.name_key(key)} arrived in batch {batch}")
        self._metrics.on_key_move_settled()

    def name_key(self, key: str) -> str:
        """How a key is shown: hashed unless metrics may show it."""
        plain = self._metrics.key_naming == "plain"
        return key if plain else str(name_key(key, "hashed"))

    def prepare_move(self, operator: OperatorId, partition: int) -> None:
        """The target of a move begins to load the partition's state, beside the batches."""
        self._change_move(operator, partition, preparing=True)

    def make_move_due(self, operator: OperatorId, partition: int, prepared_s: float | None) -> None:
        """The next task may run on the target, which took so long to load the state; None: not."""
        self._change_move(operator, partition, preparing=False, prepared_s=prepared_s)

    def _change_move(
        self,
        operator: OperatorId,
        partition: int,
        *,
        preparing: bool,
        prepared_s: float | None = None,
    ) -> None:
        place = *operator, partition
        record = self._history.change_move(place, preparing=preparing, prepared_s=prepared_s)
        if record:
            self._spectator.on_move(record)

    def end_preparation(
        self,
        operator: OperatorId,
        move: Move,
        outcome: PreparationOutcome,
        *,
        state_bytes: int,
        spent_s: float,
        failure: str,
    ) -> None:
        """State that was loaded ahead of a move was of use, or not."""
        self._history.add_preparation(outcome, state_bytes, spent_s)
        self._spectator.on_preparation(outcome, state_bytes, spent_s)
        self._metrics.on_preparation(outcome, state_bytes, spent_s)
        if outcome == "failed":
            self._spectator.note(
                f"{operator[0]}: executor {move.target} did not get the state of partition "
                f"{move.partition} ahead of its move ({failure or 'it did not say that it did'}); "
                "the moved task loads it. Nothing is lost."
            )

    def settle_move(self, operator: OperatorId, task: TaskSample) -> None:
        """A partition ran on its new executor."""
        place = *operator, task.partition
        settled_s, restore_s = self._clock(), task.restore_s
        record = self._history.settle_move(place, settled_s=settled_s, restore_s=restore_s)
        if record:
            self._spectator.on_move(record)
        self._metrics.on_move_settled()

    def drop_move(self, operator: OperatorId, partition: int, reason: str) -> None:
        """A move is given up."""
        place = *operator, partition
        record = self._history.drop_move(place, dropped_s=self._clock(), reason=reason)
        if record:
            self._spectator.on_move(record)
