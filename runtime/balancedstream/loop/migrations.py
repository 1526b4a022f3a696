"""The moves of an application from their decision to their end: preparing, due, settled.

The target of a move first loads the partition's state, beside the batches: the move is *preparing*.
When the target has the state, the move is *due*: the next task may run there. It is *settled* when
a task has. Megaphone prepares reconfigurations ahead of time too; how that fits micro-batches and
Spark's state stores is our own design.

A move that cannot be prepared is due at once, and its first task waits for the state: where Spark's
stores cannot be opened ahead, where a load failed, and where the old owner is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from balancedstream.core.balance.hotspots import Move
from balancedstream.core.balance.migration import pair_exchanges
from balancedstream.core.samples import OperatorId, TaskSample
from balancedstream.engine.events import Preparation
from balancedstream.loop.ports import Engine
from balancedstream.record.journal import Journal
from balancedstream.record.records import PreparationOutcome

SETTLE_BATCHES = 5
"""A move is given up, with the reason, if its task is not on the target after this many batches."""

ANSWER_BATCHES = 3
"""A settled move waits so long for its target to say that it brought the state up to date."""


Split = Callable[[Sequence[Move]], Iterator[tuple[Move, ...]]]
"""Splits moves, the most important first, into steps."""


def make_one_step(moves: Sequence[Move]) -> Iterator[tuple[Move, ...]]:
    """All moves together."""
    yield tuple(moves)


@dataclass
class _Way:
    """A move that is preparing, due, or settled.

    Attributes:
        move: from where to where.
        prepares: whether the target was asked to load the state beforehand.
        due_after: the move is due in batches after this one; None while it is preparing.
        loaded_in: the batch in which the target was first seen to have the state of an earlier one.
        settled_in: the batch in which it settled.
        state_bytes: of the partition, when it was last seen.
        report: the target's last word; None before the first one.
        partner: the partition whose move is made in the same batch; None for any batch.
    """

    move: Move
    prepares: bool
    due_after: int | None
    loaded_in: int | None = None
    settled_in: int | None = None
    state_bytes: int = 0
    report: Preparation | None = None
    partner: int | None = None

    def has_failed(self) -> bool:
        """Whether the move is made without its preparation, which was tried."""
        return not self.prepares and self.report is not None

    def is_answered(self, batch: int) -> bool:
        """Whether nothing more is to come of a settled move's preparation."""
        report, settled_in = self.report, self.settled_in
        if settled_in is None or report is None:
            return False
        answered = report.hand_over_s is not None or bool(report.failure)
        return answered or batch - settled_in >= ANSWER_BATCHES


@dataclass
class _Migration:
    """The moves of one operator that are under way: some in work, the rest waiting."""

    coming: tuple[Move, ...] = ()
    split: Split = make_one_step
    ways: dict[int, _Way] = field(default_factory=dict)
    from_batch: int | None = None
    at_once: bool = False

    def targets(self) -> dict[int, str]:
        """The target of each partition whose move has not ended."""
        left = {move.partition: move.target for move in self.coming}
        return left | {p: way.move.target for p, way in self.in_work().items()}

    def in_work(self) -> dict[int, _Way]:
        """The moves that are preparing or due."""
        return {p: way for p, way in self.ways.items() if way.settled_in is None}

    def is_busy(self) -> bool:
        """Whether the next step must wait: it may load beside moves that have what they need."""
        return any(way.due_after is None or not way.prepares for way in self.in_work().values())


