"""Keeps the frame whole: where standard output and standard error go while a terminal shows it.

C libraries, child processes and whoever kept a stream of Python from before (a handler of a logger)
write to the file descriptors 1 and 2, past anything that Python redirects. So the descriptors
themselves are led elsewhere, and the view writes to a copy of the terminal's:

- descriptors 1 and 2 go to a pipe each, and its lines appear above the frame (Spark's console sink
  prints there);
- `sys.stdout` and `sys.stderr` print above the frame at once.

Spark's JVM and its Python workers write to the log: its descriptor 2 is there when it starts. A
stream that the user sent to a file stays there.
"""

from __future__ import annotations

import codecs
import io
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from balancedstream.live.frame import MIN_HEIGHT
from balancedstream.live.plain import PlainView
from balancedstream.live.terminal import LiveView
from balancedstream.record.records import RunInfo
from balancedstream.record.spectators import Spectator
from balancedstream.record.wording import format_elapsed


@contextmanager
def open_terminal(log: Path | None) -> Iterator[Callable[[RunInfo], Spectator]]:
    """While open, nothing but the view writes to the terminal.

    Args:
        log: takes what Spark's JVM writes to standard error; None leaves all streams alone.

    Yields:
        A function that opens the view: a live one on standard output, or else on standard error,
        if that is a terminal that can show it; plain lines on standard error otherwise.
    """
    number = next((stream for stream in (1, 2) if _can_show(stream)), None)
    if log is None or number is None:
        yield open_view
        return
    with ExitStack() as restored:
        terminal = restored.enter_context(_copy_of(number))
        console = Console(file=terminal)
        for descriptor, name in ((2, "stderr"), (1, "stdout")):
            if os.isatty(descriptor):
                restored.enter_context(_show_stream(console, descriptor, name))
        starting = restored.enter_context(_show_start(console))

        def open_live_view(run: RunInfo) -> Spectator:
            starting.stop()
            view = LiveView(run, console, redirect=False)
            restored.callback(view.close)  # while its terminal is still open
            return view

        yield open_live_view


def open_view(run: RunInfo) -> Spectator:
    """Picks the view that fits where the output goes.

    Returns:
        A live view on standard output, or else on standard error, if that is a terminal that can
        show it. Plain lines on standard error otherwise, so that the job's own output stays pure.
    """
    for number in (1, 2):
        if _can_show(number):
            return LiveView(run, Console(stderr=number == 2))
    return PlainView(run)


class LinesAbove(io.TextIOBase):
    """Stands for a standard stream of Python; its lines appear above the frame.

    A line appears when it is whole, or flushed. A forked child writes to the stream itself, and so
    does whoever still has this when the frame is gone.
    """

    def __init__(self, console: Console, stream: TextIO) -> None:
        self._console = console
        self._stream = stream
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._rest = ""
        self._is_over = False

    def end(self) -> None:
        """The frame is gone."""
        self.flush()
        self._is_over = True

    def write(self, text: str) -> int:
        """Prints the lines that are whole now."""
        if self._is_over or os.getpid() != self._process:
            return self._stream.write(text)
        with self._lock:
            *whole, self._rest = (self._rest + text).split("\n")
            if whole:
                self._print(whole)
        return len(text)

    def flush(self) -> None:
        """Prints the last line, whole or not."""
        if self._is_over or os.getpid() != self._process:
            self._stream.flush()
            return
        with self._lock:
            rest, self._rest = self._rest, ""
            if rest:
                self._print([rest])

    def isatty(self) -> bool:
        """Says yes, so that libraries go on writing for a person."""
        return True

    def writable(self) -> bool:
        """Says yes."""
        return True

    def fileno(self) -> int:
        """Returns the descriptor of the stream that this stands for."""
        return self._stream.fileno()

    @property
    def buffer(self) -> IO[bytes]:
        """What takes bytes: that of the stream that this stands for."""
        return self._stream.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override] # TextIOBase has an attribute
        """As of the stream that this stands for."""
        return self._stream.encoding

    def _print(self, lines: Sequence[str]) -> None:
        # A line that was written over, as progress is, shows what it came to.
        ends = (line.rstrip("\r").rpartition("\r")[2] for line in lines)
        text = Text.from_ansi("\n".join(ends))
        with suppress(OSError, ValueError):  # the terminal is gone
            self._console.print(text, soft_wrap=True, highlight=False)


_PRINTING = frozenset({LinesAbove.write.__code__, LinesAbove.flush.__code__})


def is_printing(frame: FrameType | None) -> bool:
    """Whether a thread prints above the frame, and so has locks without which no view can close."""
    while frame is not None and frame.f_code not in _PRINTING:
        frame = frame.f_back
    return frame is not None


def _can_show(number: int) -> bool:
    """Whether a file descriptor is a terminal that can show the frame."""
    console = Console(stderr=number == 2)
    return (
        console.is_terminal
        and not console.is_dumb_terminal
        and not console.options.ascii_only
        and console.height >= MIN_HEIGHT
    )


@contextmanager
def _show_start(console: Console) -> Iterator[Live]:
    """Shows that Spark is being waited for, until this is stopped."""
    started_s = time.monotonic()

    def draw() -> Text:
        elapsed = format_elapsed(time.monotonic() - started_s)
        text = "waiting for Spark, which starts its executors"
        line = Text.assemble(("BalancedStream", "bold"), f" {elapsed} · {text}", no_wrap=True)
        line.truncate(console.width, overflow="ellipsis")
        return line

    with Live(
        get_renderable=draw,
        console=console,
        refresh_per_second=2,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as shown:
        yield shown


@contextmanager
def _copy_of(number: int) -> Iterator[TextIO]:
    copy = open(os.dup(number), "w", encoding="utf-8", errors="replace")  # noqa: SIM115
    try:
        yield copy
    finally:
        with suppress(OSError):  # the terminal is gone
            copy.close()


@contextmanager
def _leads_to(number: int, target: int) -> Iterator[None]:
    """While open, a file descriptor leads where another one does."""
    kept = os.dup(number)
    os.dup2(target, number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


@contextmanager
def _show_stream(console: Console, descriptor: int, name: str) -> Iterator[None]:
    """While open, what is written to a standard stream, by whatever way, is above the frame."""
    stream: TextIO = getattr(sys, name)
    stream.flush()
    above, piped = LinesAbove(console, stream), LinesAbove(console, stream)
    ours, theirs = os.pipe()
    over = threading.Event()
    reader = threading.Thread(target=_read_lines, args=(ours, piped, over), name=name, daemon=True)
    with _leads_to(descriptor, theirs):
        os.close(theirs)
        reader.start()
        setattr(sys, name, cast("TextIO", above))
        try:
            yield
        finally:
            above.end()
            stream.flush()
            if getattr(sys, name) is above:
                setattr(sys, name, stream)
            over.set()
            reader.join()


def _read_lines(pipe: int, above: LinesAbove, over: threading.Event) -> None:
    """Prints what comes through a pipe until it is over; the JVM may hold the other end longer."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while True:
        ending = over.is_set()
        ready, _, _ = select.select([pipe], [], [], 0.0 if ending else 0.1)
        chunk = os.read(pipe, 65_536) if ready else b""
        if chunk:
            above.write(decoder.decode(chunk))
        elif ending or ready:
            break
    above.flush()
    os.close(pipe)
