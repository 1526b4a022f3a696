"""The input of every schedule: two small tables, cut by time into files that Spark reads in order.

The rows never change, so that one undisturbed run answers for every schedule. Keys are skewed, a
fifth of the rows are repeated later, a twentieth come too late for the watermark.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

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

MODIFIED_S = 1_704_067_200
"""Modification time of the first file; Spark's file source reads in this order."""

Row = dict[str, int | str]


def draw_rows(table: str) -> list[list[Row]]:
    """The rows of a table, file by file."""
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


def write_table(folder: Path, table: str, batches: Sequence[int] = tuple(range(FILES))) -> None:
    """Writes the files of a table.

    Args:
        folder: is created.
        table: one of `TABLES`.
        batches: the number of the last file in each batch; files that a restarted driver took
            together are written as one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = draw_rows(table)
    for number, (first, last) in enumerate(_ranges(batches)):
        path = folder / f"part-{number:03}.json"
        lines = [json.dumps(row) + "\n" for rows in files[first : last + 1] for row in rows]
        path.write_text("".join(lines))
        os.utime(path, (MODIFIED_S + number, MODIFIED_S + number))


def _ranges(lasts: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = 0
    for last in lasts:
        yield first, last
        first = last + 1
