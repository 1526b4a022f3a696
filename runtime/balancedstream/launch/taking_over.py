"""What the plugin's agent cannot do, the user's process does: `balanced` takes over from it."""

from __future__ import annotations

import atexit
from contextlib import ExitStack

from pyspark.sql import DataFrame, SparkSession

from balancedstream.engine.driver import PLUGIN, read_settings
from balancedstream.errors import BalancedStreamError
from balancedstream.keyed import frames
from balancedstream.keyed.frames import BalancedFrame
from balancedstream.keyed.storage import DEFAULT_NAME
from balancedstream.launch.agent import balancing
from balancedstream.launch.agent_options import read_options
from balancedstream.launch.attaching import stand_ins
from balancedstream.launch.saying import say


def balanced(df: DataFrame, *keys: str, name: str = DEFAULT_NAME) -> BalancedFrame:
    """Groups a stream by a key whose hot values can be reassigned while the query runs.

    Where Spark was started with the plugin, this process balances the application from now on, by
    the plugin's settings, because the plugin's agent cannot move keys.

    Args:
        df: a streaming DataFrame; for initial state, a batch DataFrame.
        keys: its key columns.
        name: of the operator; each operator of a query needs its own, the same at every start.

    Returns:
        An object with `transformWithState` and similar methods of Spark's `GroupedData`, and with
        `aggregate`.

    Raises:
        InvalidInputError: there is no key column, a column does not exist, or a column has a
            reserved name.
    """
    frame = frames.balanced(df, *keys, name=name)
    if frame.control is not None:
        _take_over(df.sparkSession)
    return frame


def _take_over(spark: SparkSession) -> None:
    """Attaches in the agent's place, if the application has the plugin and nobody did yet."""
    settings = read_settings(spark)
    if PLUGIN not in settings:
        return
    stand_in = ExitStack()
    try:
        stand_in.enter_context(balancing(spark, read_options(settings)))
    except BalancedStreamError as error:
        problem = str(error).rstrip(".")
        say(f"{problem}. Keys are not moved; mend this and start the application again.")
        return
    stand_ins.append(stand_in)
    atexit.register(stand_in.close)