class Migrations:
    """Makes the moves of all operators.

    Args:
        engine: the application.
        journal: records how every move ends.
    """

    def __init__(self, engine: Engine, journal: Journal) -> None:
        self._engine = engine
        self._journal = journal
        self._migrations: dict[OperatorId, _Migration] = {}
        self._unprepared: set[OperatorId] = set()

    def under_way(self) -> dict[OperatorId, dict[int, str]]:
        """The target of each partition whose move has not ended, by (query, operator)."""
        targets = {
            operator: migration.targets() for operator, migration in self._migrations.items()
        }
        return {operator: left for operator, left in targets.items() if left}

    def prepares(self, operator: OperatorId) -> bool:
        """Whether an operator's moves are prepared, as far as it is known."""
        return self._engine.can_prepare() and operator not in self._unprepared

    def count_preparing(self, operator: OperatorId) -> int:
        """How many of an operator's partitions are being loaded ahead of their moves."""
        return sum(way.due_after is None for way in self._find(operator).in_work().values())

    def list_loading(self) -> list[tuple[OperatorId, Move]]:
        """The moves of all operators whose targets load their state ahead now."""
        return [
            (operator, way.move)
            for operator, migration in self._migrations.items()
            for way in migration.in_work().values()
            if way.prepares and way.due_after is None
        ]

    def list_begun(self, operator: OperatorId) -> set[str]:
        """The targets of moves that do not wait for their step any more."""
        return {way.move.target for way in self._find(operator).ways.values()}

    def has_due(self, operator: OperatorId) -> bool:
        """Whether the next task of a moving partition may run on its target."""
        return any(way.due_after is not None for way in self._find(operator).in_work().values())

    def is_waiting_for_batch(self, operator: OperatorId) -> bool:
        """Whether an operator's moves are to happen in a certain batch."""
        return self._find(operator).from_batch is not None

    def begin(
        self,
        operator: OperatorId,
        moves: Sequence[Move],
        split: Split,
        last_batch: int,
        from_batch: int | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """Begins moves in steps, in place of those that were under way.

        Args:
            operator: (query, operator).
            moves: most important first. What a target loads already does not wait for its step.
            split: splits the moves that are left into steps, whenever one begins: by then it is
                better known what a load takes.
            last_batch: the last finished batch.
            from_batch: the first batch with the new placement; None for any.
            at_once: whether the moves do not wait for state that is not there yet.
        """
        before = self._find(operator)
        wanted = {move.partition: move for move in moves}
        kept = {
            p: way
            for p, way in before.ways.items()
            if (way.prepares or (from_batch is None and way.has_failed()))
            and not (at_once and way.due_after is None)
            and (p not in wanted if way.settled_in is not None else _is_same(way, wanted.get(p)))
        }
        for partition, way in before.ways.items():
            if partition not in kept:
                self._end_preparation(operator, way, "wasted" if way.settled_in is None else "used")
                if at_once and way.due_after is None:
                    self._journal.make_move_due(operator, partition, None)
        rest = tuple(move for move in moves if move.partition not in kept)
        migration = _Migration(rest, split, kept, from_batch, at_once)
        self._migrations[operator] = migration
        self._begin_step(operator, migration, last_batch)
        self._ask(operator, migration)
        self._forget_if_ended(operator, migration)

    def adopt(
        self, operator: OperatorId, urgent: Set[int], moves: Sequence[Move], last_batch: int
    ) -> None:
        """Begins moves at once and unprepared, because the old owner is gone.

        Args:
            operator: (query, operator).
            urgent: partitions whose moves are under way and come first now.
            moves: new moves.
            last_batch: the last finished batch.
        """
        migration = self._migrations.setdefault(operator, _Migration())
        coming = {move.partition: move for move in migration.coming}
        known = coming | {p: way.move for p, way in migration.in_work().items()}
        now = {p: known[p] for p in urgent} | {move.partition: move for move in moves}
        migration.coming = tuple(m for m in migration.coming if m.partition not in now)
        migration.from_batch = None
        for partition, move in now.items():
            before = migration.ways.get(partition)
            if before is not None and _is_same(before, move) and before.due_after is not None:
                continue
            if before is not None:
                self._end_preparation(operator, before, "wasted")
            migration.ways[partition] = _Way(move, prepares=False, due_after=last_batch)
        self._ask(operator, migration)

    def finish_batch(
        self,
        operator: OperatorId,
        batch: int,
        tasks: Mapping[int, TaskSample],
        preparations: Iterable[Preparation],
    ) -> list[tuple[int, float]]:
        """Notes where an operator's tasks ran: settles moves, gives up those that are overdue.

        Args:
            operator: (query, operator).
            batch: its number.
            tasks: by partition.
            preparations: of the whole query.

        Returns:
            The loads that ended since the last batch: bytes and seconds. The first one of an
            executor is left out: it loads classes, too.
        """
        migration = self._migrations.get(operator)
        if migration is None:
            return []
        reports = {(r.partition, r.executor): r for r in preparations if r.operator == operator[1]}
        loads = []
        asked = self._list_asked(migration)
        for partition, way in list(migration.ways.items()):
            report = reports.get((partition, way.move.target))
            ran = tasks.get(partition)
            way.state_bytes = ran.state_bytes if ran else way.state_bytes
            if report is not None:
                known = way.report.load_s if way.report else None
                if report.load_s is not None and known is None and not report.first:
                    loads.append((way.state_bytes, report.load_s))
                way.report = report
                self._follow(operator, way, self._judge(migration, way, report, batch), batch)
            if way.settled_in is None:
                ended = self._settle(operator, way, ran, batch)
            else:
                ended = self._end_answered(operator, way, batch)
            if ended:
                del migration.ways[partition]
        if not migration.is_busy():
            self._begin_step(operator, migration, batch)
        if self._list_asked(migration) != asked:
            self._ask(operator, migration)
        self._forget_if_ended(operator, migration)
        return loads

    def withdraw(self, reason: str) -> None:
        """Ends all moves; what has arrived stays, and Spark places the rest."""
        for operator in list(self._migrations):
            self._end(operator, reason)
            self._ask(operator, _Migration())

    def end_query(self, query: str) -> None:
        """Ends a query's moves with the query."""
        for operator in [operator for operator in self._migrations if operator[0] == query]:
            self._end(operator, "the query ended")
        self._unprepared = {operator for operator in self._unprepared if operator[0] != query}

    def _end(self, operator: OperatorId, reason: str) -> None:
        migration = self._migrations.pop(operator)
        for partition in migration.targets():
            self._journal.drop_move(operator, partition, reason)
        for way in migration.ways.values():
            self._end_preparation(operator, way, "wasted")

    def _find(self, operator: OperatorId) -> _Migration:
        return self._migrations.get(operator, _Migration())

    def _forget_if_ended(self, operator: OperatorId, migration: _Migration) -> None:
        if not migration.ways and not migration.coming:
            del self._migrations[operator]

    def _begin_step(self, operator: OperatorId, migration: _Migration, last_batch: int) -> None:
        if not migration.coming:
            return
        prepares = self.prepares(operator) and not migration.at_once
        from_batch = migration.from_batch
        due_after = last_batch if from_batch is None else max(last_batch, from_batch - 1)
        step = next(migration.split(migration.coming))
        begun = {move.partition for move in step}
        migration.coming = tuple(m for m in migration.coming if m.partition not in begun)
        partners = pair_exchanges(step)
        for move in step:
            way = _Way(
                move,
                prepares,
                None if prepares else due_after,
                partner=partners.get(move.partition),
            )
            migration.ways[move.partition] = way
            if prepares:
                self._journal.prepare_move(operator, move.partition)

    def _judge(
        self, migration: _Migration, way: _Way, report: Preparation, batch: int
    ) -> Preparation:
        """The report, or that it failed: a target that has the state must be told more in time."""
        if report.state == "loading":
            way.loaded_in = None
        if report.state == "loaded" and batch + 1 >= (migration.from_batch or 0):
            way.loaded_in = batch if way.loaded_in is None else way.loaded_in
            if batch - way.loaded_in >= SETTLE_BATCHES:
                return replace(report, state="failed", failure="no batch was seen to its end")
        return report

    def _follow(self, operator: OperatorId, way: _Way, report: Preparation, batch: int) -> None:
        """Takes in what a target says of its preparation."""
        if way.due_after is not None:
            return
        match report.state:
            case "due":
                way.due_after = batch
                self._journal.make_move_due(operator, way.move.partition, report.load_s)
            case "failed" | "impossible":
                way.due_after = batch
                way.prepares = False
                self._journal.make_move_due(operator, way.move.partition, None)
                if report.state == "failed":
                    self._end_preparation(operator, way, "failed")
                elif operator not in self._unprepared:
                    self._unprepared.add(operator)
                    self._journal.note(
                        f"{operator[0]}: state is not loaded ahead of moves: {report.failure}. "
                        "Results are right, and a moved partition's first batch waits for its "
                        "state."
                    )

    def _settle(self, operator: OperatorId, way: _Way, ran: TaskSample | None, batch: int) -> bool:
        """Settles a move that is made, and gives up one that is overdue; whether all has ended."""
        if ran is not None and ran.executor == way.move.target:
            self._journal.settle_move(operator, ran)
            way.settled_in = batch
            if way.prepares and way.report is not None and way.report.state == "due":
                return self._end_answered(operator, way, batch)
        else:
            reason = self._why_given_up(way, batch)
            if not reason:
                return False
            self._journal.drop_move(operator, way.move.partition, reason)
        self._end_preparation(operator, way, "wasted")
        return True

    def _end_answered(self, operator: OperatorId, way: _Way, batch: int) -> bool:
        """Ends the preparation of a settled move, once it is known how; whether it is."""
        if not way.is_answered(batch):
            return False
        brought = way.report is not None and way.report.hand_over_s is not None
        self._end_preparation(operator, way, "used" if brought else "failed")
        return True

    def _why_given_up(self, way: _Way, batch: int) -> str:
        target = way.move.target
        if target not in self._engine.executors():
            return f"executor {target} is gone or leaving"
        if way.due_after is not None and batch - way.due_after >= SETTLE_BATCHES:
            return (
                f"after {batch - way.due_after} batches the task still runs elsewhere: executor "
                f"{target} took no task in time (see spark.locality.wait)"
            )
        return ""

    def _end_preparation(
        self, operator: OperatorId, way: _Way, outcome: PreparationOutcome
    ) -> None:
        if way.report is None or (outcome == "wasted" and not way.prepares):
            return
        spent_s = (way.report.load_s or 0.0) + (way.report.hand_over_s or 0.0)
        self._journal.end_preparation(
            operator,
            way.move,
            outcome,
            state_bytes=way.state_bytes,
            spent_s=spent_s,
            failure=way.report.failure,
        )

    def _list_asked(self, migration: _Migration) -> list[tuple[int, str, bool, bool]]:
        return [
            (p, way.move.target, way.prepares, way.settled_in is None)
            for p, way in migration.ways.items()
        ]

    def _ask(self, operator: OperatorId, migration: _Migration) -> None:
        """Tells the engine what to prepare, and then what to place, which waits for it."""
        query, number = operator
        if self._engine.can_prepare():
            ways = {p: way for p, way in migration.ways.items() if way.prepares}
            self._engine.prepare(
                query,
                number,
                {p: way.move.target for p, way in ways.items()},
                partners={p: way.partner for p, way in ways.items() if way.partner in ways},
                from_batch=migration.from_batch,
            )
        placed = {p: way.move.target for p, way in migration.in_work().items()}
        self._engine.place(query, number, placed, from_batch=migration.from_batch)


def _is_same(way: _Way, move: Move | None) -> bool:
    return move is not None and way.move.target == move.target
