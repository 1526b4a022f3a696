"""Learns the costs of records from one micro-batch to the next, and judges the estimates.

Two sketches (`CostSketch`), an older and a newer one, hold the costs. A sketch cannot forget. So
once the newer sketch knows enough, it becomes the older one, and an empty sketch the newer one.

The shuffle routes records by the estimates only while it trusts them. Round robin assumes that all
records cost the same. Estimates that predict no better than that are useless: costs may not depend
on the cost key at all, or may have changed.

All of this is our own design. Online Shuffle Grouping replaces the sketches of an instance whenever
they are stable, and always trusts them.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Final

from balancedstream.core.shuffle.sketches import CostSketch, restore_sketch
from balancedstream.errors import InvalidInputError

GENERATION_BATCHES: Final = 64
"""Minimum number of judged batches before a new sketch starts. The estimates rest on at least the
last 65 to 128 batches, so the estimate of a slowly changing cost is outdated for that long."""

UNSEEN_SHARE: Final = 0.005
"""A new sketch starts once at most this fraction of the records has items that the last sketch
never saw: if expensive items are rare, most imbalance comes from items that are not known yet."""

GENERATION_RECORDS: Final = 1 << 18
"""A new sketch starts after this many records in any case, because some items are always new."""

MAX_ERROR_RATIO: Final = 0.9
"""Estimates become trusted once their error is at most this fraction of that of equal costs."""

MIN_ERROR: Final = 0.01
"""Estimates do not become trusted if the error of equal costs is at most this fraction of all cost:
only chance can then make the estimates better."""

MAX_EXCESS_ERROR: Final = 0.05
"""Estimates stay trusted until their error exceeds the error of equal costs by more than this
fraction of all cost. If expensive items are rare, most batches have none. All records then cost
about the same, and chance decides which of the two errors is greater."""

MIN_RECORDS: Final = 64
"""At least this many records judge the estimates, because with fewer, chance can cause any error.
Smaller micro-batches are judged together."""

_SUMS = ("real_s", "unattributed_s", "judged_s", "error_s", "equal_error_s")

_MAGIC = b"BSC2"


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """The costs that one or more tasks of a micro-batch measured.

    Attributes:
        sketch: the measured costs of the records, by cost key.
        estimated_s: estimated cost of the records; 0 if there were no estimates.
        real_s: real cost of the records: seconds that the function took for them.
        unattributed_s: seconds that the function took after it had read all its input; no record
            can be blamed for them.
        judged_s: real cost of the records that judge the estimates.
        error_s: sum over these records of the difference between real and estimated cost. Estimates
            are first scaled to each task's real cost, so that a slow executor is no error.
        equal_error_s: the same for the estimate that all records cost the same.
    """

    sketch: CostSketch
    estimated_s: float = 0.0
    real_s: float = 0.0
    unattributed_s: float = 0.0
    judged_s: float = 0.0
    error_s: float = 0.0
    equal_error_s: float = 0.0

    def add(self, other: MeasuredCosts) -> MeasuredCosts:
        """Add the measurements of other tasks.

        Raises:
            InvalidInputError: the sketches cannot be merged.
        """
        sums = {
            name: getattr(self, name) + getattr(other, name) for name in ("estimated_s", *_SUMS)
        }
        return MeasuredCosts(_merge(self.sketch, other.sketch), **sums)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The sums over micro-batches that judge the estimates; fields are as in `MeasuredCosts`."""

    records: int = 0
    real_s: float = 0.0
    unattributed_s: float = 0.0
    judged_s: float = 0.0
    error_s: float = 0.0
    equal_error_s: float = 0.0

    def add(self, measured: MeasuredCosts) -> Evidence:
        """Add the measurements of one more micro-batch."""
        sums = {name: getattr(self, name) + getattr(measured, name) for name in _SUMS}
        return Evidence(self.records + measured.sketch.records, **sums)


