"""Hot keys: reassigned or not, and one key split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from targets import MAX_KEYS_OVER_BOUND

from tables.markdown import NONE, Result, say_whether, settle, spread, table


def tabulate_hot_keys(results: Sequence[Result]) -> Iterator[str]:
    rows, targets = [], []
    cases: dict[tuple[str, int, float | None], list[Result]] = {}
    for result in results:
        case = result["case"]
        count = int(result["settings"]["rows_per_batch"])
        cases.setdefault((str(case["keys"]), count, case.get("act_above")), []).append(result)
    for (kind, count, act_above), runs in cases.items():
        keys = "two in one partition" if kind == "pair" else f"Zipf {kind}"
        if act_above is not None:
            keys += f", acting above {act_above:.2f}"
        arms = [arm for arm in ("vanilla", "placement", "routes") if arm in runs[0]["measured"]]
        for arm in arms:
            imbalance = [settle(r, arm, "imbalance") for r in runs]
            batch_s = [settle(r, arm, "batch_s") for r in runs]
            bound = [find_keys_bound(r, arm) for r in runs]
            over = [found / least for found, least in zip(imbalance, bound, strict=True)]
            quotients = (settle(r, arm, "batch_s") / settle(r, arms[0], "batch_s") for r in runs)
            rows.append(
                [
                    keys,
                    f"{count:,}",
                    arm,
                    spread(imbalance),
                    spread(bound),
                    spread(batch_s),
                    spread(quotients) if "vanilla" in arms else NONE,
                ]
            )
            if arm == "routes":
                text = f"imbalance ≤ {MAX_KEYS_OVER_BOUND} x its bound: {keys}, {count:,} rows"
                targets.append(
                    [text, spread(over), say_whether(median(over) <= MAX_KEYS_OVER_BOUND)]
                )
                # Results of before 2026-11-24 do not have it.
                if all("decided" in r["measured"][arm] for r in runs):
                    decided = [find_decided_over_bound(r, arm) for r in runs]
                    met = say_whether(median(decided) <= MAX_KEYS_OVER_BOUND)
                    targets.append([f"{text}, by the controller's figures", spread(decided), met])
    header = ["keys", "rows a batch", "", "imbalance", "its bound", "batch (s)", "÷ vanilla"]
    yield from table(header, rows)
    yield ""
    yield from table(["target", "measured", "met"], targets)


def find_keys_bound(result: Result, arm: str) -> float:
    """The least imbalance that an executor with the hottest key can have, or 1."""
    least_s: float = result["measured"]["hottest_key_s"]
    # Results of before 2026-11-23 do not have it: their bound is too low by as much.
    if "lightest_task_s" in result["measured"][arm]:
        least_s += settle(result, arm, "lightest_task_s")
    return max(1.0, least_s / settle(result, arm, "mean_busy_s"))


def find_decided_over_bound(result: Result, arm: str) -> float:
    """The imbalance over its bound in the last decisions: both from what tasks and keys took."""
    decided = result["measured"][arm]["decided"][-result["settings"]["measured_batches"] :]
    return median(float(each["imbalance"] / each["bound"]) for each in decided)


def tabulate_split_key(results: Sequence[Result]) -> Iterator[str]:
    arms = {"vanilla": "whole", "balanced": "whole", "aggregate": "split"}
    rows = []
    for arm, bound in arms.items():
        batch_s = [settle(r, arm, "batch_s") for r in results]
        own_s = [settle(r, "vanilla", "batch_s") for r in results]
        rows.append(
            [
                arm,
                spread(batch_s),
                spread(ours / own for ours, own in zip(batch_s, own_s, strict=True)),
                spread(r["measured"]["bound_s"][bound] for r in results),
            ]
        )
    header = ["", "batch (s)", "÷ vanilla", "of it waiting, at the least (s)"]
    yield from table(header, rows)
