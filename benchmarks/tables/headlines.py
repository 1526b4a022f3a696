"""The few figures that matter most, quoted from the tables of the benchmarks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Headline:
    """A cell of a table, in words.

    Attributes:
        words: what was compared.
        table: whose name the benchmark has.
        row: what the first cells of the row say.
        column: its head.
        anchor: of the section that says more.
    """

    words: str
    table: str
    row: tuple[str, ...]
    column: str
    anchor: str


HEADLINES = (
    Headline(
        "skewed keys (Zipf's law, s = 1), balanced: a batch ÷ Spark's own",
        "placement",
        ("1",),
        "balanced ÷ vanilla",
        "placement",
    ),
    Headline(
        "two hot keys in one partition, parted by `balanced(...)`: a batch ÷ Spark's own",
        "hot_keys",
        ("two in one partition", "400", "routes"),
        "÷ vanilla",
        "hot-keys-and-their-handoff",
    ),
    Headline(
        "one key with 60 % of the rows, split by `aggregate`: a batch ÷ Spark's own",
        "split_key",
        ("aggregate",),
        "÷ vanilla",
        "one-hot-key-split",
    ),
    Headline(
        "a quarter of 1 GiB of state moves: the longest batch ÷ a steady one",
        "migration",
        ("disk, 32 partitions", "prepared", "away"),
        "longest ÷ steady",
        "migration",
    ),
    Headline(
        "even keys, nothing to do: a batch with us ÷ without",
        "idle",
        ("long",),
        "attached ÷ not attached",
        "placement",
    ),
)


def tabulate_headlines(tables: Mapping[str, str], page: str) -> Iterator[str]:
    """The figures as a table.

    Args:
        tables: by name of the benchmark, as the page has them.
        page: that the links lead to; empty on the page itself.

    Raises:
        LookupError: a table has no such row or column.
    """
    yield "| measured | figure | more |"
    yield "| --- | --- | --- |"
    for headline in HEADLINES:
        cell = find_cell(tables[headline.table], headline.row, headline.column)
        commits = find_origin(tables[headline.table])
        link = f"[{headline.table}]({page}#{headline.anchor})"
        yield f"| {headline.words} | {cell} | {link}, {commits} |"


def find_cell(table: str, row: tuple[str, ...], column: str) -> str:
    r"""A cell of the first table that has the row and the column.

    >>> find_cell("| a | b |\n|---|---|\n| x | 1 |\n", ("x",), "b")
    '1'

    Raises:
        LookupError: there is none.
    """
    heads: list[str] = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            heads = []
        elif not heads:
            heads = cells
        elif column in heads and tuple(cells[: len(row)]) == row:
            return cells[heads.index(column)]
    message = f"no table has a row {row} and a column {column}"
    raise LookupError(message)


def find_origin(table: str) -> str:
    r"""At which commits a table was measured.

    >>> find_origin("5 results; 2 cores; commit 73983f72b92d.\n")
    'commit 73983f7'
    """
    first = table.strip().splitlines()[0]
    origin = first.rpartition("; ")[2].removesuffix(".")
    return re.sub(r"\b([0-9a-f]{7})[0-9a-f]{5}\b", r"\1", origin)
