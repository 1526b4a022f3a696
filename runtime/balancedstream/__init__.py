"""Keeps Spark Structured Streaming jobs balanced and right-sized while they run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from balancedstream.version import __version__

if TYPE_CHECKING:
    from balancedstream.keyed.aggregates import Aggregator
    from balancedstream.keyed.frames import BalancedFrame
    from balancedstream.keyed.reading import read_state
    from balancedstream.launch.attaching import Attachment, attach
    from balancedstream.launch.taking_over import balanced
    from balancedstream.shuffling.shuffles import Shuffle, shuffle

__all__ = [
    "Aggregator",
    "Attachment",
    "BalancedFrame",
    "Shuffle",
    "__version__",
    "attach",
    "balanced",
    "read_state",
    "shuffle",
]

_HOMES = {
    "Aggregator": "keyed.aggregates",
    "Attachment": "launch.attaching",
    "BalancedFrame": "keyed.frames",
    "Shuffle": "shuffling.shuffles",
    "attach": "launch.attaching",
    "balanced": "launch.taking_over",
    "read_state": "keyed.reading",
    "shuffle": "shuffling.shuffles",
}

_FEATURES = {"keyed": "balanced", "launch.taking_over": "balanced", "shuffling": "shuffle"}


def __getattr__(name: str) -> Any:
    # The core is imported where there is no Spark: what needs Spark is loaded when it is asked for.
    if name in _HOMES:
        home = _HOMES[name]
        feature = _FEATURES.get(home) or _FEATURES.get(home.partition(".")[0])
        if feature:
            # Their modules use classes that an older PySpark does not have.
            import_module("balancedstream.engine.traits").check_feature(feature)
        return getattr(import_module(f"balancedstream.{home}"), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
