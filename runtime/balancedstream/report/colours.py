"""What is drawn individually, and in which colour: what was hottest in any batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from balancedstream.record.records import BatchRecord

COLOURS = 7
"""Of Okabe and Ito's palette. A colour of a picture is always an executor. All else is drawn in
ink, but hot keys, which have two shades of one hue that no executor has."""

_Key = TypeVar("_Key", int, str)


def executor_order(executors: Iterable[str]) -> list[str]:
    """Sorts executor ids as a person counts.

    >>> executor_order(["10", "9", "driver"])
    ['9', '10', 'driver']
    """
    return sorted(executors, key=lambda e: (0, int(e), "") if e.isdecimal() else (1, 0, e))


def executor_colours(batches: Sequence[BatchRecord]) -> dict[str, str]:
    """Gives the executors that were hottest at any time a colour each; others share one.

    Returns:
        Executor id to CSS class; at most seven executors, in the order of their ids.
    """
    peak_s: dict[str, float] = {}
    for batch in batches[1:] or batches:
        for load in batch.loads:
            for executor, busy_s in load.executor_busy_s().items():
                peak_s[executor] = max(busy_s, peak_s.get(executor, 0.0))
    named = sorted(peak_s, key=lambda executor: (-peak_s[executor], executor))[:COLOURS]
    return {executor: f"s{i}" for i, executor in enumerate(executor_order(named))}


def executor_legend(colours: Mapping[str, str], executors: set[str]) -> tuple[tuple[str, str], ...]:
    """Returns the keys of these executors; those without a colour share one."""
    legend = [(f"key bar {css}", f"executor {e}") for e, css in colours.items() if e in executors]
    if executors - set(colours):
        legend.append(("key bar rest", "others"))
    return tuple(legend)


def hottest(
    loads: Sequence[Mapping[_Key, float]],
    limit: int,
    order: Callable[[Iterable[_Key]], list[_Key]],
) -> tuple[list[_Key], list[_Key]]:
    """Splits keys into those that were hottest in any of the loads, and the rest."""
    peak: dict[_Key, float] = {}
    for load in loads:
        for key, value in load.items():
            peak[key] = max(value, peak.get(key, 0.0))
    if len(peak) <= limit:
        return order(peak), []
    ranked = sorted(peak, key=lambda key: -peak[key])
    return order(ranked[: limit - 1]), order(ranked[limit - 1 :])