@dataclass(frozen=True)
class LearntCosts:
    """The costs learned up to a micro-batch.

    Attributes:
        batch: number of the newest learned batch.
        batches: number of judgements since the newer sketch started.
        older: the full sketch of the previous generation; None if there is none.
        newer: the sketch to which each batch is added.
        trusted: whether the shuffle routes records by the estimates; otherwise round robin.
        reason: why the estimates are trusted or not, as a sentence without a full stop.
        error: error of the estimates in the judgement after this batch, as a fraction of all cost;
            None if there was no judgement.
        equal_error: the same under the assumption that all records cost the same.
        unjudged: measurements since the last judgement.
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
        """Both sketches merged; read-only."""
        return self.newer if self.older is None else _merge(self.newer, self.older)

    def to_bytes(self) -> bytes:
        """Write the learned costs as bytes; empty cells of the sketches take almost no space.

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
        """Read what `to_bytes` wrote.

        Raises:
            InvalidInputError: `data` is something else, or is damaged.
        """
        try:
            magic, header, sketches = data.split(b"\n", 2)
            if magic != _MAGIC:
                raise ValueError(magic)
            fields = json.loads(header)
            end = fields.pop("newer_bytes")
            # The compression has a checksum, so the sketches need no check of their own.
            newer = restore_sketch(zlib.decompress(sketches[:end]))
            older = restore_sketch(zlib.decompress(sketches[end:])) if sketches[end:] else None
            unjudged = Evidence(**fields.pop("unjudged"))
            return cls(newer=newer, older=older, unjudged=unjudged, **fields)
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            message = f"data: these are no learned costs, or they are damaged ({error})"
            raise InvalidInputError(message) from error


def learn_costs(
    before: LearntCosts | None, batch: int, measured: MeasuredCosts, *, is_judge: bool = True
) -> LearntCosts:
    """Learn from a micro-batch, and decide whether the next one is routed by estimates.

    A batch judges the estimates before it is added to them. So the first two batches always go
    round robin, and more if batches are small. If trusted estimates become clearly worse than equal
    costs, costs have changed: learning starts again with this batch.

    Args:
        before: the costs learned when the batch was routed; None for the first batch. They do not
            count if their sketches have another epsilon, delta or seed.
        batch: number of the micro-batch.
        measured: sum of the measurements of all its tasks.
        is_judge: whether `before` estimated the records of the batch. If not, they are added to the
            sketch but do not judge the estimates.

    >>> def measure(error_s, equal_error_s):
    ...     sketch = CostSketch(0.05, 0.1, seed=7)
    ...     sketch.update(b"long", 1.0, records=64)
    ...     return MeasuredCosts(sketch, 1.0, 1.0, 0.0, 1.0, error_s, equal_error_s)
    >>> learnt = learn_costs(None, 0, measure(0.0, 0.5))
    >>> learnt.trusted, learnt.reason
    (False, 'no batch was predicted yet')
    >>> learnt = learn_costs(learnt, 1, measure(0.1, 0.5))
    >>> learnt.trusted, learnt.reason
    (True, 'the estimates were off by 10 %, equal costs would be off by 50 %')
    >>> learnt = learn_costs(learnt, 2, measure(0.6, 0.5))
    >>> learnt.trusted, learnt.newer.records
    (False, 64)
    """
    sketch = measured.sketch
    if before is None or not _hash_alike(before.newer, sketch):
        return LearntCosts(
            batch, 1, None, sketch, trusted=False, reason="no batch was predicted yet"
        )
    evidence = before.unjudged.add(measured) if is_judge else before.unjudged
    is_unattributed = evidence.unattributed_s > evidence.real_s
    is_enough = evidence.records >= MIN_RECORDS and (evidence.judged_s or is_unattributed)
    if not (is_judge and is_enough):
        newer = _merge(before.newer, sketch)
        return replace(
            before, batch=batch, newer=newer, error=None, equal_error=None, unjudged=evidence
        )
    if is_unattributed:
        trusted = False
        all_s = evidence.unattributed_s + evidence.real_s
        # Any estimate misses this cost by the same amount.
        error = equal_error = evidence.unattributed_s / all_s
        reason = (
            f"the function took {evidence.unattributed_s:.1f} s of {all_s:.1f} s after it had read "
            "all its input, so it is not known which rows caused that cost"
        )
    else:
        error = evidence.error_s / evidence.judged_s
        equal_error = evidence.equal_error_s / evidence.judged_s
        if before.trusted:
            trusted = error <= equal_error + MAX_EXCESS_ERROR
        else:
            trusted = error <= MAX_ERROR_RATIO * equal_error and equal_error > MIN_ERROR
        reason = (
            f"the estimates were off by {100 * error:.0f} %, "
            f"equal costs would be off by {100 * equal_error:.0f} %"
        )
    if before.trusted and not trusted:
        reason += "; learning starts again"
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
