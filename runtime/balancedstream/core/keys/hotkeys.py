"""Finds hot keys in bounded memory: the Space-Saving sketch, weighted by cost.

Space-Saving is by Metwally, Agrawal and El Abbadi (ICDT 2005). The weight of a record is its cost
rather than 1, which is our own design: the time that a key takes makes it hot. Each task has its
own sketch, and a key is in the partition of one task. So the results of tasks stand side by side,
each within its own bounds. Merging sketches would add to a key's error what every other sketch may
have missed.

Existing libraries (`frequent_strings_sketch` of Apache DataSketches, on PyPI as `datasketches`) are
native code that every executor would need; the core uses the standard library alone.
"""

from __future__ import annotations

import base64
import heapq
import json
import math
from dataclasses import dataclass

from balancedstream.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class HotKey:
    """Bounds on the weight of one key.

    Attributes:
        key: the key as the sketch got it.
        most: upper bound on the true weight.
        error: difference between the upper and the lower bound.
    """

    key: bytes
    most: float
    error: float

    @property
    def least(self) -> float:
        """Lower bound on the true weight."""
        return self.most - self.error


class HotKeySketch:
    """The heaviest keys of a stream of keys with weights, in a bounded number of counters.

    If W is the sum of all weights so far, then in any order of updates:

    - each key in the sketch has `least <= true weight <= most` and `error <= epsilon * W`;
    - any other key weighs at most `untracked_most`, which is `<= epsilon * W`;
    - so the sketch contains every key that weighs more than `epsilon * W`.

    Floating-point sums may miss these bounds by a rounding error; whole numbers do not. The sketch
    contains at most `capacity` keys of any length. The same updates in the same order give the same
    sketch; the key decides ties.

    Attributes:
        epsilon: fraction of W; the sketch may miss a key with less weight.
        capacity: maximum number of keys, `ceil(1 / epsilon)`.
        total: W, in the unit of the weights.

    Raises:
        InvalidInputError: epsilon is not above 0 and at most 1.

    >>> sketch = HotKeySketch(epsilon=0.5)
    >>> for key, busy_s in ((b"de", 4.0), (b"fr", 1.0), (b"it", 2.0)):
    ...     sketch.update(key, busy_s)
    >>> sketch.top(2)
    [HotKey(key=b'de', most=4.0, error=0.0), HotKey(key=b'it', most=3.0, error=1.0)]
    """

    __slots__ = ("_error", "_heap", "_most", "capacity", "epsilon", "total")

    def __init__(self, epsilon: float) -> None:
        if not 0 < epsilon <= 1:
            message = f"epsilon: must be above 0 and at most 1, not {epsilon!r:.80}"
            raise InvalidInputError(message)
        self.epsilon = epsilon
        self.capacity = math.ceil(1 / epsilon)
        self.total = 0.0
        self._most: dict[bytes, float] = {}
        self._error: dict[bytes, float] = {}
        # One entry for each key. Its weight may be outdated, but is then too low.
        self._heap: list[tuple[float, bytes]] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HotKeySketch) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment] # it changes

    @property
    def untracked_most(self) -> float:
        """Upper bound on the weight of a key that is not in the sketch."""
        if len(self._most) < self.capacity:
            return 0.0
        while self._heap[0][0] < self._most[self._heap[0][1]]:
            key = self._heap[0][1]
            heapq.heapreplace(self._heap, (self._most[key], key))
        return self._heap[0][0]

    def update(self, key: bytes, weight: float) -> None:
        """Add a weight to a key, in amortized O(log capacity).

        Raises:
            InvalidInputError: the weight is negative or not finite.
        """
        if not 0 <= weight < math.inf:
            message = f"weight: must be 0 or more and finite, not {weight!r:.80}"
            raise InvalidInputError(message)
        if not weight:
            return
        self.total += weight
        if key in self._most:
            self._most[key] += weight
            return
        error = self.untracked_most
        if len(self._most) == self.capacity:
            _, lightest = heapq.heappop(self._heap)
            del self._most[lightest], self._error[lightest]
        self._hold(key, error + weight, error)

    def top(self, count: int) -> list[HotKey]:
        """The heaviest keys by `most`, heaviest first; fewer if the sketch has fewer.

        Raises:
            InvalidInputError: the count is negative.
        """
        if count < 0:
            message = f"count: must be 0 or more, not {count}"
            raise InvalidInputError(message)
        entries = (HotKey(key, most, self._error[key]) for key, most in self._most.items())
        return heapq.nsmallest(count, entries, key=_heaviest_first)

    def to_json(self) -> str:
        """One line of ASCII that `parse_hot_keys` reads; equal sketches give equal text.

        >>> sketch = HotKeySketch(0.5)
        >>> sketch.update(b"de", 4.0)
        >>> sketch.to_json()
        '{"epsilon":0.5,"total":4.0,"keys":[["ZGU=",4.0,0.0]]}'
        """
        keys = [
            (base64.b64encode(entry.key).decode(), entry.most, entry.error)
            for entry in self.top(self.capacity)
        ]
        fields = {"epsilon": self.epsilon, "total": self.total, "keys": keys}
        return json.dumps(fields, separators=(",", ":"))

    def _hold(self, key: bytes, most: float, error: float) -> None:
        self._most[key] = most
        self._error[key] = error
        heapq.heappush(self._heap, (most, key))


def parse_hot_keys(text: str | bytes) -> HotKeySketch:
    """Read a sketch that `HotKeySketch.to_json` wrote; updates work exactly as on the original.

    Raises:
        InvalidInputError: the text has another form.

    >>> sketch = HotKeySketch(0.5)
    >>> sketch.update(b"de", 4.0)
    >>> parse_hot_keys(sketch.to_json()) == sketch
    True
    """
    try:
        match json.loads(text):
            case {"epsilon": float() | int() as epsilon, "total": float(total), "keys": [*entries]}:
                sketch = HotKeySketch(epsilon)
                sketch.total = total
                for key, most, error in entries:
                    sketch._hold(base64.b64decode(key, validate=True), float(most), float(error))
                if len(sketch._most) == len(entries) <= sketch.capacity:
                    return sketch
    except (ValueError, TypeError) as problem:
        message = f"hot keys: this is no sketch as to_json writes it ({problem})"
        raise InvalidInputError(message) from problem
    message = "hot keys: this is no sketch as to_json writes it"
    raise InvalidInputError(message)


def _heaviest_first(entry: HotKey) -> tuple[float, bytes]:
    return -entry.most, entry.key
