"""NEXMark's queries with state, as streaming queries of Spark.

The numbers are those of nexmark-flink (github.com/nexmark/nexmark), which has those of Apache Beam
and more. The queries without state (q0, q1, q2, q10, q14, q21, q22) are left out, since nothing of
them can move, and q13, which joins a table that does not change.

What differs from the definitions, since Spark's streams cannot say it or an answer could not be
known:

- q4, q6 and q9 close an auction by a timer at `expires`, in Python: a join by event time needs a
  bound on how long auctions last. q4 and q6 are two stateful operators in a row. q6 averages the
  last ten auctions of a seller.
- q12 counts by windows of event time, not of processing time.
- q15 and q16 count distinct values exactly by sets: a stream has no `count(DISTINCT ...)`.
- q19 keeps its ten bids in Python: a stream has no `row_number()`.
- Points in time in results are whole microseconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from nexmark.processors import (
    AVERAGE_SCHEMA,
    SELLER_SCHEMA,
    TOP_SCHEMA,
    WINNER_SCHEMA,
    CategoryAverages,
    SellerAverages,
    TopBids,
    Winners,
)
from nexmark.streams import Read

WINDOW = "10 seconds"
SLIDE = "2 seconds"


@dataclass(frozen=True)
class Query:
    """One streaming query.

    Attributes:
        build: makes it from its tables.
        tables: that it reads, once for each time it reads them.
        output_mode: of Spark.
        keys: rows of a later batch replace all earlier rows with the same values of these columns;
            without any, rows are only added.
        since: the first Spark that can run it.
    """

    build: Callable[[Read], DataFrame]
    tables: tuple[str, ...]
    output_mode: Literal["append", "update"]
    keys: tuple[str, ...] = ()
    since: tuple[int, int] = (3, 5)


def find_local_sellers(read: Read) -> DataFrame:
    """q3: who sells in category 10 and lives in one of three states."""
    persons = read("person").where(F.col("state").isin("OR", "ID", "CA"))
    auctions = read("auction").where("category = 10")
    joined = persons.alias("p").join(auctions.alias("a"), F.expr("p.id = a.seller"))
    return joined.select("name", "city", "state", F.col("a.id").alias("auction"))


def average_by_category(read: Read) -> DataFrame:
    """q4: the average closing price of each category."""
    grouped = find_winners(read).groupBy("category")
    return grouped.transformWithState(CategoryAverages(), AVERAGE_SCHEMA, "append", "none")


def find_hot_items(read: Read) -> DataFrame:
    """q5: the auctions with the most bids of each sliding window."""
    counted = (
        read("bid")
        .groupBy(F.window("date_time", WINDOW, SLIDE), "auction")
        .agg(F.count("*").alias("bids"))
    )
    hottest = counted.groupBy("window").agg(
        F.max("bids").alias("most"), F.collect_list(F.struct("auction", "bids")).alias("all")
    )
    hot = F.explode(F.filter("all", lambda item: item["bids"] == F.col("most"))).alias("item")
    return hottest.select(start_of("window"), hot).select("starts_us", "item.auction", "item.bids")


def average_by_seller(read: Read) -> DataFrame:
    """q6: the average closing price of a seller's last ten auctions, as each one ends."""
    grouped = find_winners(read).groupBy("seller")
    return grouped.transformWithState(SellerAverages(), SELLER_SCHEMA, "append", "none")


def find_highest_bids(read: Read) -> DataFrame:
    """q7: the highest bids of each window."""
    window = F.window("date_time", WINDOW)
    highest = read("bid").groupBy(window.alias("window")).agg(F.max("price").alias("price"))
    bids = read("bid").select(
        window.alias("window"), "price", "auction", "bidder", time_of("date_time", "at_us")
    )
    return bids.join(highest, ["window", "price"]).select("auction", "price", "bidder", "at_us")


def find_new_sellers(read: Read) -> DataFrame:
    """q8: who came and opened an auction within the same window."""
    persons = read("person").select("id", "name", F.window("date_time", WINDOW).alias("window"))
    sellers = (
        read("auction")
        .select(F.col("seller").alias("id"), F.window("date_time", WINDOW).alias("window"))
        .dropDuplicates(["id", "window"])
    )
    return persons.join(sellers, ["id", "window"]).select("id", "name", start_of("window"))


def find_winners(read: Read) -> DataFrame:
    """q9: the winning bid of each auction."""
    none = F.lit(None).cast("bigint")
    auctions = read("auction").select(
        "id",
        "date_time",
        time_of("date_time", "at_us"),
        time_of("expires", "expires_us"),
        "seller",
        "category",
        none.alias("price"),
        none.alias("bidder"),
    )
    bids = read("bid").select(
        F.col("auction").alias("id"),
        "date_time",
        time_of("date_time", "at_us"),
        none.alias("expires_us"),
        none.alias("seller"),
        none.alias("category"),
        "price",
        "bidder",
    )
    grouped = auctions.union(bids).groupBy("id")
    return grouped.transformWithState(Winners(), WINNER_SCHEMA, "append", "eventTime")


