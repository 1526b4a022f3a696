"""The input of every schedule: small tables, cut by time into files that Spark reads in order.

The rows never change, so that one undisturbed run answers for every schedule. Of `TABLES`, keys are
skewed, a fifth of the rows are repeated later, a twentieth come too late for the watermark. The
others are NEXMark's, whose rows come out of order, and in time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from nexmark.events import Row, Workload, draw_events
from nexmark.files import divide, write_files

TABLES = ("orders", "payments")
SCHEMA = "id BIGINT, key BIGINT, value BIGINT, at TIMESTAMP"
FILES = 8
ROWS_PER_FILE = 300
KEYS = 40
FILE_MS = 60_000
"""Event time that one file spans."""

WATERMARK_DELAY = "20 seconds"
LATE_MS = 90_000
"""How much older a late row is: past the watermark delay and a whole file."""

FIRST_MS = 1_704_067_200_000
"""2024-01-01 00:00 UTC."""

AUCTIONS = Workload(events=2400, group=50)
SEED = 1
"""Of NEXMark's tables."""


def draw_files(table: str) -> list[list[Row]]:
    """The rows of any table, file by file."""
    return draw_rows(table) if table in TABLES else _draw_auctions()[table]


@cache
def _draw_auctions() -> dict[str, list[list[Row]]]:
    return divide(list(draw_events(AUCTIONS, SEED)), FILES)


def draw_rows(table: str) -> list[list[Row]]:
    """The rows of one of `TABLES`, file by file."""
    rng = random.Random(table)
    files: list[list[Row]] = []
    for number in range(FILES):
        rows: list[Row] = []
        for i in range(ROWS_PER_FILE):
            if rows and rng.random() < 0.2:
                rows.append(rng.choice(rng.choice([rows, files[-1]]) if files else rows))
                continue
            at_ms = FIRST_MS + number * FILE_MS + rng.randrange(FILE_MS)
            if rng.random() < 0.05:
                at_ms -= LATE_MS
            rows.append(
                {
                    "id": number * ROWS_PER_FILE + i,
                    "key": int(KEYS * rng.random() ** 3),
                    "value": rng.randrange(1000),
                    "at": datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(),
                }
            )
        files.append(rows)
    return files


def list_batches(table: str) -> list[int]:
    """The number of the last file in each batch, where each file is one."""
    return list(range(len(draw_files(table))))


def write_table(folder: Path, table: str, batches: Sequence[int] | None = None) -> None:
    """Writes the files of a table.

    Args:
        folder: is created.
        table: any.
        batches: the number of the last file in each batch; files that a restarted driver took
            together are written as one. The default is `list_batches`.
    """
    files = draw_files(table)
    write_files(
        folder,
        (
            [row for rows in files[first : last + 1] for row in rows]
            for first, last in _ranges(list_batches(table) if batches is None else batches)
        ),
    )


def _ranges(lasts: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = 0
    for last in lasts:
        yield first, last
        first = last + 1
