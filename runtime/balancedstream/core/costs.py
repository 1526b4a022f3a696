"""What a shuffle has learnt of the costs of records, from one micro-batch to the next.

Two sketches of `CostSketch` hold it, an older and a newer one: a sketch cannot forget, so once the
newer one knows enough, the older one is dropped and a new one begun. And it is said whether
records shall be routed by it. Estimates that foretell no more than "all records cost the same",
which is what round robin takes for true, are not worth following: costs may not depend on the cost
key at all, or may have changed.

All of this is our own design. Online Shuffle Grouping replaces the sketches of an instance whenever
they have become stable, and trusts them always.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Final

from balancedstream.core.sketches import CostSketch, restore_sketch
from balancedstream.errors import InvalidInputError

GENERATION_BATCHES: Final = 64
"""Judged batches after which a new sketch is begun, at the earliest: what is known is from the last
65 to 128, or more. A cost that changes slowly is believed for as long."""

UNSEEN_SHARE: Final = 0.005
"""A new sketch is begun once no more than this part of the records is of items that the last one
has never seen: where dear items are rare, most of the imbalance is by those that are not known."""

GENERATION_RECORDS: Final = 1 << 18
"""Records after which a new sketch is begun in any case: some items are always new."""

NEEDED_GAIN: Final = 0.9
"""Estimates are trusted once their error is at most so much of that of equal costs."""

MIN_ERROR: Final = 0.01
"""Where equal costs are off by no more than this part of all cost, estimates are not trusted anew:
what they foretell better is chance."""

BORNE_ERROR: Final = 0.05
"""Trusted estimates stay so until they are worse than equal costs by more than this part of all
cost. Where dear items are rare, most batches have none: all cost much the same in them, and which
of the two errors is the greater is chance."""

MIN_RECORDS: Final = 64
"""Records that estimates are judged by at least; of fewer, chance alone may be off by any amount.
Where micro-batches are smaller, several are judged together."""

_MAGIC = b"BSC1"


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """What a task of a micro-batch has measured, or several of them together.

    Attributes:
        sketch: of what the records cost.
        estimated_s: what they were estimated to cost before; 0 where nothing was known.
        real_s: what they cost: the time that the function took for them.
        untold_s: what the function took once it had read all its input: whose cost it is, nobody
            can tell.
        judged_s: cost of those records by which the estimates are judged.
        error_s: summed difference of these records' real and estimated costs. The estimates are
            scaled to each task's real cost first: that an executor is slow is no error.
        equal_error_s: the same for estimates that are all equal.
    """

    sketch: CostSketch
    estimated_s: float = 0.0
    real_s: float = 0.0
    untold_s: float = 0.0
    judged_s: float = 0.0
    error_s: float = 0.0
    equal_error_s: float = 0.0

    def add(self, other: MeasuredCosts) -> MeasuredCosts:
        """What both have measured.

        Raises:
            InvalidInputError: their sketches cannot be merged.
        """
        return MeasuredCosts(
            sketch=_merge(self.sketch, other.sketch),
            estimated_s=self.estimated_s + other.estimated_s,
            real_s=self.real_s + other.real_s,
            untold_s=self.untold_s + other.untold_s,
            judged_s=self.judged_s + other.judged_s,
            error_s=self.error_s + other.error_s,
            equal_error_s=self.equal_error_s + other.equal_error_s,
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What estimates are judged by: sums over micro-batches, see `MeasuredCosts`.

    Attributes:
        records: that were measured.
        real_s: what they cost.
        untold_s: what nobody can tell whose cost it is.
        judged_s: cost of the records that are judged.
        error_s: of the estimates.
        equal_error_s: of equal costs.
    """

    records: int = 0
    real_s: float = 0.0
    untold_s: float = 0.0
    judged_s: float = 0.0
    error_s: float = 0.0
    equal_error_s: float = 0.0

    def add(self, measured: MeasuredCosts) -> Evidence:
        """With what was measured in one more."""
        return Evidence(
            records=self.records + measured.sketch.records,
            real_s=self.real_s + measured.real_s,
            untold_s=self.untold_s + measured.untold_s,
            judged_s=self.judged_s + measured.judged_s,
            error_s=self.error_s + measured.error_s,
            equal_error_s=self.equal_error_s + measured.equal_error_s,
        )


