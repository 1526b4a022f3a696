"""The answers to NEXMark's queries, by DuckDB over the same files.

The SQL is written from the definitions, not from the streaming queries: it sees all rows at once,
knows no watermark, and every window has ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from nexmark.events import CLOSES_AT, COLUMNS, NUMBERS, TIMES

Output = Mapping[str, Any]
"""A row of a result by the names of its columns."""

RANKS = (
    ("all", "true"),
    ("low", "price < 10000"),
    ("middle", "price >= 10000 AND price < 1000000"),
    ("high", "price >= 1000000"),
)
COUNTS = ", ".join(
    f"""count(*) FILTER ({test}) AS {rank}_bids,
        count(DISTINCT bidder) FILTER ({test}) AS {rank}_bidders,
        count(DISTINCT auction) FILTER ({test}) AS {rank}_auctions"""
    for rank, test in RANKS
)
DAY = "strftime(date_time, '%Y-%m-%d')"
WINNERS = """
    SELECT a.id, a.seller, a.category, epoch_us(a.date_time) AS at_us,
        epoch_us(a.expires) AS expires_us, b.bidder, b.price, epoch_us(b.date_time) AS bid_at_us
    FROM auction a JOIN bid b
        ON b.auction = a.id AND b.date_time >= a.date_time AND b.date_time < a.expires
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) = 1
"""
TUMBLING = "epoch_us(date_time) // 10000000 * 10000000"
ANSWERS: Mapping[str, str] = {
    "q3": """
        SELECT name, city, state, auction.id AS auction
        FROM auction JOIN person ON auction.seller = person.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')
    """,
    "q4": f"""
        SELECT category, count(*) AS closed, sum(price)::DOUBLE / count(*) AS average
        FROM ({WINNERS}) GROUP BY category
    """,
    "q5": """
        WITH placed AS (
            SELECT auction, (epoch_us(date_time) // 2000000 - back) * 2000000 AS starts_us
            FROM bid, range(5) AS slides(back)
        ), counted AS (
            SELECT starts_us, auction, count(*) AS bids FROM placed GROUP BY ALL
        )
        SELECT starts_us, auction, bids FROM counted
        QUALIFY rank() OVER (PARTITION BY starts_us ORDER BY bids DESC) = 1
    """,
    "q6": f"""
        SELECT seller, id, sum(price) OVER last_ten::DOUBLE / count(*) OVER last_ten AS average
        FROM ({WINNERS})
        WINDOW last_ten AS (
            PARTITION BY seller ORDER BY expires_us, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
        )
    """,
    "q7": f"""
        SELECT auction, price, bidder, epoch_us(date_time) AS at_us FROM bid
        QUALIFY rank() OVER (PARTITION BY {TUMBLING} ORDER BY price DESC) = 1
    """,
    "q8": f"""
        WITH new AS (SELECT id, name, {TUMBLING} AS starts_us FROM person),
            sells AS (SELECT seller, {TUMBLING} AS starts_us FROM auction)
        SELECT id, name, starts_us FROM new
        WHERE (id, starts_us) IN (SELECT (seller, starts_us) FROM sells)
    """,
    "q9": WINNERS,
    "q11": """
        WITH stepped AS (
            SELECT bidder, epoch_us(date_time) AS at_us,
                at_us - lag(at_us) OVER (PARTITION BY bidder ORDER BY at_us) AS gap_us
            FROM bid
        ), numbered AS (
            SELECT bidder, at_us, count(*) FILTER (gap_us >= 10000000)
                OVER (PARTITION BY bidder ORDER BY at_us) AS session
            FROM stepped
        )
        SELECT bidder, count(*) AS bids, min(at_us) AS starts_us, max(at_us) + 10000000 AS ends_us
        FROM numbered GROUP BY bidder, session
    """,
    "q12": f"""
        SELECT bidder, count(*) AS bids, {TUMBLING} AS starts_us FROM bid GROUP BY ALL
    """,
    "q15": f"SELECT {DAY} AS day, {COUNTS} FROM bid GROUP BY day",
    "q16": f"""
        SELECT channel, {DAY} AS day, max(strftime(date_time, '%H:%M')) AS minute, {COUNTS}
        FROM bid GROUP BY channel, day
    """,
    "q17": f"""
        SELECT auction, {DAY} AS day,
            {", ".join(f"count(*) FILTER ({test}) AS {rank}_bids" for rank, test in RANKS)},
            min(price) AS least, max(price) AS most, sum(price)::DOUBLE / count(*) AS average,
            sum(price)::BIGINT AS total
        FROM bid GROUP BY auction, day
    """,
    "q18": """
        SELECT bidder, auction, epoch_us(date_time) AS at_us, price, channel, url, extra FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) = 1
    """,
    "q19": """
        SELECT auction, row_number() OVER best AS place, bidder, price,
            epoch_us(date_time) AS at_us
        FROM bid
        WINDOW best AS (PARTITION BY auction ORDER BY price DESC, date_time)
        QUALIFY place <= 10
    """,
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, epoch_us(b.date_time) AS at_us,
            a.item_name, a.description, a.initial_bid, a.reserve, a.seller, a.extra,
            epoch_us(a.expires) AS expires_us
        FROM bid b JOIN auction a ON b.auction = a.id
        WHERE a.category = 10
    """,
}


def answer(query: str, folder: Path) -> list[str]:
    """The rows of a query's answer, as `write_row` writes them.

    Args:
        query: one of `ANSWERS`.
        folder: has a folder of JSON files for each table that the query reads.
    """
    with duckdb.connect(config={"threads": 1}) as connection:
        for table, columns in COLUMNS.items():
            if not (folder / table).exists():
                continue
            types = {
                name: "BIGINT" if name in NUMBERS else "TIMESTAMP" if name in TIMES else "VARCHAR"
                for name in columns
            }
            pairs = ", ".join(f"{name}: '{kind}'" for name, kind in types.items())
            connection.execute(
                f"CREATE TABLE {table} AS SELECT * FROM "
                f"read_json('{folder / table}/*.json', format = 'nd', columns = {{{pairs}}}) "
                f"WHERE date_time < TIMESTAMP '{CLOSES_AT:%Y-%m-%d}'"
            )
        result = connection.execute(ANSWERS[query])
        names = [column[0] for column in result.description or ()]
        return [write_row(dict(zip(names, row, strict=True))) for row in result.fetchall()]


def fold(batches: Iterable[Sequence[Output]], keys: Sequence[str]) -> list[str]:
    """What a streaming query has said when it ends, as `write_row` writes it.

    Args:
        batches: its output, oldest first.
        keys: of `queries.Query`.

    >>> fold([[{"k": 1, "n": 1}, {"k": 2, "n": 1}], [{"k": 1, "n": 5}]], keys=["k"])
    ['{"k": 2, "n": 1}', '{"k": 1, "n": 5}']
    """
    rows: list[Output] = []
    for batch in batches:
        if keys:
            fresh = {tuple(row[key] for key in keys) for row in batch}
            rows = [row for row in rows if tuple(row[key] for key in keys) not in fresh]
        rows += batch
    return [write_row(row) for row in rows]


def write_row(row: Output) -> str:
    """A row as text that is the same for equal rows, whoever found them."""
    return json.dumps(row, sort_keys=True)
