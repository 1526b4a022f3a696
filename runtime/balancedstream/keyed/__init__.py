"""Key assignment: hot keys of a stateful operator go to other state partitions, live.

How it works, and what it is credited to, is told in `core.epochs`.
"""

from balancedstream.keyed.aggregates import Aggregator
from balancedstream.keyed.frames import BalancedFrame, balanced
from balancedstream.keyed.reading import read_state

__all__ = ["Aggregator", "BalancedFrame", "balanced", "read_state"]
