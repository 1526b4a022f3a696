"""Epochs: the partition of each key in a micro-batch, and the keys handed over between batches.

An epoch is the key assignment of a micro-batch. Spark's offset log names it, so all tasks of a
batch read the same epoch, also when the batch runs again. Epochs build on published protocols:

- A map that takes effect at a chosen time, without an extra barrier, is in the spirit of AutoFlow's
  implicit barriers.
- Preparing that map ahead with the engine's API alone is the idea of latency-conscious
  reconfiguration (Megaphone).
- Moving a key when its state is fetched is the lazy migration of Effective Workflow Auto-Scaling,
  which also names a hybrid migration.

Pushing keys in the background in the hybrid strategy, and fitting all of it into micro-batches, is
our own design:

- The batch before the switch runs with the old map. At its end the old owner writes the state of
  each key that must leave to a file. These are the keys that the epoch *asked* for or, under lazy
  handoff, the keys that had a record. The task reports the file when it succeeds.
- The epoch of the next batch changes the routes of exactly the reported keys. The new owner takes
  over the state before the key's first record, and the old owner clears its own copy.
- A key without reported state stays in its partition, and the next epoch asks for it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from balancedstream.core.keys.routes import MAX_ROUTE
from balancedstream.errors import InvalidInputError

HandoffStrategy = Literal["eager", "lazy", "hybrid"]
HANDOFF_STRATEGIES: tuple[str, ...] = get_args(HandoffStrategy)


@dataclass(frozen=True, slots=True)
class Piece:
    """The place of a key's state in a file.

    Attributes:
        file: name of the file, in the operator's folder.
        offset: position of the first byte of the state.
        state_bytes: length of the state; 0 for a key without state.
    """

    file: str
    offset: int
    state_bytes: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """A key that arrives at a new owner.

    Attributes:
        source: previous route of the key.
        piece: place of the key's state.
    """

    source: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class Epoch:
    """The key assignment of one or more micro-batches.

    Attributes:
        number: 0 for the first epoch of every stream; later epochs have higher numbers.
        batch: number of the first micro-batch with this epoch; see `in_batch`.
        routes: key to route, for keys with another route than 0.
        arrivals: keys that arrive at a new owner in `batch`; `routes` has their new routes.
        asked: keys that their owner must hand over at the end of the batch.
        touched: further keys, which their owner hands over if they have a record.
        most: maximum number of keys that a task hands over in one batch; None for no maximum.

    >>> Epoch().route_of('"de"')
    0
    """

    number: int = 0
    batch: int = 0
    routes: Mapping[str, int] = field(default_factory=dict)
    arrivals: Mapping[str, Arrival] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    most: int | None = None

    def route_of(self, key: str) -> int:
        """The route of a key in this epoch."""
        return self.routes.get(key, 0)

    def in_batch(self, batch: int) -> Epoch:
        """The epoch as a micro-batch sees it: `arrivals` and `asked` apply to `batch` only.

        >>> epoch = Epoch(3, 7, {'"de"': 2}, asked=('"fr"',), touched=('"it"',))
        >>> epoch.in_batch(7) == epoch, epoch.in_batch(8).asked, epoch.in_batch(8).touched
        (True, (), ('"it"',))
        """
        return self if batch == self.batch else replace(self, arrivals={}, asked=())

    def to_json(self) -> str:
        """One line of JSON that `parse_epoch` reads.

        >>> parse_epoch(Epoch(3, 7, {'"de"': 2}).to_json()) == Epoch(3, 7, {'"de"': 2})
        True
        """
        fields = {
            "number": self.number,
            "batch": self.batch,
            "routes": dict(self.routes),
            "arrivals": {
                key: (entry.source, entry.piece.file, entry.piece.offset, entry.piece.state_bytes)
                for key, entry in self.arrivals.items()
            },
            "asked": self.asked,
            "touched": self.touched,
            "most": self.most,
        }
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Wish:
    """Where keys must go, and how their state gets there.

    Attributes:
        routes: key to route, hottest first; keys left out get route 0.
        strategy: `eager` hands over all keys in one batch. `lazy` hands over a key when it has a
            record. `hybrid` does the same, and hands over `share` more keys in each batch.
        share: number of keys that hybrid handoff asks for in a batch, and the maximum number that a
            task hands over.
        effective_batch: first micro-batch with keys in their new partitions; None for as soon as
            possible.

    Raises:
        InvalidInputError: the strategy or a route is invalid, or the share is below 1.
    """

    routes: Mapping[str, int] = field(default_factory=dict)
    strategy: HandoffStrategy = "eager"
    share: int = 100
    effective_batch: int | None = None

    def __post_init__(self) -> None:
        if self.strategy not in HANDOFF_STRATEGIES:
            allowed = ", ".join(HANDOFF_STRATEGIES)
            message = f"strategy: must be one of {allowed}, not {self.strategy!r:.80}"
            raise InvalidInputError(message)
        if self.share < 1:
            message = f"share: must be 1 or more keys a batch, not {self.share}"
            raise InvalidInputError(message)
        for key, route in self.routes.items():
            # An epoch with an invalid route would fail its batch again and again.
            if type(route) is not int or not 0 <= route <= MAX_ROUTE:
                message = (
                    f"routes: key {key!s:.80} must have a whole number from 0 to {MAX_ROUTE}, not "
                    f"{route!r:.80}; nothing changed"
                )
                raise InvalidInputError(message)

    def to_json(self) -> str:
        """One line of JSON that `parse_wish` reads.

        >>> parse_wish(Wish({'"de"': 2}).to_json()) == Wish({'"de"': 2})
        True
        """
        fields = {
            "routes": dict(self.routes),
            "strategy": self.strategy,
            "share": self.share,
            "effective_batch": self.effective_batch,
        }
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Export:
    """The state that a successful task wrote for the new owners of its keys.

    Attributes:
        batch: number of the micro-batch at whose end the task wrote the state.
        partition: state partition of the task, 0-based.
        file: name of the file; each task attempt writes to a file of its own.
        pieces: key to (offset, state_bytes) in the file.
    """

    batch: int
    partition: int
    file: str
    pieces: Mapping[str, tuple[int, int]]


def advance_epoch(epoch: Epoch, wish: Wish | None, exports: Iterable[Export], batch: int) -> Epoch:
    """The epoch for the next micro-batch.

    Args:
        epoch: the epoch of the batch before.
        wish: where keys must go; None to leave all keys in their partitions.
        exports: state that successful tasks reported. Only the batch before counts. If two attempts
            reported one partition, neither counts, because Spark may keep either.
        batch: number of the next micro-batch.

    Returns:
        A new epoch, or `epoch` itself if nothing changes.

    >>> first = advance_epoch(Epoch(), Wish({'"de"': 3}), (), 5)
    >>> first.asked, first.routes
    (('"de"',), {})
    >>> export = Export(5, 0, "a", {'"de"': (0, 90)})
    >>> second = advance_epoch(first, Wish({'"de"': 3}), (export,), 6)
    >>> second.asked, second.routes, second.arrivals['"de"'].piece.state_bytes
    ((), {'"de"': 3}, 90)
    """
    targets = dict(epoch.routes if wish is None else wish.routes)
    if wish is None:
        wish = Wish()
    for key in epoch.routes:
        targets.setdefault(key, 0)
    routes = dict(epoch.routes)
    arrivals: dict[str, Arrival] = {}
    first = wish.effective_batch
    if first is None or batch >= first:
        for key, piece in _accept(exports, batch - 1).items():
            source, target = routes.get(key, 0), targets.get(key, 0)
            if source == target:
                continue
            arrivals[key] = Arrival(source, piece)
            routes[key] = target
    routes = {key: route for key, route in routes.items() if route}
    pending: list[str] = []
    # State that this batch writes arrives in the next batch.
    if first is None or batch + 1 >= first:
        pending = [key for key, target in targets.items() if routes.get(key, 0) != target]
    asked, touched = _ask(pending, wish, epoch)
    if not arrivals and not asked and touched == epoch.touched and not epoch.asked:
        return epoch
    return Epoch(
        number=epoch.number + 1,
        batch=batch,
        routes=routes,
        arrivals=arrivals,
        asked=asked,
        touched=touched,
        most=wish.share if wish.strategy == "hybrid" and pending else None,
    )


def _ask(
    pending: Sequence[str], wish: Wish, before: Epoch
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys that tasks must hand over, and the keys to hand over if they have a record."""
    if wish.strategy == "eager":
        return tuple(pending), ()
    if wish.strategy == "lazy":
        return (), tuple(pending)
    first = 0
    if not frozenset(before.asked).isdisjoint(pending):
        # A key whose handoff keeps failing must not block the others, so all keys take turns.
        first = before.number * wish.share % len(pending)
    in_turn = [*pending[first:], *pending[:first]]
    return tuple(in_turn[: wish.share]), tuple(pending)


