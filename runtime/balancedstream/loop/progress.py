"""How far an application is on its way to the plan in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.samples import OperatorId
from balancedstream.loop.query_keys import KeyState


@dataclass(frozen=True, slots=True)
class RealizerState:
    """How far an application is on its way to the plan in force.

    Attributes:
        epoch: of the newest accepted plan; 0 before the first.
        requested: executors asked for until all of them run; None when they do.
        restore_cost: what restoring moved state costs.
        moving: target of each partition whose move is under way, by (query, operator).
        keys: the same for keys.
        undecided: operators all of whose moves can still be withdrawn, because none is due.
        prepared: operators whose moves cost a batch nothing, because targets load state beforehand,
            with the number of partitions whose target does so now.
    """

    epoch: int
    requested: int | None
    restore_cost: RestoreCost
    moving: Mapping[OperatorId, Mapping[int, str]]
    keys: KeyState
    undecided: frozenset[OperatorId] = frozenset()
    prepared: Mapping[OperatorId, int] = field(default_factory=dict)
