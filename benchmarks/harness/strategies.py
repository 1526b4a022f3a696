"""Megaphone's migration strategies: they split moves into steps, one step a batch.

They come from latency-conscious reconfiguration (Megaphone; the matching follows its authors'
code). The product spreads moves by seconds instead (`balancedstream.core.balance.migration`).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

from balancedstream.core.balance.hotspots import Move
from balancedstream.errors import InvalidInputError

STRATEGIES = ("all-at-once", "fluid", "batched", "optimized")
"""All of them count moves, and none of them the seconds that a move takes."""


def steps(
    moves: Sequence[Move], strategy: str, *, batch_size: int = 8
) -> Iterator[tuple[Move, ...]]:
    """Splits moves into steps; every move is in exactly one.

    Args:
        moves: most important first.
        strategy: `all-at-once`: one step. `fluid`: one move a step. `batched`: `batch_size` moves
            a step. `optimized`: each step is a maximum matching, so that no executor sends or
            receives twice.
        batch_size: moves a step under `batched`.

    Returns:
        The steps, in order, each found when it is asked for; none if there is nothing to move.

    Raises:
        InvalidInputError: an unknown strategy, or a batch size below 1.

    >>> moves = [Move(0, "a", "b"), Move(1, "a", "c"), Move(2, "d", "c")]
    >>> [[m.partition for m in step] for step in steps(moves, "optimized")]
    [[0, 2], [1]]
    """
    if strategy not in STRATEGIES:
        message = f"strategy: must be one of {', '.join(STRATEGIES)}, not {strategy!r}"
        raise InvalidInputError(message)
    if batch_size < 1:
        message = f"batch_size: must be at least 1, not {batch_size}"
        raise InvalidInputError(message)
    if strategy == "optimized":
        return _matchings(moves)
    size = {"all-at-once": max(1, len(moves)), "fluid": 1, "batched": batch_size}[strategy]
    return (tuple(moves[i : i + size]) for i in range(0, len(moves), size))


def _matchings(moves: Sequence[Move]) -> Iterator[tuple[Move, ...]]:
    """Takes one maximum matching of senders and receivers after the other."""
    waiting: dict[str, dict[str, deque[Move]]] = defaultdict(lambda: defaultdict(deque))
    for index, move in enumerate(moves):
        # A partition without an executor has no sender, so it counts as a sender of its own.
        sender = move.source or f"\0{index}"
        waiting[sender][move.target].append(move)
    while waiting:
        step = []
        for sender, target in sorted(_match(waiting).items()):
            queue = waiting[sender][target]
            step.append(queue.popleft())
            if not queue:
                del waiting[sender][target]
            if not waiting[sender]:
                del waiting[sender]
        yield tuple(step)


def _match(edges: dict[str, dict[str, deque[Move]]]) -> dict[str, str]:
    """A maximum bipartite matching, sender to receiver (Hopcroft and Karp)."""
    of_sender: dict[str, str] = {}
    of_receiver: dict[str, str] = {}
    while True:
        level = {sender: 0 for sender in edges if sender not in of_sender}
        queue = deque(level)
        reachable = False
        while queue:
            sender = queue.popleft()
            for receiver in edges[sender]:
                holder = of_receiver.get(receiver)
                if holder is None:
                    reachable = True
                elif holder not in level:
                    level[holder] = level[sender] + 1
                    queue.append(holder)
        if not reachable:
            return of_sender
        for sender in [s for s in edges if s not in of_sender]:
            _augment(sender, edges, level, of_sender, of_receiver)


def _augment(
    root: str,
    edges: dict[str, dict[str, deque[Move]]],
    level: dict[str, int],
    of_sender: dict[str, str],
    of_receiver: dict[str, str],
) -> None:
    """Follows one shortest augmenting path from an unmatched sender, if there still is one."""
    path: list[tuple[str, str]] = []
    stack = [(root, iter(edges[root]))]
    while stack:
        sender, receivers = stack[-1]
        for receiver in receivers:
            holder = of_receiver.get(receiver)
            if holder is None:
                path.append((sender, receiver))
                for s, r in path:
                    of_sender[s] = r
                    of_receiver[r] = s
                return
            if level.get(holder) == level[sender] + 1:
                path.append((sender, receiver))
                stack.append((holder, iter(edges[holder])))
                break
        else:
            del level[sender]
            stack.pop()
            if path:
                path.pop()
