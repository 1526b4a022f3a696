"""What one task has to do for keys that change their owner, and what it says of it.

The same for every kind of operator: a key's state differs, the protocol (`core.epochs`) does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from balancedstream.core.epochs import Piece
from balancedstream.core.hotkeys import HotKeySketch
from balancedstream.keyed.packing import pack_state, unpack_state
from balancedstream.keyed.storage import BatchContext, HandoffWriter

EPSILON = 0.01
"""A key that takes more than this part of a task's time is seen, in at most a hundred counters."""

Report = dict[str, Any]

_Taken = TypeVar("_Taken")


class KeyTask:
    """One task attempt.

    Args:
        context: where it is.

    Attributes:
        arrivals: keys that change their owner in this batch.
        awaited: keys among whose rows a control row is to come yet.
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
        """Whether a key's state is to be handed over at the end of this batch."""
        return key in self._asked or (has_rows and key in self._touched)

    def hand_over(self, key: str, read: Callable[[], Any], *, as_instants: bool = False) -> None:
        """Writes a key's state down for its new owner, unless the task did so for enough keys.

        Args:
            key: as text.
            read: gives the state, None for nothing; it is not called in vain.
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
        """Takes the state in that a key's old owner wrote down.

        Args:
            piece: where it is.
            take: is given the state; it is not called for a key that has none.

        Returns:
            What `take` returned.

        Raises:
            CheckpointError: it is not there as it was written.
        """
        if not piece.state_bytes:
            return None
        started_s = time.perf_counter()
        content = self._context.home.read_handoff(piece.file, piece.offset, piece.state_bytes)
        taken = take(unpack_state(content))
        self._taken_over += 1
        self._handoff_s += time.perf_counter() - started_s
        return taken

    def finish(self) -> Report:
        """What is to be said of the task, once it is over; what was written is then on storage."""
        context = self._context
        report: Report = {
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
