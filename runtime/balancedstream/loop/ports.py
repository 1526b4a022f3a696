"""What the loop talks to: the Spark application, the maker of plans, and where plans come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from balancedstream.core.memory.use import Memory, MemoryLimits
from balancedstream.core.samples import SlotHolder
from balancedstream.core.wire.plan import Answer
from balancedstream.core.wire.stopping import Stopped
from balancedstream.engine.events import BatchFinished, BatchPlanned, Event, RowsWaiting
from balancedstream.record.records import BatchRecord


class Engine(Protocol):
    """One Spark application; `engine.engine.SparkEngine` is the real one.

    Attributes:
        own_wait: that the user has set how long tasks wait for an executor, in which case that
            stays; empty if not.
        memory_limits: what each executor may take of memory.
    """

    own_wait: str
    memory_limits: MemoryLimits

    def wait(self, timeout_s: float) -> Event | None:
        """The next event, or None when none came in time."""

    def executors(self) -> dict[str, int]:
        """Live executors that take work, id to cores; draining and cold ones are left out."""

    def place(
        self,
        query: str,
        operator: int,
        targets: Mapping[int, str],
        *,
        from_batch: int | None = None,
    ) -> None:
        """Asks for partitions of an operator to run on these executors, from a batch on."""

    def set_warm_up(self, *, wanted: bool) -> None:
        """Sets whether an executor that joins a running query counts only when it is warm."""

    def list_holders(self) -> tuple[SlotHolder, ...]:
        """The queries that hold slots now: in Real-Time Mode, or under continuous processing."""

    def can_prepare(self) -> bool:
        """Whether executors can load the state of partitions before these move to them."""

    def prepare(
        self,
        query: str,
        operator: int,
        targets: Mapping[int, str],
        *,
        partners: Mapping[int, int] | None = None,
        from_batch: int | None = None,
    ) -> None:
        """Has these executors load partitions of an operator, in place of what they were asked for.

        Until an executor has the state, or failed to get it, `place` leaves the partition where it
        is, and its partner, too. `BatchFinished.preparations` says how far they are.
        """

    def is_between_batches(self, query: str) -> bool:
        """Whether no batch of a query runs, so that a placement holds from the next one on."""

    def set_locality_wait_s(self, wait_s: float, *, at_once: bool = False) -> None:
        """Sets how long a task waits for the executor that holds its state, if the user has not.

        Args:
            wait_s: seconds.
            at_once: also for tasks that wait already.
        """

    def set_executor_count(self, count: int) -> bool:
        """Asks the cluster manager for `count` executors in all; False when it refused."""

    def watch_sources(self, *, wanted: bool) -> None:
        """Sets whether `BatchPlanned` and `RowsWaiting` come, for which sources are asked."""

    def bound(self, query: str, rows: float | None) -> str:
        """Bounds the rows of the next batches of a query, below the limits that the user has set.

        A bound that is not renewed for three batches ends by itself.

        Args:
            query: what it is called in events.
            rows: that a batch may read; None for the user's own limits alone.

        Returns:
            Why none of its sources takes a bound; "" if one does.
        """

    def drain(self, executor: str) -> None:
        """Takes an executor out of `executors()`."""

    def remove_executor(self, executor: str) -> None:
        """Retires an executor between two batches."""

    def give_locality_wait_back(self) -> None:
        """Tasks wait as they did before the first `set_locality_wait_s`."""

    def find_checkpoints(self) -> tuple[str, ...]:
        """Paths of the checkpoints whose state could be written anew, for other partitions.

        None before every query has committed a batch.

        Raises:
            BalancedStreamError: that is refused; the message says why.
        """

    def end_queries(self) -> bool:
        """Lets each query end after the batch that it is at; returns whether none runs any more.

        To be called again and again, with a pause.
        """

    def close(self) -> None:
        """Ends measuring and placing for good; nothing of the loop is left in the application."""

    def is_connection_lost(self, error: Exception) -> bool:
        """Whether an error means that the application is gone."""


class PlanChannel(Protocol):
    """Where plans come in and answers go out."""

    def take_plan(self) -> str | None:
        """The newest plan that came since the last call, as JSON; None if none did."""

    def send_answer(self, answer: Answer) -> None:
        """Sends an answer soon; it replaces one that was not sent yet."""

    def find_stop(self) -> str:
        """The request to end all queries that holds now, as JSON; empty for none."""

    def tell_stopped(self, stopped: Stopped) -> None:
        """Sends how far that is, soon."""

    def start_anew(self) -> None:
        """Ends the process, whose queries have ended and are wanted again."""


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """A micro-batch that was committed, and what a planner needs beside it.

    Attributes:
        event: the batch as the engine reported it.
        record: the batch as the history keeps it.
        executors: live executors that take work, id to cores.
        now_s: seconds since the Unix epoch.
        memory: what the executors take of memory.
    """

    event: BatchFinished
    record: BatchRecord
    executors: dict[str, int]
    now_s: float
    memory: Memory = Memory()  # noqa: RUF009 - frozen


class Planner(Protocol):
    """Makes plans, or brings them, and hands them to the realizer."""

    def look_for_plans(self, executors: Mapping[str, int], now_s: float) -> None:
        """Called twice a second and after each event."""

    def finish_batch(self, batch: FinishedBatch) -> None:
        """A micro-batch was committed, and the realizer knows of it."""

    def note_idle(self, query: str, executors: Mapping[str, int], now_s: float) -> None:
        """A query runs and waits for data; `executors` (id to cores) take work now."""

    def pause(self, reason: str) -> None:
        """From now on nothing is to change, for this reason; "" ends that."""

    def note_holders(self, holders: Sequence[SlotHolder]) -> None:
        """These queries hold slots now, and are not balanced."""

    def note_executors(self, executors: Mapping[str, int], now_s: float) -> None:
        """An executor joined, maybe in the middle of a batch; these (id to cores) take work now."""

    def see(
        self, event: BatchPlanned | RowsWaiting, executors: Mapping[str, int], now_s: float
    ) -> None:
        """Rows were seen before the batch that reads them ends; `executors` take work now."""

    def end_query(self, query: str) -> None:
        """A query is over."""

    def end_application(self) -> None:
        """The application is over, with all queries."""