@dataclass(frozen=True)
class LearntCosts:
    """What is known after a micro-batch.

    Attributes:
        batch: the newest that is in it.
        batches: how often estimates were judged since the newer sketch was begun.
        older: the sketch of the generation before; None where there was none.
        newer: the sketch that is being filled.
        trusted: whether records are routed by it; else by round robin.
        reason: why, as a sentence without its stop.
        error: of the estimates as they were judged after this batch, as a part of all cost; None
            where they were not.
        equal_error: the same if all records were taken to cost the same.
        unjudged: what was measured since they were judged last.
    """

    batch: int
    batches: int
    older: CostSketch | None
    newer: CostSketch
    trusted: bool
    reason: str
    error: float | None = None
    equal_error: float | None = None
    unjudged: Evidence = Evidence()

    @cached_property
    def estimates(self) -> CostSketch:
        """Both sketches in one, to be asked only."""
        return self.newer if self.older is None else _merge(self.newer, self.older)

    def to_bytes(self) -> bytes:
        """Write it down; what is empty in the sketches takes next to no space.

        >>> learnt = learn_costs(None, 3, MeasuredCosts(CostSketch(0.05, 0.1, seed=7)))
        >>> LearntCosts.from_bytes(learnt.to_bytes()).batch
        3
        """
        sketches = [zlib.compress(s.to_bytes(), 1) for s in (self.newer, self.older) if s]
        header = {
            "batch": self.batch,
            "batches": self.batches,
            "trusted": self.trusted,
            "reason": self.reason,
            "error": self.error,
            "equal_error": self.equal_error,
            "unjudged": asdict(self.unjudged),
            "newer_bytes": len(sketches[0]),
        }
        return b"\n".join([_MAGIC, json.dumps(header).encode(), b"".join(sketches)])

    @classmethod
    def from_bytes(cls, data: bytes) -> LearntCosts:
        """Read what `to_bytes` has written.

        Raises:
            InvalidInputError: it is something else, or was damaged.
        """
        try:
            magic, header, sketches = data.split(b"\n", 2)
            if magic != _MAGIC:
                raise ValueError(magic)
            fields = json.loads(header)
            end = fields.pop("newer_bytes")
            # Their compression has a checksum.
            newer = restore_sketch(zlib.decompress(sketches[:end]))
            older = restore_sketch(zlib.decompress(sketches[end:])) if sketches[end:] else None
            unjudged = Evidence(**fields.pop("unjudged"))
            return cls(newer=newer, older=older, unjudged=unjudged, **fields)
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            message = f"data: these are no learnt costs, or they were damaged ({error})"
            raise InvalidInputError(message) from error


def learn_costs(
    before: LearntCosts | None, batch: int, measured: MeasuredCosts, *, is_judge: bool = True
) -> LearntCosts:
    """Learn from a micro-batch, and decide whether the next one is routed by what is known.

    Estimates are judged by batches that were not in them yet, so the first two batches go round
    robin whatever they cost, and more of them where they are small. Where trusted estimates have
    become clearly worse than none, everything is forgotten but this batch: costs have changed.

    Args:
        before: what was known when the batch was routed; None at the beginning. Where its sketches
            were of another epsilon, delta or seed, it counts for nothing.
        batch: its number.
        measured: what all of its tasks have measured.
        is_judge: whether its records were estimated by what was known before; else they are learnt
            from, and decide nothing.

    >>> def measure(error_s, equal_error_s):
    ...     sketch = CostSketch(0.05, 0.1, seed=7)
    ...     sketch.update(b"long", 1.0, records=64)
    ...     return MeasuredCosts(sketch, 1.0, 1.0, 0.0, 1.0, error_s, equal_error_s)
    >>> learnt = learn_costs(None, 0, measure(0.0, 0.5))
    >>> learnt.trusted, learnt.reason
    (False, 'no batch was foretold yet')
    >>> learnt = learn_costs(learnt, 1, measure(0.1, 0.5))
    >>> learnt.trusted, learnt.reason
    (True, 'the estimates were off by 10 %, equal costs would be by 50 %')
    >>> learnt = learn_costs(learnt, 2, measure(0.6, 0.5))
    >>> learnt.trusted, learnt.newer.records
    (False, 64)
    """
    sketch = measured.sketch
    if before is None or not _hash_alike(before.newer, sketch):
        return LearntCosts(
            batch, 1, None, sketch, trusted=False, reason="no batch was foretold yet"
        )
    evidence = before.unjudged.add(measured) if is_judge else before.unjudged
    is_untold = evidence.untold_s > evidence.real_s
    is_enough = evidence.records >= MIN_RECORDS and (evidence.judged_s or is_untold)
    if not (is_judge and is_enough):
        newer = _merge(before.newer, sketch)
        return replace(
            before, batch=batch, newer=newer, error=None, equal_error=None, unjudged=evidence
        )
    if is_untold:
        trusted = False
        all_s = evidence.untold_s + evidence.real_s
        # What no estimate can tell of is missed by all of them, as a part of all cost.
        error = equal_error = evidence.untold_s / all_s
        reason = (
            f"the function took {evidence.untold_s:.1f} s of {all_s:.1f} s after it had read "
            "all its input, so whose cost that was is not known"
        )
    else:
        error = evidence.error_s / evidence.judged_s
        equal_error = evidence.equal_error_s / evidence.judged_s
        if before.trusted:
            trusted = error <= equal_error + BORNE_ERROR
        else:
            trusted = error <= NEEDED_GAIN * equal_error and equal_error > MIN_ERROR
        reason = (
            f"the estimates were off by {100 * error:.0f} %, "
            f"equal costs would be by {100 * equal_error:.0f} %"
        )
    if before.trusted and not trusted:
        reason += "; all is learnt anew"
        older, newer, batches = None, sketch, 1
    elif before.batches >= GENERATION_BATCHES and _knows_enough(before.newer):
        older, newer, batches = before.newer, sketch, 1
    else:
        older, newer, batches = before.older, _merge(before.newer, sketch), before.batches + 1
    return LearntCosts(batch, batches, older, newer, trusted, reason, error, equal_error)


def _knows_enough(sketch: CostSketch) -> bool:
    is_full = sketch.records >= GENERATION_RECORDS
    return is_full or sketch.estimate_unseen_share() <= UNSEEN_SHARE


def _merge(one: CostSketch, other: CostSketch) -> CostSketch:
    merged = CostSketch(one.epsilon, one.delta, seed=one.seed)
    merged.merge(one, other)
    return merged


def _hash_alike(one: CostSketch, other: CostSketch) -> bool:
    return (one.epsilon, one.delta, one.seed) == (other.epsilon, other.delta, other.seed)
