"""The live view: a frame on a terminal that is drawn in place, several times a second."""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakKeyDictionary

from rich import get_console
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live

from balancedstream.live.frame import MIN_HEIGHT, Frame
from balancedstream.live.state import RunState
from balancedstream.record.records import RunInfo

REFRESHES_PER_S = 4

_shown: WeakKeyDictionary[Console, LiveView] = WeakKeyDictionary()
"""The view that has each terminal: before rich 14.1, a console can show one only."""


class LiveView(RunState):
    """Shows what a run does now: executors and partitions, batch times, moves and reasons.

    The frame fits the terminal: with little room the hottest executors and partitions are shown
    and the others counted. What the job prints appears above it. A second view on the same terminal
    ends the first one, which leaves its last frame there.

    Args:
        run: where and with what the run takes place.
        console: the terminal; standard output if not given.
        clock: seconds since the Unix epoch.
        redirect: whether Python's standard streams are led above the frame from here on; not
            needed where `streams.open_terminal` does it.
    """

    def __init__(
        self,
        run: RunInfo,
        console: Console | None = None,
        clock: Callable[[], float] = time.time,
        *,
        redirect: bool = True,
    ) -> None:
        super().__init__(run)
        self._clock = clock
        console = console or get_console()
        before = _shown.get(console)
        if before is not None:
            before.close()
        _shown[console] = self
        # a stream that the user sent to a file must stay there
        self._live = Live(
            self,
            console=console,
            refresh_per_second=REFRESHES_PER_S,
            redirect_stdout=redirect and sys.stdout.isatty(),
            redirect_stderr=redirect and sys.stderr.isatty(),
        )
        with suppress(OSError, ValueError):
            self._live.start()
        atexit.register(self.close)  # a hidden cursor must not outlive the job

    def note(self, text: str) -> None:
        """Logs the text."""
        with self._lock:
            self._log(self._clock(), "note", text)

    def close(self) -> None:
        """Leaves the last frame on the terminal and gives the terminal back."""
        with self._lock:
            if self.ended_s is not None:
                return
            self.ended_s = self._clock()
        if _shown.get(self._live.console) is self:
            del _shown[self._live.console]
        with suppress(OSError, ValueError):
            self._live.stop()
        atexit.unregister(self.close)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = max(MIN_HEIGHT, console.height) - 1
        with self._lock:
            frame = Frame(self, self._clock(), console, options.max_width, height)
            yield from frame.lines()
