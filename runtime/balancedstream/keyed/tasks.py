"""The work of one task for keys that are handed over, and its task report.

It is the same for every kind of operator: the state of a key differs, the protocol (`core.epochs`)
does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from balancedstream.core.keys.epochs import Piece
from balancedstream.core.keys.hotkeys import HotKeySketch
from balancedstream.keyed.packing import pack_state, unpack_state
from balancedstream.keyed.storage import BatchContext, HandoffWriter
from balancedstream.workers.reports import KeyReport

EPSILON = 0.01
"""The sketch finds keys with more than this fraction of a task's time, in at most 100 counters."""

_Taken = TypeVar("_Taken")


class KeyTask:
    """One task attempt.

    Attributes:
        arrivals: keys that arrive at a new owner in this batch.
        awaited: keys whose control row has not come yet.
        sketch: seconds that each key took.
    """

    def __init__(self, context: BatchContext) -> None:
        self._context = context
        epoch = context.epoch
        self.arrivals = epoch.arrivals
        self._asked = frozenset(epoch.asked)
        self.awaited = {*self.arrivals, *self._asked}
        self._touched = frozenset(epoch.touched)
        self.sketch = HotKeySketch(EPSILON)
        self._writer: HandoffWriter | None = None
        self._taken_over = 0
        self._handoff_s = 0.0

    def is_asked(self, key: str, *, has_rows: bool) -> bool:
        """Whether a key must be handed over at the end of this batch."""
        return key in self._asked or (has_rows and key in self._touched)

    def hand_over(self, key: str, read: Callable[[], Any], *, as_instants: bool = False) -> None:
        """Writes a key's state for its new owner, unless the task has written enough keys.

        Args:
            key: as text.
            read: returns the state, None if there is none; called only if it is written.
            as_instants: see `pack_state`.
        """
        started_s = time.perf_counter()
        context = self._context
        if self._writer is None:
            self._writer = context.home.open_handoff(
                context.batch, context.partition, context.attempt
            )
        most, pieces = context.epoch.most, self._writer.pieces
        if most is not None and len(pieces) >= most and key not in pieces:
            return
        content = read()
        packed = b"" if content is None else pack_state(content, as_instants=as_instants)
        if packed is not None:
            self._writer.add(key, packed)
        self._handoff_s += time.perf_counter() - started_s

    def take_over(self, piece: Piece, take: Callable[[Any], _Taken]) -> _Taken | None:
        """Takes over the state that a key's old owner wrote.

        Args:
            piece: the place of the state.
            take: called with the state; not called for a key without state.

        Returns:
            The result of `take`.

        Raises:
            CheckpointError: the state is missing or damaged.
        """
        if not piece.state_bytes:
            return None
        started_s = time.perf_counter()
        content = self._context.home.read_handoff(piece.file, piece.offset, piece.state_bytes)
        taken = take(unpack_state(content))
        self._taken_over += 1
        self._handoff_s += time.perf_counter() - started_s
        return taken

    def finish(self) -> KeyReport:
        """The report of the task at its end; everything that it wrote is then on storage."""
        context = self._context
        report: KeyReport = {
            "query": context.query,
            "run": context.run_id,
            "checkpoint": context.checkpoint,
            "batch": context.batch,
            "partition": context.partition,
            "attempt": context.attempt,
            "keys": self.sketch.to_json(),
        }
        handed_over = 0
        if self._writer is not None:
            started_s = time.perf_counter()
            self._writer.close()
            self._handoff_s += time.perf_counter() - started_s
            handed_over = len(self._writer.pieces)
            report |= {"file": self._writer.file, "pieces": self._writer.pieces}
        return report | {"handoffs": handed_over + self._taken_over, "handoff_s": self._handoff_s}
