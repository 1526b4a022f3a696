"""Draws from a seed what is done to a stream while it runs; pure.

A schedule speaks of ranks ("the second of the live executors"), since which executors live at that
time is not known before.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

from balancedstream.core.keys.epochs import HANDOFF_STRATEGIES, HandoffStrategy

MAX_DELAY_S = 1.0
"""An action comes up to so long after its batch ended: at the edge or in the middle of the next."""


@dataclass(frozen=True)
class Action:
    """One disturbance.

    Attributes:
        what: `move` places partitions, `retire` drains an executor and removes it once a batch has
            passed, `add` asks for one more executor, `kill-executor` and `kill-driver` send
            SIGKILL; `reassign` wants keys in other state partitions, and all others at home.
        after_batch: happens after this batch has ended, ...
        delay_s: ... and this many seconds later.
        rank: which of the live executors, for `retire` and `kill-executor`.
        moves: state partition to the rank of its new executor, for `move`; in every operator.
        ahead: batches by which a `move` or a `reassign` is planned ahead of its time.
        prepared: state partition to the rank of the executor that loads its state beforehand, for
            `move`: the new one, or another one in vain.
        keys: key to its new state partition, for `reassign`.
        strategy: how their state is handed over.
        step: the driver is killed as soon as this step of a handoff is seen on the storage, or at
            once where it is empty.
    """

    what: Literal["move", "reassign", "retire", "add", "kill-executor", "kill-driver"]
    after_batch: int
    delay_s: float = 0.0
    rank: int = 0
    moves: tuple[tuple[int, int], ...] = ()
    ahead: int = 0
    prepared: tuple[tuple[int, int], ...] = ()
    keys: tuple[tuple[int, int], ...] = ()
    strategy: HandoffStrategy = "eager"
    step: str = ""


STEPS = (
    "asked-planned",
    "state-written",
    "asked-committed",
    "switch-written",
    "switch-planned",
    "taken-in",
    "switch-committed",
)
"""Of a handoff, in their order."""


def draw_schedule(kind: str, seed: int, partitions: int, keys: int = 0) -> tuple[Action, ...]:
    """The actions of a schedule in the order of their batches.

    Moves follow most batches. Of six schedules about three lose an executor, three scale in (most
    of these out again) and two lose their driver; each independent of the others.

    Args:
        kind: of operator; every kind has schedules of its own.
        seed: the same seed gives the same schedule.
        partitions: number of state partitions of each operator.
        keys: how many keys there are to reassign, from 0 on; 0 where none is.

    >>> draw_schedule("join", 7, 4) == draw_schedule("join", 7, 4)
    True
    >>> sum(a.what == "move" for a in draw_schedule("join", 7, 4)) >= 2
    True
    """
    rng = random.Random(f"{kind} {seed}")
    actions = [_draw_move(rng, partitions, after) for after in (0, 3)]
    actions += [_draw_move(rng, partitions, n) for n in (1, 2, 4, 5, 6) if rng.random() < 0.7]
    if rng.random() < 0.5:
        actions.append(_draw(rng, "kill-executor", rng.randrange(0, 6)))
    if rng.random() < 0.5:
        retired_after = rng.randrange(0, 4)
        actions.append(_draw(rng, "retire", retired_after))
        if rng.random() < 0.7:
            actions.append(_draw(rng, "add", retired_after + rng.randrange(1, 4)))
    if rng.random() < (0.7 if keys else 0.35):
        killed = _draw(rng, "kill-driver", rng.randrange(1, 6))
        actions.append(replace(killed, step=rng.choice(STEPS)) if keys else killed)
    if keys:
        batches = [n for n in range(1, 7) if rng.random() < 0.5]
        actions.append(_draw_reassignment(rng, partitions, keys, 0, least=2))
        actions += [_draw_reassignment(rng, partitions, keys, after) for after in batches]
    # A source of its own: what a seed did before stays what it does.
    chance = random.Random(f"{kind} {seed} prepared")
    actions = [_draw_preparation(chance, action) for action in actions]
    return tuple(sorted(actions, key=lambda a: (a.after_batch, a.delay_s)))


def _draw(
    rng: random.Random,
    what: Literal["retire", "add", "kill-executor", "kill-driver"],
    after_batch: int,
) -> Action:
    return Action(what, after_batch, rng.uniform(0.0, MAX_DELAY_S), rng.randrange(100))


def _draw_reassignment(
    rng: random.Random, partitions: int, keys: int, after_batch: int, least: int = 0
) -> Action:
    # None at all withdraws what was wanted, and sends home who has moved.
    count = rng.choice([n for n in (0, 1, 2, keys // 4, keys // 2) if n >= least])
    return Action(
        "reassign",
        after_batch,
        rng.choice([0.0, rng.uniform(0.0, MAX_DELAY_S)]),
        ahead=rng.choice([0, 0, 1, 2]),
        keys=tuple((key, rng.randrange(partitions)) for key in rng.sample(range(keys), count)),
        strategy=rng.choice(HANDOFF_STRATEGIES),  # type: ignore[arg-type] # they are all there are
    )


def _draw_preparation(rng: random.Random, action: Action) -> Action:
    """Most moves are prepared, some on the wrong executor."""
    chosen = [(p, rank) for p, rank in action.moves if rng.random() < 0.75]
    return replace(
        action,
        prepared=tuple((p, rank if rng.random() < 0.8 else rank + 1) for p, rank in chosen),
    )


def _draw_move(rng: random.Random, partitions: int, after_batch: int) -> Action:
    chosen = sorted(rng.sample(range(partitions), rng.randint(1, partitions)))
    return Action(
        "move",
        after_batch,
        rng.choice([0.0, rng.uniform(0.0, MAX_DELAY_S)]),
        moves=tuple((p, rng.randrange(100)) for p in chosen),
        ahead=rng.choice([0, 0, 1, 2]),
    )
