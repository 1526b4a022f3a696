"""What a person sees while a stream runs: a live view on a terminal, one line a decision elsewhere.

Both are fed with the records that also go into the history, from any thread. A view is a spectator:
when its terminal or pipe is gone it falls silent, and the stream runs on.
"""

from __future__ import annotations

from rich.console import Console

from balancedstream.live.plain import PlainView
from balancedstream.live.terminal import MIN_HEIGHT, LiveView
from balancedstream.record.records import RunInfo
from balancedstream.record.spectators import Spectator


def open_view(run: RunInfo) -> Spectator:
    """Picks the view that fits where the output goes.

    Args:
        run: where and with what the run takes place.

    Returns:
        A live view on standard output, or else on standard error, if that is a terminal that can
        show it. Plain lines on standard error otherwise, so that the job's own output stays pure.
    """
    for console in (Console(), Console(stderr=True)):
        if (
            console.is_terminal
            and not console.is_dumb_terminal
            and not console.options.ascii_only
            and console.height >= MIN_HEIGHT
        ):
            return LiveView(run, console)
    return PlainView(run)
