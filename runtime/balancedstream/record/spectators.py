"""The ports of the record: who shows what happens, and who serves it as metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.keys.text import KeyNaming
from balancedstream.core.memory.use import Memory
from balancedstream.core.money import Price
from balancedstream.core.samples import (
    BatchSample,
    KeySample,
    LossCause,
    OperatorId,
    ShuffleRecord,
    SlotHolder,
    StageSample,
    StoreSample,
    TaskSample,
)
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    MoveRecord,
    PreparationOutcome,
    ScaleRecord,
)


class Spectator(Protocol):
    """Shows a person what happens; no method raises when its terminal is gone."""

    def on_batch(self, record: BatchRecord) -> None:
        """A micro-batch finished."""

    def on_decision(self, record: DecisionRecord) -> None:
        """A decision was taken, "nothing to do" included."""

    def on_move(self, record: MoveRecord) -> None:
        """A move was decided, prepared, became due, settled or was dropped; called each time."""

    def on_preparation(self, outcome: PreparationOutcome, state_bytes: int, spent_s: float) -> None:
        """State that a target loaded ahead of a move was of use, or not."""

    def on_scale(self, record: ScaleRecord) -> None:
        """The number of executors is being changed; comes after the decision to scale."""

    def note(self, text: str) -> None:
        """Something else that a person should know."""

    def close(self) -> None:
        """The run is over; called twice, the second call does nothing."""


class Metrics:
    """Serves what happens as metrics; no method fails or waits.

    These methods do nothing: an application without metrics uses this class as it is, and
    `metrics.exporter.Exporter` overrides them.

    Attributes:
        key_naming: how hot keys are named wherever a person reads of them.
    """

    key_naming: KeyNaming = "plain"

    def serve_report(self, render: Callable[[], str], version: Callable[[], object]) -> None:
        """Serves the report of the run.

        Args:
            render: draws it as an HTML page; called from any thread.
            version: equals what it was as long as there is nothing new to draw.
        """

    def on_batch(
        self,
        sample: BatchSample,
        tasks: Sequence[TaskSample],
        executors: Mapping[str, int],
        stages: Sequence[StageSample] = (),
    ) -> None:
        """A micro-batch finished.

        Args:
            sample: the batch as a whole.
            tasks: its tasks, one per operator and state partition.
            executors: executors of the application that take work, id to cores.
            stages: all tasks of the batch by kind of stage.
        """

    def on_memory(self, memory: Memory, stores: Sequence[StoreSample]) -> None:
        """What executors take of memory after a batch, and its state stores."""

    def on_idle(self, query: str, at_s: float) -> None:
        """A query waits for data, as Spark said at this time (seconds since the Unix epoch)."""

    def on_holders(self, holders: Sequence[SlotHolder]) -> None:
        """Queries that hold slots now, in place of those before."""

    def on_executors(self, executors: Mapping[str, int]) -> None:
        """An executor joined or left; `executors` (id to cores) take work now."""

    def on_loss(self, cause: LossCause) -> None:
        """An executor was lost that nobody wanted to go."""

    def on_imbalance(self, query: str, operator: int, imbalance: float, bound: float) -> None:
        """How evenly an operator's work is spread, and the best that placement could do."""

    def on_decision(self, query: str, operator: int, kind: str) -> None:
        """A decision on an operator's placement, "no change" included."""

    def on_executors_advised(self, count: int) -> None:
        """How many executors there should be, where scaling only advises."""

    def on_moves_under_way(self, counts: Mapping[OperatorId, int]) -> None:
        """Partitions that are not on their target yet, by operator; 0 for those left out."""

    def on_moves_prepared(self, counts: Mapping[OperatorId, int]) -> None:
        """State is loaded ahead of these operators' moves, just now of so many partitions."""

    def on_price(self, price: Price, max_executors: int) -> None:
        """What executors cost, and the fixed size to compare with; 0 without scaling."""

    def on_restore_cost(self, cost: RestoreCost) -> None:
        """What restoring moved state costs."""

    def on_epoch(self, epoch: int) -> None:
        """A plan was accepted."""

    def on_move(self) -> None:
        """A move of a partition began."""

    def on_move_settled(self) -> None:
        """A moved partition ran on its target."""

    def on_preparation(self, outcome: PreparationOutcome, state_bytes: int, spent_s: float) -> None:
        """State that a target loaded ahead of a move was of use, or not."""

    def on_hot_keys(self, query: str, operator: int, keys: tuple[KeySample, ...]) -> None:
        """An operator's hottest keys, in place of those before."""

    def on_keys_under_way(self, query: str, count: int, last_arrival: int | None) -> None:
        """Keys that are not yet in their target partition, and when the last ones arrived.

        Args:
            query: the query's stable name or id.
            count: keys on their way.
            last_arrival: number of the last batch in which one arrived; None before the first.
        """

    def on_key_moves(self, count: int) -> None:
        """Keys begin to move to another state partition."""

    def on_key_move_settled(self) -> None:
        """A key reached its target partition."""

    def on_scale(self, before: int, after: int, wanted: int) -> None:
        """Another number of executors is asked for: `wanted` instead of `before`; `after` run."""

    def on_task_failure(self, query: str) -> None:
        """An attempt of a task failed."""

    def on_shuffle(self, record: ShuffleRecord) -> None:
        """A micro-batch went through a cost-aware shuffle."""

    def on_query_started(self, query: str) -> None:
        """A query runs."""

    def on_query_ended(self, query: str) -> None:
        """A query ended; its series go."""

    def on_application_ended(self) -> None:
        """Spark stopped, or is lost."""
