"""What a batch costs the driver's Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from targets import MAX_LOOP_S

from tables.markdown import Result, say_whether, spread, table

IN_LOOP = ("parse", "realize", "summarize", "journal", "decide")
SIZE = ("operators", "partitions", "executors")


def tabulate_loop_cost(results: Sequence[Result]) -> Iterator[str]:
    by_size: dict[tuple[int, ...], list[dict[str, float]]] = {}
    for result in results:
        size = tuple(result["case"][name] for name in SIZE)
        by_size.setdefault(size, []).append(result["measured"])
    rows = []
    for (operators, partitions, executors), runs in by_size.items():
        loops_ms = [sum(run[part] for part in IN_LOOP) for run in runs]
        rows.append(
            [
                f"{operators} x {partitions:,} on {executors:,}",
                *(spread((run[part] for run in runs), 1) for part in IN_LOOP),
                spread(loops_ms, 1),
                say_whether(max(loops_ms) <= MAX_LOOP_S * 1000),
                spread((run["scrape"] for run in runs), 1),
            ]
        )
    header = ["operators x partitions on executors", *(f"{part} (ms)" for part in IN_LOOP)]
    yield from table([*header, "loop (ms)", f"≤ {MAX_LOOP_S * 1000:.0f} ms", "scrape (ms)"], rows)
