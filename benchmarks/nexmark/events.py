"""NEXMark's events: persons who open auctions and bid in them, drawn from a seed; pure.

These facts are those of Apache Beam's NEXMark, from its `GeneratorConfig`, `NexmarkConfiguration`
and the generators `BidGenerator`, `AuctionGenerator`, `PersonGenerator` and `PriceGenerator`
(`sdks/java/testing/nexmark`), which nexmark-flink of github.com/nexmark/nexmark also has: the
proportions, the ratios of what is hot, how many auctions and persons are active and how far ids
lead, how long auctions last, the first ids, five categories, six states, the law of prices, and the
mean sizes of rows. Channels and addresses of bids are modelled on nexmark-flink's. Names, places,
the Zipf variant and how events get out of order are our own.
"""

from __future__ import annotations

import random
import string
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

TABLES = ("person", "auction", "bid")

PERSONS, AUCTIONS, BIDS = 1, 3, 46
"""Events of each table among `PERSONS + AUCTIONS + BIDS` ones."""

EPOCH = PERSONS + AUCTIONS + BIDS

HOT_AUCTIONS = 2
"""A bid is for the hot auction with probability 1 - 1 / HOT_AUCTIONS."""

HOT_BIDDERS = 4
HOT_SELLERS = 4
"""Likewise of bids and the hot bidder, and of auctions and the hot seller."""

HOT_EVERY = 100
"""One of so many auctions is the hot one, until the next so many are there; persons likewise."""

ACTIVE_AUCTIONS = 100
ACTIVE_PERSONS = 1000
LEAD = 10
"""Ids of auctions and persons that are drawn although they are not there yet."""

FIRST_ID = 1000
FIRST_CATEGORY = 10
CATEGORIES = 5
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
"""Mean sizes of rows, which `extra` fills up to."""

HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
"""Half of the bids come through one of these, the others through one of `CHANNELS`."""

CHANNELS = 10_000

FIRST_AT = datetime(2024, 1, 1, 23, 59, tzinfo=UTC)
"""The event time of the first event; the day ends soon, since some answers are by the day."""

CLOSES_AT = datetime(2100, 1, 1, tzinfo=UTC)
"""Event time of the first closing row; see `draw_closing`."""

PLACES = (
    ("AZ", "Tucson"),
    ("CA", "Oakland"),
    ("ID", "Nampa"),
    ("OR", "Salem"),
    ("WA", "Tacoma"),
    ("WY", "Casper"),
)
GIVEN_NAMES = ("Ada", "Bo", "Cleo", "Dara", "Emil", "Femi", "Gita", "Hugo")
FAMILY_NAMES = ("Abel", "Berg", "Cruz", "Diaz", "Endo", "Falk", "Gray", "Haas")

Row = dict[str, int | str]


class Event(NamedTuple):
    """A row that arrives.

    Attributes:
        table: one of `TABLES`.
        number: of the event in the order of event time, from 0.
        row: the values of its columns; points in time are text in ISO 8601, in UTC.
    """

    table: str
    number: int
    row: Row


@dataclass(frozen=True)
class Workload:
    """Which events are drawn.

    Attributes:
        events: how many.
        events_per_s: of event time; each event has a time of its own, so no more than a million.
        group: so many events at a time arrive in random order: event time is out of order by less
            than `group / events_per_s` seconds.
        zipf: draw auctions, bidders and sellers by Zipf's law with this exponent among the active
            ones, in place of a hot one and the others alike.
        first_at: event time of the first event.
    """

    events: int
    events_per_s: float = 20.0
    group: int = 1
    zipf: float | None = None
    first_at: datetime = FIRST_AT


def draw_events(workload: Workload, seed: int) -> Iterator[Event]:
    """The events in the order of their arrival; the same for the same seed.

    >>> events = list(draw_events(Workload(100), seed=1))
    >>> [sum(event.table == table for event in events) for table in TABLES]
    [2, 6, 92]
    >>> events == list(draw_events(Workload(100), seed=1))
    True
    """
    rng = random.Random(f"nexmark {seed}")
    drawer = _Drawer(workload, rng)
    for first in range(0, workload.events, workload.group):
        group = list(range(first, min(first + workload.group, workload.events)))
        rng.shuffle(group)
        for number in group:
            yield drawer.draw(number)


def draw_closing(table: str) -> list[Row]:
    """Two rows of the far future, which end every window; each has to be a file of its own.

    A stream that reads the second one in a batch of its own has the watermark of the first one
    then, so no window waits for a batch without data, which a restarted query might not run.
    """
    return [
        {
            **dict.fromkeys(COLUMNS[table], ""),
            **dict.fromkeys(NUMBERS & {*COLUMNS[table]}, -1),
            **dict.fromkeys(TIMES & {*COLUMNS[table]}, _write_time(CLOSES_AT + timedelta(days=n))),
        }
        for n in range(2)
    ]


COLUMNS: dict[str, tuple[str, ...]] = {
    "person": ("id", "name", "email", "credit_card", "city", "state", "date_time", "extra"),
    "auction": (
        *("id", "item_name", "description", "initial_bid", "reserve"),
        *("date_time", "expires", "seller", "category", "extra"),
    ),
    "bid": ("auction", "bidder", "price", "channel", "url", "date_time", "extra"),
}
"""Every other column is text."""

NUMBERS = frozenset(
    {"id", "initial_bid", "reserve", "seller", "category", "auction", "bidder", "price"}
)
TIMES = frozenset({"date_time", "expires"})


