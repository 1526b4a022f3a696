"""Doing something again and again beside what is measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def polling(look: Callable[[], object], every_s: float) -> Iterator[None]:
    """Calls a function at such intervals, from a thread of its own, as long as it is open."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.wait(every_s):
            look()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
