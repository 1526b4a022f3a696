"""Estimates the costs of records in constant memory: the sketches of Online Shuffle Grouping.

Rivetti et al., "Online scheduling for shuffle grouping in distributed stream processing
systems" (Online Shuffle Grouping, OSG), keeps the known costs in sketches. The two Count-Min
matrices, their size, and the estimate follow the authors' code. The hash, time in whole
nanoseconds, the estimate for an unseen item, and the limits of the parameters are our own design.

Costs add up in whole numbers, so sketches merged in any order are equal to the last bit: a task
that runs again routes as it did before.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable
from hashlib import blake2b
from numbers import Real
from typing import Final

from balancedstream.core.shuffle.matrices import add_matrices, from_little_endian, to_little_endian
from balancedstream.errors import InvalidInputError

_NS_PER_S = 1e9

# The limit of a cell: a signed 64-bit number, which numpy can read; 292 years in nanoseconds.
_MAX_NS = (1 << 63) - 1

# Gives 272,000 columns; with more, the memory costs more than the estimates gain.
_MIN_EPSILON = 1e-5

# Gives 16 rows; with more, the time costs more than the certainty gains.
_MIN_DELTA = 2.0**-16

_MAX_SEED = (1 << 64) - 1

_MAGIC = b"OSG2"
_HEADER = struct.Struct("<4s4xddQqq")
"""Magic, epsilon, delta, seed, records, cost in nanoseconds; a multiple of 8 bytes."""

_WORD = (1 << 64) - 1

NUMBER_BYTES: Final = 8
"""An item of this many bytes is a 64-bit number, least byte first."""

MIXING: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
"""Pairs of a shift and a factor that mix the 64 bits of an item: exclusive or with the bits shifted
right, then multiplication (the finalizer of SplitMix64 with Stafford's 13th constants)."""


class CostSketch:
    """Estimates the cost of a record from seen records, for any number of distinct items.

    A sketch has two Count-Min matrices of the same shape: F counts records, W adds up their cost.
    The estimate is W / F in the row where the item shares its cell with the fewest records: the
    mean of the items in that cell. With probability `1 - delta` or more, F exceeds the true count
    of an item by at most `epsilon` times all records (the textbook bound of Count-Min).

    Rare items may be more expensive or cheaper than the mean. So an unseen item has the estimate of
    items seen once, as in Good-Turing estimation: the mean of the cells with one record. If no cell
    has one record, it is the mean of all records.

    Sketches of equal epsilon, delta and seed hash alike and can be merged. Fill a sketch before
    asking for estimates: after an update, the first estimate of an unseen item reads every cell.

    Args:
        epsilon: the overestimate of F as a fraction of all records; 0.00001 or more, below 1.
        delta: the probability of a larger overestimate; 2^-16 or more, below 1.
        seed: seed of the hash; 0 or more, below 2^64.

    Attributes:
        epsilon, delta, seed: the arguments.
        rows: number of rows, ceil(log2(1 / delta)).
        columns: number of columns, ceil(e / epsilon).
        row_keys: 64 bits for each row, which make the rows hash differently.
        records: number of counted records.

    Raises:
        InvalidInputError: an argument is no number or out of range; the message names it.

    >>> sketch = CostSketch(epsilon=0.05, delta=0.1, seed=7)
    >>> sketch.rows, sketch.columns
    (4, 55)
    >>> sketch.update(b"short text", 0.002)
    >>> sketch.update(b"long text", 0.060)
    >>> sketch.update(b"long text", 0.064)
    >>> sketch.estimate(b"long text")
    0.062
    >>> sketch.estimate(b"never seen")  # the cost of an item seen once
    0.002
    """

    __slots__ = (
        "_cost_ns",
        "_costs_ns",
        "_counts",
        "_unseen_s",
        "columns",
        "delta",
        "epsilon",
        "records",
        "row_keys",
        "rows",
        "seed",
    )

    def __init__(self, epsilon: float, delta: float, *, seed: int) -> None:
        for name, value, least, least_text in (
            ("epsilon", epsilon, _MIN_EPSILON, f"{_MIN_EPSILON:f}"),
            ("delta", delta, _MIN_DELTA, "2^-16"),
        ):
            # Written so that NaN fails as well.
            if not (isinstance(value, Real) and least <= value < 1):
                message = f"{name}: must be at least {least_text} and below 1, not {value!r}"
                raise InvalidInputError(message)
        if not 0 <= seed <= _MAX_SEED:
            message = f"seed: must be at least 0 and below 2^64, not {seed}"
            raise InvalidInputError(message)
        self.epsilon = epsilon
        self.delta = delta
        self.seed = seed
        self.rows = math.ceil(math.log2(1 / delta))
        self.columns = math.ceil(math.e / epsilon)
        self.records = 0
        self._cost_ns = 0
        self._unseen_s: float | None = None
        # Row by row: the cell of row i and column j is at i * columns + j.
        self._counts = array("q", bytes(8 * self.rows * self.columns))
        self._costs_ns = array("q", self._counts)
        salt = seed.to_bytes(8, "little")
        self.row_keys = tuple(_digest(bytes([row]), salt) for row in range(self.rows))

    @property
    def mean_cost_s(self) -> float:
        """Mean cost of a record in seconds; 0.0 without records."""
        return float(self._cost_ns) / self.records / _NS_PER_S if self.records else 0.0

    def estimate_unseen_share(self) -> float:
        """Estimate the probability that the next record has an unseen item.

        As in Good-Turing estimation, this is the share of records that are the only one of their
        item. The number of such records is the number of cells with one record, scaled up for items
        that share their cell: an item is alone in its cell as often as a cell is empty.

        Returns:
            From 0 to 1; 0 if no cell is empty, because the sketch can then learn no more about rare
            items.

        >>> sketch = CostSketch(0.05, 0.1, seed=7)
        >>> for text in (b"the", b"the", b"the", b"rare"):
        ...     sketch.update(text, 0.002)
        >>> round(sketch.estimate_unseen_share(), 2)
        0.26
        """
        empty = self._counts.count(0)
        if not (empty and self.records):
            return 0.0
        seen_once = self._counts.count(1) * self.columns / empty
        return min(seen_once / self.records, 1.0)

    @property
    def counts(self) -> memoryview:
        """F, row by row: the cell of row i and column j is at i * columns + j. Read-only."""
        return memoryview(self._counts).toreadonly()

    @property
    def costs_ns(self) -> memoryview:
        """W in nanoseconds, in the order of `counts`."""
        return memoryview(self._costs_ns).toreadonly()

    def locate(self, item: bytes) -> tuple[int, ...]:
        """Find the item's cell in each row, as indices into the flat matrices.

        An item of eight bytes is a number; a hash turns any other item into a number. Mixing its
        bits with the key of a row makes rows hash independently, and alike on every platform.

        >>> [cell // 55 for cell in CostSketch(0.05, 0.1, seed=7).locate(b"text")]
        [0, 1, 2, 3]
        """
        is_number = len(item) == NUMBER_BYTES
        number = int.from_bytes(item, "little") if is_number else _digest(item)
        columns = self.columns
        cells = []
        for row, key in enumerate(self.row_keys):
            bits = number ^ key
            for shift, factor in MIXING:
                bits = (bits ^ bits >> shift) * factor & _WORD
            cells.append(row * columns + ((bits >> 32) * columns >> 32))
        return tuple(cells)

    def update(self, item: bytes, cost_s: float, *, records: int = 1) -> None:
        """Count records of the item, which cost `cost_s` seconds together.

        Raises:
            InvalidInputError: the cost is negative or not finite, `records` is below 1, or the
                costs add up to more than 292 years; the sketch did not change.
        """
        if not 0 <= cost_s < math.inf:
            message = f"cost_s: must be 0 or more and finite, not {cost_s}"
            raise InvalidInputError(message)
        if not records >= 1:
            message = f"records: must be at least 1, not {records}"
            raise InvalidInputError(message)
        cost_ns = round(cost_s * _NS_PER_S)
        # No cell can exceed the sum of all, so this is the only check for overflow.
        if self._cost_ns + cost_ns > _MAX_NS:
            message = f"cost_s: {cost_s} makes the costs add up to more than 292 years"
            raise InvalidInputError(message)
        counts, costs_ns = self._counts, self._costs_ns
        for cell in self.locate(item):
            counts[cell] += records
            costs_ns[cell] += cost_ns
        self.records += records
        self._cost_ns += cost_ns
        self._unseen_s = None

    def estimate(self, item: bytes) -> float:
        """Estimate the cost of a record of the item in seconds; 0.0 before the first record."""
        counts = self._counts
        least = min(self.locate(item), key=counts.__getitem__)
        count = counts[least]
        if count:
            # numpy converts to float first, too: both give the same result to the last bit.
            return float(self._costs_ns[least]) / count / _NS_PER_S
        if self._unseen_s is None:
            self._unseen_s = self._estimate_unseen()
        return self._unseen_s

    def _estimate_unseen(self) -> float:
        cells = zip(self._counts, self._costs_ns, strict=True)
        once_ns = [cost_ns for count, cost_ns in cells if count == 1]
        return float(sum(once_ns)) / len(once_ns) / _NS_PER_S if once_ns else self.mean_cost_s

    def count(self, item: bytes) -> int:
        """Estimate the number of records of the item; never too low.

        >>> sketch = CostSketch(0.05, 0.1, seed=7)
        >>> sketch.update(b"text", 0.002)
        >>> sketch.count(b"text")
        1
        """
        return min(self._counts[cell] for cell in self.locate(item))

    def merge(self, *others: CostSketch) -> None:
        """Add the records of other sketches.

        Raises:
            InvalidInputError: epsilon, delta or seed differ, so the cells have different items, or
                the costs add up to more than 292 years; the sketch did not change.

        >>> ours, theirs = (CostSketch(0.05, 0.1, seed=7) for _ in range(2))
        >>> ours.update(b"text", 0.002)
        >>> theirs.update(b"text", 0.004)
        >>> ours.merge(theirs)
        >>> ours.records, ours.estimate(b"text")
        (2, 0.003)
        """
        for other in others:
            for field in ("epsilon", "delta", "seed"):
                mine, its = getattr(self, field), getattr(other, field)
                if mine != its:
                    message = f"{field}: sketches of {mine} and {its} cannot be merged"
                    raise InvalidInputError(message)
        sketches = [self, *others]
        cost_ns = sum(sketch._cost_ns for sketch in sketches)
        if cost_ns > _MAX_NS:
            message = "others: merged, the costs add up to more than 292 years"
            raise InvalidInputError(message)
        self._counts = add_matrices([sketch._counts for sketch in sketches])
        self._costs_ns = add_matrices([sketch._costs_ns for sketch in sketches])
        self.records = sum(sketch.records for sketch in sketches)
        self._cost_ns = cost_ns
        self._unseen_s = None

    def with_cells(self, counts: bytes, costs_ns: bytes) -> CostSketch:
        """A sketch with other cells and the same hash.

        Args:
            counts: bytes of F, in the form of the property `counts`; the sums are not checked.
            costs_ns: bytes of W in nanoseconds, in the same form; the sums are not checked.

        Raises:
            InvalidInputError: the number of cells is wrong.

        >>> sketch = CostSketch(0.05, 0.1, seed=7)
        >>> sketch.update(b"text", 0.002)
        >>> other = CostSketch(0.05, 0.1, seed=7)
        >>> other.with_cells(bytes(sketch.counts), bytes(sketch.costs_ns)).estimate(b"text")
        0.002
        """
        cells = self.rows * self.columns
        if not len(counts) == len(costs_ns) == 8 * cells:
            message = f"counts: a cost sketch of this shape has {cells} cells"
            raise InvalidInputError(message)
        sketch = CostSketch(self.epsilon, self.delta, seed=self.seed)
        sketch._counts, sketch._costs_ns = array("q", counts), array("q", costs_ns)
        sketch.records = sum(sketch._counts[: self.columns])
        sketch._cost_ns = sum(sketch._costs_ns[: self.columns])
        return sketch

    def to_bytes(self) -> bytes:
        """Write the sketch as bytes, the same on every platform.

        A header, then F and W, each `rows` times `columns` signed 64-bit integers, least byte
        first, row by row; W is in nanoseconds.

        >>> sketch = CostSketch(0.05, 0.1, seed=7)
        >>> len(sketch.to_bytes()) - 2 * 8 * 4 * 55
        48
        """
        header = _HEADER.pack(
            _MAGIC, self.epsilon, self.delta, self.seed, self.records, self._cost_ns
        )
        return header + to_little_endian(self._counts) + to_little_endian(self._costs_ns)

    def __reduce__(self) -> tuple[Callable[[bytes], CostSketch], tuple[bytes]]:
        return restore_sketch, (self.to_bytes(),)

    @staticmethod
    def from_bytes(data: bytes) -> CostSketch:
        """Read what `to_bytes` wrote.

        Raises:
            InvalidInputError: `data` is something else, or is damaged.

        >>> sketch = CostSketch(0.05, 0.1, seed=7)
        >>> sketch.update(b"text", 0.002)
        >>> CostSketch.from_bytes(sketch.to_bytes()).estimate(b"text")
        0.002
        """
        read = restore_sketch(data)
        for matrix, total in ((read._counts, read.records), (read._costs_ns, read._cost_ns)):
            for begin in range(0, len(matrix), read.columns):
                row = matrix[begin : begin + read.columns]
                # Every row counts every record.
                if min(row) < 0 or sum(row) != total:
                    message = "data: the rows of the cost sketch do not add up; it was damaged"
                    raise InvalidInputError(message)
        return read


def restore_sketch(data: bytes) -> CostSketch:
    """Read what `CostSketch.to_bytes` wrote, without a check for damage.

    Pickle calls this. It is a function, because with a method cloudpickle would also send the code
    of the class.

    Raises:
        InvalidInputError: `data` is something else.
    """
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        message = "data: this is no cost sketch"
        raise InvalidInputError(message)
    _, epsilon, delta, seed, records, cost_ns = _HEADER.unpack_from(data)
    sketch = CostSketch(epsilon, delta, seed=seed)
    matrix_bytes = 8 * sketch.rows * sketch.columns
    expected = _HEADER.size + 2 * matrix_bytes
    if len(data) != expected:
        message = f"data: a cost sketch of this shape has {expected} bytes, not {len(data)}"
        raise InvalidInputError(message)
    middle = _HEADER.size + matrix_bytes
    sketch._counts = from_little_endian(data[_HEADER.size : middle])
    sketch._costs_ns = from_little_endian(data[middle:])
    sketch.records = records
    sketch._cost_ns = cost_ns
    return sketch


def _digest(data: bytes, salt: bytes = b"") -> int:
    return int.from_bytes(blake2b(data, digest_size=8, salt=salt).digest(), "little")
