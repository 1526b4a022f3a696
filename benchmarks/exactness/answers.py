"""Reads what a run left in its folder."""

from __future__ import annotations

import json
from pathlib import Path

import inputs
import kinds
import processors
from comparison import check_timers, find_difference
from nexmark.answers import answer, fold
from nexmark.queries import QUERIES

from balancedstream.keyed.storage import Home, Operator

Cuts = dict[str, dict[str, list[int]]]
"""Query and table to the number of the last input file of each batch."""


def count_batches(folder: Path) -> int:
    """How many batches the sink of a query has."""
    return sum(1 for _ in (folder / "batches").glob("*.jsonl"))


def read_rows(folder: Path) -> list[str]:
    """Every output row of a query as `<batch> <row>`: the batches have to agree as well."""
    rows = []
    for path in sorted((folder / "batches").glob("*.jsonl")):
        rows += [f"{int(path.stem)} {_split(line)[1]}" for line in path.read_text().splitlines()]
    return rows


def read_state(folder: Path) -> list[str]:
    """Every row of a query's final state."""
    return (folder / "state.txt").read_text().splitlines()


def find_timer_fault(folder: Path) -> str | None:
    """What is wrong with the processing-time timers of a query so far; see `check_timers`."""
    rows = []
    for path in sorted((folder / "batches").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            seen_ms, row = _split(line)
            rows.append({**json.loads(row), "seen_ms": int(seen_ms)})
    ids = {int(row["id"]) for file in inputs.draw_rows("orders") for row in file}
    keys = [key for key in ids if key % kinds.TIMER_KEYS_EVERY == 0]
    return check_timers(rows, keys, processors.TIMER_ROUNDS)


def find_timer_fault_at_end(kind: str, folder: Path) -> str | None:
    """What was wrong with the timers of a run that has ended: none may be left in the state."""
    for query in kinds.KINDS[kind]:
        fault = find_timer_fault(folder / query)
        if fault:
            return fault
        left = read_state(folder / query)
        if left:
            return f"{len(left)} timers are left, such as {left[0]}"
    return None


def count_moved_keys(kind: str, folder: Path) -> int:
    """How many times a key's state changed its owner in a run, by the epochs on its storage.

    A key that has no state yet arrives as well, with nothing, and is not counted.
    """
    count = 0
    for query, definition in kinds.KINDS[kind].items():
        checkpoint = folder / query / "checkpoint"
        if not definition.reassigned:
            continue
        home = Home(str(checkpoint), Operator())
        for batch in range(home.find_next_batch()):
            epoch = home.read_epoch_of(batch)
            if epoch.batch == batch:
                count += sum(1 for key in epoch.arrivals.values() if key.piece.state_bytes)
    return count


def find_emptiness(kind: str, folder: Path) -> str | None:
    """What an undisturbed run lacks, so that nothing could be lost from it; None if nothing."""
    for query, definition in kinds.KINDS[kind].items():
        if not read_rows(folder / query):
            return f"{kind}: query {query} had no output"
        state = read_state(folder / query)
        for options in definition.states:
            if not any(line.startswith(json.dumps(options)) for line in state):
                return f"{kind}: query {query} had no state with {options}"
    return None


def compare(kind: str, expected: Path, found: Path) -> str | None:
    """The first difference between two runs of a kind in words, or None where they are equal."""
    for query in kinds.KINDS[kind]:
        difference = find_difference(read_rows(expected / query), read_rows(found / query))
        if difference:
            return f"output of {query}: {difference}"
        difference = find_difference(read_state(expected / query), read_state(found / query))
        if difference:
            return f"state of {query}: {difference}"
    return None


def compare_with_engine(kind: str, tables: Path, found: Path) -> str | None:
    """Likewise of a run of NEXMark's and another engine's answer over all rows at once.

    Args:
        kind: one of `kinds.NEXMARK`.
        tables: the inputs of the run.
        found: its folder.
    """
    for query in kinds.KINDS[kind]:
        paths = sorted((found / query / "batches").glob("*.jsonl"))
        lines = [path.read_text().splitlines() for path in paths]
        output = [[json.loads(_split(line)[1]) for line in batch] for batch in lines]
        expected = answer(query, tables / query)
        difference = find_difference(expected, fold(output, QUERIES[query].keys))
        if difference or not expected:
            return f"output of {query}: {difference or 'none was expected'}"
    return None


def read_cuts(kind: str, folder: Path) -> Cuts:
    """Which input files each batch of a run took, from the offset logs of its checkpoints."""
    cuts: Cuts = {}
    for query, definition in kinds.KINDS[kind].items():
        logs = (folder / query / "checkpoint" / "offsets").glob("[0-9]*")
        cuts[query] = {table: [] for table in definition.tables}
        for log in sorted(logs, key=lambda path: int(path.name)):
            _, _, *sources = log.read_text().splitlines()
            # The source that says which key is where comes after the tables.
            for table, source in zip(definition.tables, sources, strict=not definition.reassigned):
                last = json.loads(source)["logOffset"] if source != "-" else -1
                lasts = cuts[query][table]
                if last > (lasts[-1] if lasts else -1):
                    lasts.append(last)
    return cuts


def _split(line: str) -> tuple[str, str]:
    seen_ms, _, row = line.partition(" ")
    return seen_ms, row