def count_in_sessions(read: Read) -> DataFrame:
    """q11: the bids of each bidder's sessions."""
    session = F.session_window("date_time", WINDOW)
    counted = read("bid").groupBy("bidder", session.alias("s")).agg(F.count("*").alias("bids"))
    return counted.select(
        "bidder", "bids", time_of("s.start", "starts_us"), time_of("s.end", "ends_us")
    )


def count_in_windows(read: Read) -> DataFrame:
    """q12: the bids of each bidder in each window."""
    window = F.window("date_time", WINDOW)
    counted = read("bid").groupBy("bidder", window.alias("w")).agg(F.count("*").alias("bids"))
    return counted.select("bidder", "bids", start_of("w"))


def describe_days(read: Read) -> DataFrame:
    """q15: how many bids, bidders and auctions a day has, in all and by three ranks of price."""
    return read("bid").groupBy(day()).agg(*count_by_rank())


def describe_channels(read: Read) -> DataFrame:
    """q16: the same by channel, with the last minute of a bid."""
    minute = F.max(F.date_format("date_time", "HH:mm")).alias("minute")
    return read("bid").groupBy("channel", day()).agg(minute, *count_by_rank())


def describe_auctions(read: Read) -> DataFrame:
    """q17: the bids and prices of each auction and day."""
    return (
        read("bid")
        .groupBy("auction", day())
        .agg(
            *(F.count_if(test).alias(f"{rank}_bids") for rank, test in rank_prices().items()),
            F.min("price").alias("least"),
            F.max("price").alias("most"),
            F.avg("price").alias("average"),
            F.sum("price").alias("total"),
        )
    )


def keep_last_bids(read: Read) -> DataFrame:
    """q18: the last bid of each bidder for each auction."""
    bid = F.struct(time_of("date_time", "at_us"), "price", "channel", "url", "extra")
    last = read("bid").groupBy("bidder", "auction").agg(F.max(bid).alias("last"))
    return last.select("bidder", "auction", "last.*")


def keep_top_bids(read: Read) -> DataFrame:
    """q19: the ten highest bids of each auction."""
    bids = read("bid").select("auction", "bidder", "price", time_of("date_time", "at_us"))
    return bids.groupBy("auction").transformWithState(TopBids(), TOP_SCHEMA, "update", "none")


def describe_bids(read: Read) -> DataFrame:
    """q20: the bids for auctions of category 10, with what is sold."""
    auctions = read("auction").where("category = 10")
    joined = read("bid").alias("b").join(auctions.alias("a"), F.expr("b.auction = a.id"))
    return joined.select(
        *("b.auction", "b.bidder", "b.price", "b.channel", "b.url"),
        time_of("b.date_time", "at_us"),
        *("a.item_name", "a.description", "a.initial_bid", "a.reserve", "a.seller", "a.extra"),
        time_of("a.expires", "expires_us"),
    )


def time_of(column: str, name: str) -> Column:
    return F.unix_micros(column).alias(name)


def start_of(window: str) -> Column:
    return time_of(f"{window}.start", "starts_us")


def day() -> Column:
    return F.date_format("date_time", "yyyy-MM-dd").alias("day")


def rank_prices() -> dict[str, Column]:
    """The ranks of a price, in cents."""
    price = F.col("price")
    return {
        "all": F.lit(True),
        "low": price < 10_000,
        "middle": (price >= 10_000) & (price < 1_000_000),
        "high": price >= 1_000_000,
    }


def count_by_rank() -> list[Column]:
    counts = []
    for rank, test in rank_prices().items():
        counts.append(F.count_if(test).alias(f"{rank}_bids"))
        counts += [
            F.size(F.collect_set(F.when(test, F.col(column)))).alias(f"{rank}_{column}s")
            for column in ("bidder", "auction")
        ]
    return counts


QUERIES: Mapping[str, Query] = MappingProxyType(
    {
        "q3": Query(find_local_sellers, ("person", "auction"), "append"),
        "q4": Query(average_by_category, ("auction", "bid"), "append", ("category",), since=(4, 1)),
        "q5": Query(find_hot_items, ("bid",), "append"),
        "q6": Query(average_by_seller, ("auction", "bid"), "append", since=(4, 1)),
        "q7": Query(find_highest_bids, ("bid", "bid"), "append"),
        "q8": Query(find_new_sellers, ("person", "auction"), "append"),
        "q9": Query(find_winners, ("auction", "bid"), "append", since=(4, 1)),
        "q11": Query(count_in_sessions, ("bid",), "append"),
        "q12": Query(count_in_windows, ("bid",), "update", ("bidder", "starts_us")),
        "q15": Query(describe_days, ("bid",), "update", ("day",)),
        "q16": Query(describe_channels, ("bid",), "update", ("channel", "day")),
        "q17": Query(describe_auctions, ("bid",), "update", ("auction", "day")),
        "q18": Query(keep_last_bids, ("bid",), "update", ("bidder", "auction")),
        "q19": Query(keep_top_bids, ("bid",), "update", ("auction",), since=(4, 1)),
        "q20": Query(describe_bids, ("bid", "auction"), "append"),
    }
)
