"""What the loop knows of the keys of running queries."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from balancedstream.core.keys.epochs import Epoch
from balancedstream.core.keys.text import name_key
from balancedstream.core.samples import KeySample
from balancedstream.core.wire.plan import KeyPlacement

NO_ARRIVAL = -1
"""Stands for "no key ever changed its partition" where a batch number is asked for."""


@dataclass(frozen=True, slots=True)
class KeyState:
    """How far keys are on their way to the plan in force.

    Attributes:
        placements: those of the plan in force, without what was given up, and of keys that it
            does not name.
        settling: queries that have keys which have not arrived yet.
        samples: the hot keys of each query's last batch.
        immovable: by query, keys that cannot move whatever they cost, or were given up.
        last_arrivals: by query, the last batch in which keys changed their partition, or
            `NO_ARRIVAL`; measurements from before are void.
    """

    placements: tuple[KeyPlacement, ...]
    settling: Set[str]
    samples: Mapping[str, tuple[KeySample, ...]]
    immovable: Mapping[str, Set[str]]
    last_arrivals: Mapping[str, int]


@dataclass(slots=True)
class QueryKeys:
    """What is known of the keys of one running query.

    Attributes:
        operator: id of its balanced operator.
        partitions: state partitions of that operator.
        last_batch: the last batch that finished.
        samples: the hot keys of that batch.
        handed_over: keys that came or went in that batch, and the seconds that it took.
        epoch: the last epoch that could be read.
        is_known: whether one could be read so far.
        adopted: key to partition, as the checkpoint had them when that counted last.
        wanted: key to partition, as last sent to its `KeyControl`.
        last_sent: all that was sent with that; None before the first time in this run.
        under_way: key to route, of keys that have not arrived yet.
        fixed: hot keys that can never move, such as rows without a key.
        given_up: (key, partition) that did not arrive, to the batch in which it was given up.
        refused: (key, partition) that is impossible.
        last_arrival: the last batch in which keys changed their partition.
        progress: the last batch in which a key arrived, or could not yet have arrived.
    """

    operator: int
    partitions: int
    last_batch: int = -1
    samples: tuple[KeySample, ...] = ()
    handed_over: tuple[int, float] = (0, 0.0)
    epoch: Epoch = field(default_factory=Epoch)
    is_known: bool = False
    adopted: dict[str, int] = field(default_factory=dict)
    wanted: dict[str, int] = field(default_factory=dict)
    last_sent: tuple[dict[str, int], int, int | None] | None = None
    under_way: dict[str, int] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    given_up: dict[tuple[str, int], int] = field(default_factory=dict)
    refused: set[tuple[str, int]] = field(default_factory=set)
    last_arrival: int = NO_ARRIVAL
    progress: int = -1

    def immovable(self) -> set[str]:
        """Keys that cannot move, whatever they cost, or were given up."""
        return {key for key, _ in self.given_up.keys() | self.refused} | self.fixed

    def names(self) -> dict[str, str]:
        """The keys that a plan may name by their hash only, by that hash."""
        routed = self.epoch.routes
        keys = *routed, *self.wanted, *self.under_way, *(hot.key for hot in self.samples)
        return {str(name_key(key, "hashed")): key for key in keys}
