"""Writes tables as files of JSON lines, in the order in which Spark's file source reads them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from nexmark.events import TABLES, Event, Row, draw_closing

MODIFIED_S = 1_704_067_200
"""Modification time of the first file; Spark's file source reads in this order."""


def divide(events: Sequence[Event], files: int) -> dict[str, list[list[Row]]]:
    """Each table's rows, file by file, then its two closing rows.

    File N of every table has rows that arrived in the same N-th part of the stream.

    Args:
        events: in the order of their arrival.
        files: into how many the events are divided.
    """
    divided: dict[str, list[list[Row]]] = {table: [] for table in TABLES}
    for number in range(files):
        first, end = (len(events) * n // files for n in (number, number + 1))
        for table in TABLES:
            divided[table].append([e.row for e in events[first:end] if e.table == table])
    for table in TABLES:
        divided[table] += [[row] for row in draw_closing(table)]
    return divided


def write_files(folder: Path, files: Iterable[Sequence[Row]]) -> None:
    """Writes one file for each list of rows; the folder is created."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(files):
        path = folder / f"part-{number:03}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (MODIFIED_S + number, MODIFIED_S + number))