def _accept(exports: Iterable[Export], batch: int) -> dict[str, Piece]:
    """The state that a batch exported, without partitions that two task attempts exported."""
    of_partition: dict[int, set[str]] = {}
    fresh = [export for export in exports if export.batch == batch]
    for export in fresh:
        of_partition.setdefault(export.partition, set()).add(export.file)
    return {
        key: Piece(export.file, offset, state_bytes)
        for export in fresh
        if len(of_partition[export.partition]) == 1
        for key, (offset, state_bytes) in export.pieces.items()
    }


def parse_epoch(text: str | bytes) -> Epoch:
    """Read an epoch that `Epoch.to_json` wrote.

    Raises:
        InvalidInputError: the text has another form.
    """
    try:
        fields = json.loads(text)
        arrivals = {
            key: Arrival(source, Piece(file, offset, state_bytes))
            for key, (source, file, offset, state_bytes) in fields.pop("arrivals").items()
        }
        asked, touched = tuple(fields.pop("asked")), tuple(fields.pop("touched"))
        return Epoch(arrivals=arrivals, asked=asked, touched=touched, **fields)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        message = f"epoch: is damaged or has another format ({problem})"
        raise InvalidInputError(message) from problem


def parse_wish(text: str | bytes) -> Wish:
    """Read a wish that `Wish.to_json` wrote.

    Raises:
        InvalidInputError: the text has another form.
    """
    try:
        return Wish(**json.loads(text))
    except (ValueError, TypeError, AttributeError) as problem:
        message = f"wish: is damaged or has another format ({problem})"
        raise InvalidInputError(message) from problem