class _Drawer:
    def __init__(self, workload: Workload, rng: random.Random) -> None:
        self._rng = rng
        self._first_at = workload.first_at
        self._events_per_s = workload.events_per_s
        self._letters = "".join(rng.choices(string.ascii_lowercase, k=2 * AUCTION_BYTES))
        self._bounds: list[float] = []
        if workload.zipf is not None:
            ranks = range(1, ACTIVE_PERSONS + LEAD + 1)
            self._bounds = list(accumulate(rank**-workload.zipf for rank in ranks))

    def draw(self, number: int) -> Event:
        offset = number % EPOCH
        at = self._first_at + timedelta(seconds=number / self._events_per_s)
        if offset < PERSONS:
            return Event("person", number, self._draw_person(number, at))
        if offset < PERSONS + AUCTIONS:
            return Event("auction", number, self._draw_auction(number, at))
        return Event("bid", number, self._draw_bid(number, at))

    def _draw_person(self, number: int, at: datetime) -> Row:
        rng = self._rng
        state, city = rng.choice(PLACES)
        given, family = rng.choice(GIVEN_NAMES), rng.choice(FAMILY_NAMES)
        row: Row = {
            "id": FIRST_ID + _find_last_person(number),
            "name": f"{given} {family}",
            "email": f"{given}.{family}@example.org".lower(),
            "credit_card": " ".join(f"{rng.randrange(10_000):04}" for _ in range(4)),
            "city": city,
            "state": state,
            "date_time": _write_time(at),
        }
        return self._fill_up(row, PERSON_BYTES)

    def _draw_auction(self, number: int, at: datetime) -> Row:
        rng = self._rng
        # On average an auction ends when so many later ones have begun as may be active.
        mean_s = ACTIVE_AUCTIONS * EPOCH / AUCTIONS / self._events_per_s
        length = timedelta(milliseconds=1, seconds=rng.uniform(0.0, 2 * mean_s))
        initial_bid = self._draw_price()
        row: Row = {
            "id": FIRST_ID + _find_last_auction(number),
            "item_name": self._draw_text(20),
            "description": self._draw_text(100),
            "initial_bid": initial_bid,
            "reserve": initial_bid + self._draw_price(),
            "date_time": _write_time(at),
            "expires": _write_time(at + length),
            "seller": self._draw_person_id(number, HOT_SELLERS, hot=0),
            "category": FIRST_CATEGORY + rng.randrange(CATEGORIES),
        }
        return self._fill_up(row, AUCTION_BYTES)

    def _draw_bid(self, number: int, at: datetime) -> Row:
        rng = self._rng
        channel = f"channel-{rng.randrange(CHANNELS)}"
        if rng.random() < 0.5:
            channel = rng.choice(HOT_CHANNELS)
        last = _find_last_auction(number)
        row: Row = {
            "auction": FIRST_ID
            + self._choose(
                max(last - ACTIVE_AUCTIONS, 0), last + LEAD, _find_hot(last), HOT_AUCTIONS
            ),
            "bidder": self._draw_person_id(number, HOT_BIDDERS, hot=1),
            "price": self._draw_price(),
            "channel": channel,
            "url": f"https://auction.example.org/{channel}/{rng.randrange(1000)}",
            "date_time": _write_time(at),
        }
        return self._fill_up(row, BID_BYTES)

    def _draw_person_id(self, number: int, ratio: int, hot: int) -> int:
        """Sellers and bidders have hot ones of their own: `hot` is 0 or 1."""
        last = _find_last_person(number)
        first = max(last + 1 - ACTIVE_PERSONS, 0)
        return FIRST_ID + self._choose(first, last + LEAD, _find_hot(last) + hot, ratio)

    def _choose(self, first: int, last: int, hot: int, ratio: int) -> int:
        """One of the ids from `first` to `last`."""
        count = last - first + 1
        if self._bounds:
            rank = bisect_left(self._bounds, self._rng.random() * self._bounds[count - 1])
            return first + (hot - first + rank) % count
        if self._rng.randrange(ratio):
            return hot
        return first + self._rng.randrange(count)

    def _draw_price(self) -> int:
        """In cents: its logarithm is uniform from 1 to a million dollars."""
        return round(10 ** (self._rng.random() * 6) * 100)

    def _draw_text(self, most: int) -> str:
        length = self._rng.randrange(3, most)
        begin = self._rng.randrange(len(self._letters) - length)
        return self._letters[begin : begin + length]

    def _fill_up(self, row: Row, mean_bytes: int) -> Row:
        """Adds `extra`, so that rows have this size on average."""
        size = sum(len(v) if isinstance(v, str) else 8 for v in row.values())
        lack = max(0, mean_bytes - size)
        # From 80 % to 120 % of what is missing.
        length = round(lack * self._rng.uniform(0.8, 1.2))
        begin = self._rng.randrange(len(self._letters) - length)
        return {**row, "extra": self._letters[begin : begin + length]}


def _find_last_person(number: int) -> int:
    """The person that was last when an event came, from 0; itself, if it is one."""
    return number // EPOCH


def _find_last_auction(number: int) -> int:
    """Likewise of auctions; -1 where none was there.

    >>> [_find_last_auction(number) for number in (0, 1, 3, 4, 49, 50, 51)]
    [-1, 0, 2, 2, 2, 2, 3]
    """
    epoch, offset = divmod(number, EPOCH)
    return epoch * AUCTIONS + min(offset, AUCTIONS) - 1


def _find_hot(last: int) -> int:
    return last // HOT_EVERY * HOT_EVERY


def _write_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
