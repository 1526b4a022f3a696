"""The page of results: the figures that answer what users ask, and how many targets were met."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tables.markdown import say_whether, table


@dataclass(frozen=True)
class Headline:
    """A cell of a table that answers a question, or a part of one.

    Attributes:
        question: what users ask.
        words: what was compared.
        table: name of the benchmark.
        row: the first cells of the row.
        column: head of the column.
    """

    question: str
    words: str
    table: str
    row: tuple[str, ...]
    column: str


GAIN = "What does balancing bring?"
MOVE = "What does a move cost while it happens?"
REST = "What does attaching cost at rest?"
LOAD = "How well does scaling follow the load?"
LARGE = "What about hot keys, uneven rows and many partitions?"

HEADLINES = (
    Headline(
        GAIN,
        "skewed keys (Zipf's law, s = 1), balanced: a batch ÷ Spark's own",
        "placement",
        ("1",),
        "balanced ÷ vanilla",
    ),
    Headline(
        MOVE,
        "a quarter of 1 GiB of state moves: the longest batch ÷ a steady one",
        "migration",
        ("disk, 32 partitions", "prepared", "away"),
        "longest ÷ steady",
    ),
    Headline(
        REST,
        "even keys, nothing to do: a batch with us ÷ without",
        "idle",
        ("long",),
        "attached ÷ not attached",
    ),
    Headline(
        LOAD,
        "five kinds of load, simulated: executor-hours ÷ those of an oracle that knows the load",
        "scaling_simulated",
        ("ours",),
        "executor-hours ÷ oracle",
    ),
    Headline(
        LOAD,
        "the same loads: rows later than 25 s",
        "scaling_simulated",
        ("ours",),
        "rows too late",
    ),
    Headline(
        LARGE,
        "two hot keys in one partition, parted by `balanced(...)`: a batch ÷ Spark's own",
        "hot_keys",
        ("two in one partition", "400", "routes"),
        "÷ vanilla",
    ),
    Headline(
        LARGE,
        "one key with 60 % of the rows, split by `aggregate`: a batch ÷ Spark's own",
        "split_key",
        ("aggregate",),
        "÷ vanilla",
    ),
    Headline(
        LARGE,
        "rows of unequal cost (Zipf's law, s = 2), shuffled by cost: a batch ÷ round robin's",
        "shuffle",
        ("independent", "2"),
        "by cost ÷ round robin",
    ),
    Headline(
        LARGE,
        "30,000 state partitions on 1,000 executors: CPU time of the loop for a batch, in ms",
        "loop_cost",
        ("3 x 10,000 on 1,000",),
        "loop (ms)",
    ),
)
"""The first one of a question answers it by itself."""


def tabulate_headlines(
    tables: Mapping[str, str], days: Mapping[str, str], folder: str, *, only_first: bool
) -> Iterator[str]:
    """The figures as a table.

    Args:
        tables: by name of the benchmark, as the pages have them.
        days: when each commit was made.
        folder: path to the benchmarks' pages.
        only_first: one figure a question.

    Raises:
        LookupError: a table has no such row or column, or a commit no day.
    """
    rows = []
    answered: set[str] = set()
    for headline in HEADLINES:
        is_first = headline.question not in answered
        answered.add(headline.question)
        if only_first and not is_first:
            continue
        cell = find_cell(tables[headline.table], headline.row, headline.column)
        commits = find_commits(tables[headline.table])
        day = max(days[commit] for commit in commits)
        short = ", ".join(commit[:7] for commit in commits)
        link = f"[{headline.table}]({folder}/{headline.table}.md)"
        question = headline.question if is_first else ""
        rows.append([question, headline.words, cell, f"{link}, {day}, {short}"])
    yield from table(["question", "measured", "figure", "benchmark, day, commits"], rows)


def tabulate_targets(tables: Mapping[str, str], titles: Mapping[str, str]) -> Iterator[str]:
    """How many targets each benchmark met and missed, of those that have targets.

    Args:
        tables: by name of the benchmark, as the pages have them.
        titles: of the pages, by name of the benchmark.
    """
    rows = []
    for name, title in titles.items():
        met, missed = (count_cells(tables[name], say_whether(is_met)) for is_met in (True, False))
        if met or missed:
            link = f"[{title}](benchmarks/{name}.md)"
            rows.append([link, str(met), f"**{missed}**" if missed else "0"])
    yield from table(["benchmark", "targets met", "missed"], rows)


def count_cells(table: str, text: str) -> int:
    r"""How many cells of the tables have a text.

    >>> count_cells("| a | met |\n|---|---|\n| x | yes |\n| y | **no** |", "yes")
    1
    """
    return sum(
        cell.strip() == text
        for line in table.splitlines()
        if line.startswith("|")
        for cell in line.split("|")
    )


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


def find_commits(table: str) -> list[str]:
    r"""The commits at which a table was measured.

    >>> find_commits("5 results; 2 cores; commit 73983f72b92d, 2b474fc88f4f with changes.\n")
    ['73983f72b92d', '2b474fc88f4f']
    """
    first = table.strip().splitlines()[0]
    return re.findall(r"\b[0-9a-f]{12}\b", first.rpartition("; ")[2])
