"""Which key is where in which micro-batch, and whose state changes hands between two of them.

An epoch is the assignment that a micro-batch runs with. Every task of a batch reads the same one,
named by Spark's own offset log, so a batch that is run again sees the same again. The protocols
that this stands on: the map that takes effect at a chosen time and needs no barrier beside the one
that is there anyway is in the spirit of AutoFlow's implicit barriers; preparing it ahead, with the
engine's own API alone, is the idea of the latency-conscious reconfiguration (Megaphone); that a key
changes its owner when its state is fetched is the lazy migration of Effective Workflow
Auto-Scaling, and a lazy one that also pushes in the background its hybrid one. How they are
fitted to micro-batches is our own design:

- The batch before the switch runs with the old map. At its end the old owner writes down the state
  of each key that is to go (it was *asked* to, or under lazy handoff a record of the key came), and
  its task's success reports the file.
- The next batch's epoch routes exactly those keys anew whose state was so reported: the new owner
  takes the state in before the key's first record, the old one clears its own.
- A key whose export did not arrive stays where it is and is asked again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from balancedstream.core.routes import MAX_ROUTE
from balancedstream.errors import InvalidInputError

HandoffStrategy = Literal["eager", "lazy", "hybrid"]
HANDOFF_STRATEGIES: tuple[str, ...] = get_args(HandoffStrategy)


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a key's state was written down.

    Attributes:
        file: name of the file; its folder is the operator's own.
        offset: first byte of the state.
        state_bytes: its length; 0 for a key that has no state.
    """

    file: str
    offset: int
    state_bytes: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """A key that changes its owner.

    Attributes:
        source: route that it leaves.
        piece: its state.
    """

    source: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one or more micro-batches run with.

    Attributes:
        number: 0 for the one that every stream begins with; a later one has a higher number.
        batch: micro-batch that it was made for; see `in_batch`.
        routes: keys that have another route than 0, with it.
        arrivals: keys whose state changes hands in `batch`; `routes` has them at their new place.
        asked: keys whose owner hands their state over at the end of the batch.
        touched: further ones whose owner does so if a record of the key comes.
        most: how many keys a task hands over at most in one batch; None for all.

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
        """What of it holds in a micro-batch: who arrives, and who is asked, in its own one alone.

        >>> epoch = Epoch(3, 7, {'"de"': 2}, asked=('"fr"',), touched=('"it"',))
        >>> epoch.in_batch(7) == epoch, epoch.in_batch(8).asked, epoch.in_batch(8).touched
        (True, (), ('"it"',))
        """
        return self if batch == self.batch else replace(self, arrivals={}, asked=())

    def to_json(self) -> str:
        """One line of text that `parse_epoch` reads back.

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
    """Where keys shall be, and how their state goes there.

    Attributes:
        routes: key to route, hottest first; a key that is left out shall have route 0.
        strategy: eager hands all state over in one batch; lazy a key's when a record of it comes;
            hybrid too, and besides `share` keys in each batch.
        share: keys that hybrid handoff asks for in a batch, and the most that a task hands over.
        effective_batch: first micro-batch that any key is at its new place; None for soon.

    Raises:
        InvalidInputError: an unknown strategy, a share below 1, or a route that is none.
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
            # An epoch with another one would fail its batch for ever.
            if type(route) is not int or not 0 <= route <= MAX_ROUTE:
                message = (
                    f"routes: key {key!s:.80} must have a whole number from 0 to {MAX_ROUTE}, not "
                    f"{route!r:.80}; nothing changed"
                )
                raise InvalidInputError(message)

    def to_json(self) -> str:
        """One line of text that `parse_wish` reads back.

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
    """What a successful task says of the state that it wrote down for others.

    Attributes:
        batch: micro-batch that it was written at the end of.
        partition: state partition of the task.
        file: name of the file; no two task attempts write to one.
        pieces: key to (offset, state_bytes) in the file.
    """

    batch: int
    partition: int
    file: str
    pieces: Mapping[str, tuple[int, int]]


def advance_epoch(epoch: Epoch, wish: Wish | None, exports: Iterable[Export], batch: int) -> Epoch:
    """The epoch that a micro-batch is planned with.

    Args:
        epoch: that the batch before ran with.
        wish: where keys shall be; None while nobody said: they stay.
        exports: what successful tasks reported; only those of the batch before count, and of a
            partition that two attempts reported, none does: which of them Spark keeps is unknown.
        batch: number of the micro-batch that is planned now.

    Returns:
        A new epoch, or `epoch` itself where it says all there is to say.

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
    # What is written down at the end of this batch is for the next one.
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
    """Which keys are asked for in any case, and which if a record of theirs comes."""
    if wish.strategy == "eager":
        return tuple(pending), ()
    if wish.strategy == "lazy":
        return (), tuple(pending)
    first = 0
    if not frozenset(before.asked).isdisjoint(pending):
        # Keys that are asked for in vain shall not hold up the others: all have their turn.
        first = before.number * wish.share % len(pending)
    in_turn = [*pending[first:], *pending[:first]]
    return tuple(in_turn[: wish.share]), tuple(pending)


def _accept(exports: Iterable[Export], batch: int) -> dict[str, Piece]:
    """The state that was written down at the end of a batch, where it is certain whose counts."""
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
        InvalidInputError: it is not of that form.
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
        message = f"epoch: is not as it was written ({problem})"
        raise InvalidInputError(message) from problem


def parse_wish(text: str | bytes) -> Wish:
    """Read a wish that `Wish.to_json` wrote.

    Raises:
        InvalidInputError: it is not of that form.
    """
    try:
        return Wish(**json.loads(text))
    except (ValueError, TypeError, AttributeError) as problem:
        message = f"wish: is not as it was written ({problem})"
        raise InvalidInputError(message) from problem
