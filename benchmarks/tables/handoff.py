"""Ten thousand keys change their state partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from statistics import median

from targets import MAX_BALANCED_OVER_OWN, MAX_HYBRID_OVER_EAGER

from tables.markdown import NONE, Result, say_whether, spread, table


def tabulate_handoff(results: Sequence[Result]) -> Iterator[str]:
    """The arms of a repetition are compared with each other."""
    arms: dict[tuple[str, tuple[int, int]], list[Result]] = {}
    for result in sorted(results, key=lambda r: int(r["case"]["repetition"])):
        job = int(result["case"]["rows_per_batch"]), int(result["case"]["wait_ms"])
        arms.setdefault((str(result["case"]["arm"]), job), []).append(result)
    jobs = sorted({job for _, job in arms})
    fewest = jobs[0]
    rows = []
    shown = {"eager": "eager", "lazy": "lazy", "hybrid": "hybrid", "budgeted": "hybrid, by budget"}
    for arm, text in shown.items():
        runs = arms[arm, fewest]
        done = [batches_until_moved(run) for run in runs]
        is_hybrid = arm in ("hybrid", "budgeted")
        shares = [run["measured"]["share"] for run in runs] if is_hybrid else []
        rows.append(
            [
                text,
                spread(shares, decimals=0) if shares else NONE,
                spread(steady_batch_s(run) for run in runs),
                spread(longest_moving_s(run) for run in runs),
                spread(longest_moving_s(run) / steady_batch_s(run) for run in runs),
                spread((run["measured"]["moved"][-1] for run in runs), decimals=0),
                "never" if None in done else spread(done, decimals=0),
            ]
        )
    yield from table(
        [
            "handoff",
            "keys a batch",
            "steady batch (s)",
            "longest batch (s)",
            "longest ÷ steady",
            "keys moved",
            "batches until all have",
        ],
        rows,
    )
    yield ""
    overheads, rows = {}, []
    for form, job in product(("", "pandas-"), jobs):
        if (f"{form}plain", job) not in arms:
            continue
        plain, unmoved = arms[f"{form}plain", job], arms[f"{form}unmoved", job]
        pairs = zip(unmoved, plain, strict=True)
        count, wait_ms = job
        work = f"{wait_ms} ms of waiting" if wait_ms else "none"
        if form:
            work += ", in pandas"
        ratios = [idle_batch_s(ours) / idle_batch_s(own) for ours, own in pairs]
        overheads[f"{count:,} rows a batch, work for each: {work}"] = ratios
        batches = (spread(idle_batch_s(run) for run in runs) for runs in (plain, unmoved))
        rows.append([f"{count:,}", work, *batches, spread(ratios)])
    header = ["no key moved: rows a batch", "work for each", "Spark's own (s)", "`balanced` (s)"]
    yield from table([*header, "ratio"], rows)
    yield ""
    pairs = zip(arms["hybrid", fewest], arms["eager", fewest], strict=True)
    paired = [longest_moving_s(hybrid) / longest_moving_s(eager) for hybrid, eager in pairs]
    rows = [
        [
            "hybrid's longest batch well below eager's (half)",
            spread(paired),
            say_whether(median(paired) <= MAX_HYBRID_OVER_EAGER),
        ]
    ]
    budgeted = arms["budgeted", fewest]
    added_s = [longest_moving_s(run) - steady_batch_s(run) for run in budgeted]
    budget_s = budgeted[0]["settings"]["budget_s"]
    is_met = median(added_s) <= budget_s and all(map(batches_until_moved, budgeted))
    rows.append(
        [
            f"hybrid, by budget: longest batch ≤ steady batch + {budget_s:g} s, and all keys move",
            f"+ {spread(added_s)} s",
            say_whether(is_met),
        ]
    )
    for job_text, overhead in overheads.items():
        rows.append(
            [
                f"no key moved: batch ≤ {MAX_BALANCED_OVER_OWN:.2f} x Spark's own, {job_text}",
                spread(overhead),
                say_whether(median(overhead) <= MAX_BALANCED_OVER_OWN),
            ]
        )
    yield from table(["target", "measured", "met"], rows)


def steady_batch_s(result: Result) -> float:
    """The median of the batches before anything moves, and behind those that make the keys."""
    batch_s = find_filled_s(result)
    return median(batch_s[: result["settings"]["steady_batches"]])


def idle_batch_s(result: Result) -> float:
    """The median of all batches behind those that make the keys."""
    return median(find_filled_s(result))


def find_filled_s(result: Result) -> list[float]:
    """The batches behind those that make the keys."""
    settings = result["settings"]
    filling = -(-settings["keys"] // settings["rows_per_batch"])
    batch_s: list[float] = result["measured"]["batch_s"]
    return batch_s[filling:]


def longest_moving_s(result: Result) -> float:
    """The longest batch since the first one that could know the new routes."""
    batch_s: list[float] = result["measured"]["batch_s"]
    return max(batch_s[-result["settings"]["moving_batches"] :])


def batches_until_moved(result: Result) -> float | None:
    """Batches from the new routes until all keys have moved; None if they never did."""
    settings = result["settings"]
    moved: list[int] = result["measured"]["moved"][-settings["moving_batches"] :]
    return next((float(n) for n, count in enumerate(moved, 1) if count == settings["keys"]), None)
