"""What queries do with the rows of a key in Python, with Spark's `transformWithState`.

Answers do not depend on the order of rows within a batch, which Spark does not guarantee. This
module is sent to Spark's workers by value, so it imports nothing of its neighbours.

Times are microseconds since the Unix epoch, as the rows have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import Row

try:
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
except ImportError:  # Spark 3.5, which has no query that needs them
    StatefulProcessor = StatefulProcessorHandle = object

WINNER_SCHEMA = (
    "id BIGINT, seller BIGINT, category BIGINT, at_us BIGINT, expires_us BIGINT, "
    "bidder BIGINT, price BIGINT, bid_at_us BIGINT"
)
BID_STATE = "price BIGINT, at_us BIGINT, bidder BIGINT"
TOP = 10
"""Bids of an auction in q19; auctions of a seller in q6."""

AVERAGE_SCHEMA = "category BIGINT, closed BIGINT, average DOUBLE"
SELLER_SCHEMA = "seller BIGINT, id BIGINT, average DOUBLE"
TOP_SCHEMA = "auction BIGINT, place BIGINT, bidder BIGINT, price BIGINT, at_us BIGINT"

Bid = tuple[int, int, int]
"""Price, time and bidder."""


def to_timer_ms(at_us: int) -> int:
    """The first millisecond that is not before a time: timers know no shorter ones."""
    return -(-at_us // 1000)


def choose_winner(bids: Iterable[Bid]) -> Bid:
    """The highest bid, and of equal ones the first."""
    return min(bids, key=lambda bid: (-bid[0], bid[1]))


class Winners(StatefulProcessor):  # type: ignore[misc]
    """Gives the winning bid of an auction when it ends.

    Rows are auctions, with `expires_us`, and bids, without. A bid that comes before its auction is
    kept until the watermark has passed the bid: the auction would have come by then.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._auction = handle.getValueState(
            "auction", "at_us BIGINT, expires_us BIGINT, seller BIGINT, category BIGINT"
        )
        self._best = handle.getValueState("best", BID_STATE)
        self._early = handle.getListState("early", BID_STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        bids: list[Bid] = []
        for row in rows:
            if row.expires_us is None:
                bids.append((row.price, row.at_us, row.bidder))
                continue
            self._auction.update((row.at_us, row.expires_us, row.seller, row.category))
            self._handle.registerTimer(to_timer_ms(row.expires_us))
        if not self._auction.exists():
            for bid in bids:
                self._early.appendValue(bid)
                self._handle.registerTimer(to_timer_ms(bid[1]))
            return iter(())
        at_us, expires_us, *_ = self._auction.get()
        if self._early.exists():
            bids += [(row[0], row[1], row[2]) for row in self._early.get()]
            self._early.clear()
        valid = [bid for bid in bids if at_us <= bid[1] < expires_us]
        if self._best.exists():
            valid.append(tuple(self._best.get()))
        if valid:
            self._best.update(choose_winner(valid))
        return iter(())

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        fired_ms = expiredTimerInfo.getExpiryTimeInMs()
        if not self._auction.exists():
            kept = [tuple(row) for row in self._early.get()] if self._early.exists() else []
            kept = [bid for bid in kept if to_timer_ms(bid[1]) > fired_ms]
            if kept:
                self._early.put(kept)
            else:
                self._early.clear()
            return
        at_us, expires_us, seller, category = self._auction.get()
        if to_timer_ms(expires_us) != fired_ms:
            return
        if self._best.exists():
            price, bid_at_us, bidder = self._best.get()
            yield Row(
                id=key[0],
                seller=seller,
                category=category,
                at_us=at_us,
                expires_us=expires_us,
                bidder=bidder,
                price=price,
                bid_at_us=bid_at_us,
            )
        self._best.clear()
        self._auction.clear()

    def close(self) -> None:
        """Nothing is held."""


class CategoryAverages(StatefulProcessor):  # type: ignore[misc]
    """The average price of the auctions of a category that have ended so far."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._sold = handle.getValueState("sold", "closed BIGINT, total BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        closed, total = self._sold.get() if self._sold.exists() else (0, 0)
        for row in rows:
            closed += 1
            total += row.price
        self._sold.update((closed, total))
        yield Row(category=key[0], closed=closed, average=total / closed)

    def close(self) -> None:
        """Nothing is held."""


class SellerAverages(StatefulProcessor):  # type: ignore[misc]
    """With each auction that ends: the average price of its seller's last ones.

    All auctions that end in a later batch end later.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getListState("last", "price BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        prices = [row[0] for row in self._last.get()] if self._last.exists() else []
        for row in sorted(rows, key=lambda row: (row.expires_us, row.id)):
            prices = [*prices, row.price][-TOP:]
            yield Row(seller=key[0], id=row.id, average=sum(prices) / len(prices))
        self._last.put([(price,) for price in prices])

    def close(self) -> None:
        """Nothing is held."""


class TopBids(StatefulProcessor):  # type: ignore[misc]
    """The highest bids of an auction so far; of equal ones the first."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._top = handle.getListState("top", BID_STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        bids = [(row.price, row.at_us, row.bidder) for row in rows]
        if self._top.exists():
            bids += [(row[0], row[1], row[2]) for row in self._top.get()]
        top = sorted(bids, key=lambda bid: (-bid[0], bid[1]))[:TOP]
        self._top.put(top)
        for place, (price, at_us, bidder) in enumerate(top, start=1):
            yield Row(auction=key[0], place=place, bidder=bidder, price=price, at_us=at_us)

    def close(self) -> None:
        """Nothing is held."""
