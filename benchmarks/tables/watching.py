"""An agent that only watches beside no plugin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tables.idle import TARGET, compare_with_alone
from tables.markdown import Result, spread, table


def tabulate_watching(results: Sequence[Result]) -> Iterator[str]:
    rows = [
        [*row, spread(max(run["agent_mib"]) for run in runs)]
        for row, runs in compare_with_alone(results, "watched")
    ]
    header = ["batches", "no plugin (s)", "watched (s)", "watched ÷ no plugin"]
    yield from table([*header, TARGET, "agent (MiB)"], rows)
