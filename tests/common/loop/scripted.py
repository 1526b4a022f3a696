"""An engine that reports a script, plans that come in turn, and a spectator that keeps it all."""

from __future__ import annotations

from collections.abc import Mapping

from balancedstream.core.memory.use import MemoryLimits
from balancedstream.core.samples import SlotHolder
from balancedstream.core.wire.plan import Answer, Plan
from balancedstream.core.wire.stopping import Stopped
from balancedstream.engine.events import (
    ApplicationEnded,
    BatchFinished,
    Event,
    ExecutorAdded,
    ExecutorRemoved,
)
from balancedstream.loop.ports import Engine, PlanChannel
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    MoveRecord,
    PreparationOutcome,
    ScaleRecord,
)
from balancedstream.record.spectators import Spectator


class ScriptedEngine(Engine):
    """Reports what it was given, keeps what it was asked for."""

    def __init__(self, events: list[Event], cores: dict[str, int]) -> None:
        self._events = iter(events)
        self.now_s = 1000.0
        self.cores = cores
        self.placed: list[dict[int, str]] = []
        self.watched: list[bool] = []
        self.preparing = False
        self.between_batches = False
        self.prepared: list[dict[int, str]] = []
        self.partners: list[dict[int, int]] = []
        self.from_batches: list[int | None] = []
        self.removed: list[str] = []
        self.draining: set[str] = set()
        self.counts: list[int] = []
        self.bounds: list[float | None] = []
        self.unbounded = ""
        self.waits_at_once: list[bool] = []
        self.is_closed = False
        self.warms_up = False
        self.holders: tuple[SlotHolder, ...] = ()
        self.wait_s: float | None = None
        self.own_wait = ""
        self.memory_limits = MemoryLimits()
        self.checkpoints: list[tuple[str, ...] | Exception] = []
        self.ends: list[bool] = []

    def wait(self, timeout_s: float) -> Event | None:
        event = next(self._events, ApplicationEnded())
        if isinstance(event, ExecutorAdded):
            self.cores[event.executor] = event.cores
        if isinstance(event, ExecutorRemoved):
            self.cores.pop(event.executor, None)
        if isinstance(event, BatchFinished):
            self.now_s = event.sample.finished_s
        return event

    def executors(self) -> dict[str, int]:
        return {e: c for e, c in self.cores.items() if e not in self.draining}

    def place(
        self,
        query: str,
        operator: int,
        targets: Mapping[int, str],
        *,
        from_batch: int | None = None,
    ) -> None:
        self.placed.append(dict(targets))
        self.from_batches.append(from_batch)

    def set_warm_up(self, *, wanted: bool) -> None:
        self.warms_up = wanted

    def list_holders(self) -> tuple[SlotHolder, ...]:
        return self.holders

    def give_locality_wait_back(self) -> None:
        self.wait_s = None

    def can_prepare(self) -> bool:
        return self.preparing

    def prepare(
        self,
        query: str,
        operator: int,
        targets: Mapping[int, str],
        *,
        partners: Mapping[int, int] | None = None,
        from_batch: int | None = None,
    ) -> None:
        self.prepared.append(dict(targets))
        self.partners.append(dict(partners or {}))

    def is_between_batches(self, query: str) -> bool:
        return self.between_batches

    def set_locality_wait_s(self, wait_s: float, *, at_once: bool = False) -> None:
        self.wait_s = wait_s
        self.waits_at_once.append(at_once)

    def watch_sources(self, *, wanted: bool) -> None:
        """The script has what is told."""
        self.watched.append(wanted)

    def bound(self, query: str, rows: float | None) -> str:
        self.bounds.append(rows)
        return self.unbounded

    def set_executor_count(self, count: int) -> bool:
        self.counts.append(count)
        return True

    def find_checkpoints(self) -> tuple[str, ...]:
        found = self.checkpoints.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def end_queries(self) -> bool:
        return self.ends.pop(0)

    def is_connection_lost(self, error: Exception) -> bool:
        return False

    def drain(self, executor: str) -> None:
        self.draining.add(executor)

    def remove_executor(self, executor: str) -> None:
        self.removed.append(executor)

    def close(self) -> None:
        self.is_closed = True


class ScriptedPlans(PlanChannel):
    """Brings one plan each time it is asked, and keeps the answers."""

    def __init__(self, *plans: str | Plan | None) -> None:
        self._plans = [p.to_json() if isinstance(p, Plan) else p for p in plans]
        self.answers: list[Answer] = []
        self.stop = ""
        self.stopped: list[Stopped] = []
        self.starts_anew = 0

    def take_plan(self) -> str | None:
        return self._plans.pop(0) if self._plans else None

    def bring(self, plan: Plan) -> None:
        self._plans.append(plan.to_json())

    def send_answer(self, answer: Answer) -> None:
        self.answers.append(answer)

    def find_stop(self) -> str:
        return self.stop

    def tell_stopped(self, stopped: Stopped) -> None:
        self.stopped.append(stopped)

    def start_anew(self) -> None:
        self.starts_anew += 1


class RecordingSpectator(Spectator):
    """Keeps moves, decisions and notes, shows nothing."""

    def __init__(self) -> None:
        self.moves: list[MoveRecord] = []
        self.decisions: list[DecisionRecord] = []
        self.notes: list[str] = []

    def on_batch(self, record: BatchRecord) -> None: ...
    def on_decision(self, record: DecisionRecord) -> None:
        self.decisions.append(record)

    def on_scale(self, record: ScaleRecord) -> None: ...
    def on_preparation(
        self, outcome: PreparationOutcome, state_bytes: int, spent_s: float
    ) -> None: ...
    def on_move(self, record: MoveRecord) -> None:
        self.moves.append(record)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None: ...
