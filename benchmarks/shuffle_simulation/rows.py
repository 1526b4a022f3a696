"""The rows of a simulated run: which items they have, and what each of them costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from harness.results import Case
from numpy.typing import NDArray

EXECUTORS = 5
ITEMS = 4096
COST_LEVELS = 64
SLOWED_EXECUTOR = 0
SLOWDOWN = 2.0

Items = NDArray[np.int64]
Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """What all runs have in common.

    Attributes:
        batches: in a run.
        rows_per_batch: in each of them.
        warm_up_batches: not measured; whatever changes in a run changes after them.
        map_tasks: route at the same time, independently of each other.
        epsilon: of the sketches.
        delta: of the sketches.
        window: of the state machine, in rows of an instance.
    """

    batches: int = 16
    rows_per_batch: int = 2048
    warm_up_batches: int = 8
    map_tasks: int = 4
    epsilon: float = 0.001
    delta: float = 0.1
    window: int = 256


SMOKE = Setting(batches=6, rows_per_batch=512, warm_up_batches=3, window=64)


@dataclass(frozen=True)
class Rows:
    """The rows of a run, batch by batch.

    Attributes:
        items: of the rows.
        costs_s: what each row costs at full speed.
        slowdowns: how many times longer each executor takes.
        marks: two hashes of each row.
    """

    items: Items
    costs_s: Seconds
    slowdowns: Seconds
    marks: Items


def draw_rows(case: Case, setting: Setting, seed: int) -> Rows:
    """Draws what each item costs, and the items of all rows.

    As many items cost 1 ms as 2 ms, and so on up to 64 ms. Item 0 is the most frequent one. Where
    costs shift, every item has another cost after the warm-up.
    """
    chance = np.random.default_rng(seed)
    cost_s = np.repeat(np.arange(1, COST_LEVELS + 1), ITEMS // COST_LEVELS) / 1000
    match case["costs"]:
        case "independent" | "shifting":
            chance.shuffle(cost_s)
        case "frequent dear":
            cost_s = cost_s[::-1]
        case "constant":
            cost_s = np.full(ITEMS, cost_s.mean())
    weights = np.arange(1, ITEMS + 1) ** -float(case["zipf"])
    shape = setting.batches, setting.rows_per_batch
    items = chance.choice(ITEMS, size=shape, p=weights / weights.sum())
    costs_s = cost_s[items]
    if case["costs"] == "shifting":
        after = slice(setting.warm_up_batches, None)
        costs_s[after] = chance.permutation(cost_s)[items[after]]
    slowdowns = np.ones((setting.batches, EXECUTORS))
    if case["slowed"]:
        slowdowns[setting.warm_up_batches :, SLOWED_EXECUTOR] = SLOWDOWN
    marks = chance.integers(-(2**63), 2**63 - 1, (2, *shape))
    return Rows(items, costs_s, slowdowns, marks)
