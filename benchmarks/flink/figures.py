"""What was measured: when each row was in a result, and whether the results are right; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

STEADY_S = 5.0
"""So many seconds before a change show what is usual."""


class Bid(NamedTuple):
    """A row that arrived.

    Attributes:
        at_s: when, in seconds since the Unix epoch.
        bidder: its key.
        price: of the bid.
    """

    at_s: float
    bidder: int
    price: int


class Result(NamedTuple):
    """What the query wrote of a bidder.

    Attributes:
        at_s: when the broker took it, in seconds since the Unix epoch.
        bidder: of whom.
        bids: how many there were so far.
        price: the highest one.
    """

    at_s: float
    bidder: int
    bids: int
    price: int


class Done(NamedTuple):
    """A row that is in a result.

    Attributes:
        at_s: when its first result was written.
        latency_s: since it arrived.
    """

    at_s: float
    latency_s: float


def find_done(written: Sequence[Bid], results: Sequence[Result]) -> list[Done]:
    """The rows that are in results, in the order in which they were: each when it first was.

    The n-th row of a bidder is in the first result that counts n or more.

    >>> bids = [Bid(1.0, 7, 50), Bid(2.0, 7, 40)]
    >>> find_done(bids, [Result(1.5, 7, 1, 50), Result(4.0, 7, 2, 50), Result(5.0, 7, 2, 50)])
    [Done(at_s=1.5, latency_s=0.5), Done(at_s=4.0, latency_s=2.0)]
    """
    arrived_s = defaultdict(list)
    for bid in written:
        arrived_s[bid.bidder].append(bid.at_s)
    counted: dict[int, int] = defaultdict(int)
    done = []
    for result in results:
        known = counted[result.bidder]
        for at_s in arrived_s[result.bidder][known : result.bids]:
            done.append(Done(result.at_s, result.at_s - at_s))
        counted[result.bidder] = max(known, result.bids)
    return done


def count_wrong(written: Sequence[Bid], results: Sequence[Result]) -> dict[str, int]:
    """What the last result of each bidder lacks or has too much, against a recomputation.

    >>> bids = [Bid(1.0, 7, 50), Bid(2.0, 7, 40), Bid(2.0, 8, 10)]
    >>> count_wrong(bids, [Result(3.0, 7, 3, 50), Result(3.0, 9, 1, 1)])
    {'lost': 1, 'doubled': 2, 'wrong_keys': 3}
    """
    expected: dict[int, tuple[int, int]] = {}
    for bid in written:
        count, price = expected.get(bid.bidder, (0, 0))
        expected[bid.bidder] = count + 1, max(price, bid.price)
    # After a restart the same results may be written again, so the last one is what holds.
    found = {result.bidder: (result.bids, result.price) for result in results}
    nothing = (0, 0)
    more = [found.get(k, nothing)[0] - expected.get(k, nothing)[0] for k in {*expected, *found}]
    return {
        "lost": sum(-rows for rows in more if rows < 0),
        "doubled": sum(rows for rows in more if rows > 0),
        "wrong_keys": sum(expected.get(k) != found.get(k) for k in {*expected, *found}),
    }


def measure_window(done: Sequence[Done], from_s: float, until_s: float) -> dict[str, float]:
    """What the rows show that came out between two times.

    Returns:
        `silent_s`: the longest time without a row in a new result, which may begin before.
        `longest_s`: the longest latency. `median_s`: the median one. All of them in seconds.

    >>> measure_window([Done(1.0, 0.1), Done(2.0, 0.3), Done(4.5, 2.0)], 1.5, 5.0)
    {'silent_s': 2.5, 'longest_s': 2.0, 'median_s': 1.15}
    """
    before_s = [row.at_s for row in done if row.at_s <= from_s][-1:]
    inside = [row for row in done if from_s < row.at_s <= until_s]
    times_s = [*before_s, *(row.at_s for row in inside), until_s]
    latencies_s = [row.latency_s for row in inside] or [until_s - from_s]
    return {
        "silent_s": round(max((b - a for a, b in pairwise(times_s)), default=0.0), 2),
        "longest_s": round(max(latencies_s), 2),
        "median_s": round(median(latencies_s), 2),
    }


def compute_rate(done: Sequence[Done], from_s: float, until_s: float) -> float:
    """Rows a second that came out between two times."""
    return round(sum(from_s < row.at_s <= until_s for row in done) / (until_s - from_s), 1)


def measure_steady(done: Sequence[Done], times_s: Mapping[str, float]) -> dict[str, float]:
    """What came out where nothing was asked for.

    Args:
        done: rows, in the order in which they came out.
        times_s: `from` when `until` when.
    """
    from_s, until_s = times_s["from"], times_s["until"]
    return {
        **measure_window(done, from_s, until_s),
        "rows_per_s": compute_rate(done, from_s, until_s),
    }


def measure_change(done: Sequence[Done], times_s: Mapping[str, float]) -> dict[str, float]:
    """What a change of the number of workers did.

    Args:
        done: rows, in the order in which they came out.
        times_s: when it was `asked` for and `there`, when the query had `caught_up` with all rows
            up to then, when a `burst` came, and when that was `over`.
    """
    asked_s, burst_s = times_s["asked"], times_s["burst"]
    before = measure_window(done, asked_s - STEADY_S, asked_s)
    return {
        "change_s": round(times_s["there"] - asked_s, 2),
        "caught_up_s": round(times_s["caught_up"] - asked_s, 2),
        **measure_window(done, asked_s, burst_s),
        "usual_silent_s": before["silent_s"],
        "usual_longest_s": before["longest_s"],
        "rows_per_s": compute_rate(done, burst_s, times_s["over"]),
    }
