"""Keeps Spark Structured Streaming jobs balanced and right-sized while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from balancedstream.attaching import Attachment, attach
    from balancedstream.keyed import Aggregator, BalancedFrame, balanced, read_state
    from balancedstream.shuffling.shuffles import Shuffle, shuffle

__all__ = [
    "Aggregator",
    "Attachment",
    "BalancedFrame",
    "Shuffle",
    "attach",
    "balanced",
    "read_state",
    "shuffle",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The core is imported where there is no Spark: what needs Spark is loaded when it is asked for.
    if name in {"Attachment", "attach"}:
        from balancedstream import attaching  # noqa: PLC0415

        return getattr(attaching, name)
    if name in {"Aggregator", "BalancedFrame", "balanced", "read_state"}:
        from balancedstream import keyed  # noqa: PLC0415

        return getattr(keyed, name)
    if name in {"Shuffle", "shuffle"}:
        from balancedstream.shuffling import shuffles  # noqa: PLC0415

        return getattr(shuffles, name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
