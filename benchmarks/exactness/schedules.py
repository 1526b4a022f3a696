"""Draws from a seed what is done to a stream while it runs; pure.

A schedule speaks of ranks ("the second of the live executors"), since which executors live at that
time is not known before.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

MOST_DELAY_S = 1.0
"""An action comes up to so long after its batch ended: at the edge or in the middle of the next."""


@dataclass(frozen=True)
class Action:
    """One disturbance.

    Attributes:
        what: `move` places partitions, `retire` drains an executor and removes it once a batch has
            passed, `add` asks for one more executor, `kill-executor` and `kill-driver` send
            SIGKILL.
        after_batch: happens after this batch has ended, ...
        delay_s: ... and so many seconds later.
        rank: which of the live executors, for `retire` and `kill-executor`.
        moves: state partition to the rank of its new executor, for `move`; in every operator.
        ahead: batches by which a `move` is prepared ahead of its time.
    """

    what: Literal["move", "retire", "add", "kill-executor", "kill-driver"]
    after_batch: int
    delay_s: float = 0.0
    rank: int = 0
    moves: tuple[tuple[int, int], ...] = ()
    ahead: int = 0


def draw_schedule(kind: str, seed: int, partitions: int) -> tuple[Action, ...]:
    """The actions of a schedule in the order of their batches.

    Moves follow most batches. Of six schedules about three lose an executor, three scale in (most
    of these out again) and two lose their driver; each independent of the others.

    Args:
        kind: of operator; every kind has schedules of its own.
        seed: the same seed gives the same schedule.
        partitions: number of state partitions of each operator.

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
    if rng.random() < 0.35:
        actions.append(_draw(rng, "kill-driver", rng.randrange(1, 6)))
    return tuple(sorted(actions, key=lambda a: (a.after_batch, a.delay_s)))


def _draw(
    rng: random.Random,
    what: Literal["retire", "add", "kill-executor", "kill-driver"],
    after_batch: int,
) -> Action:
    return Action(what, after_batch, rng.uniform(0.0, MOST_DELAY_S), rng.randrange(100))


def _draw_move(rng: random.Random, partitions: int, after_batch: int) -> Action:
    chosen = sorted(rng.sample(range(partitions), rng.randint(1, partitions)))
    return Action(
        "move",
        after_batch,
        rng.choice([0.0, rng.uniform(0.0, MOST_DELAY_S)]),
        moves=tuple((p, rng.randrange(100)) for p in chosen),
        ahead=rng.choice([0, 0, 1, 2]),
    )
