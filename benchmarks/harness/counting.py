"""How many executors an application has, over time, and what a process holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from time import time

from harness.polling import polling

POLL_S = 0.5

BACKEND = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"

Sample = tuple[float, int]
"""A time in seconds, and the number of executors from then on."""


@contextmanager
def counting(count: Callable[[], int]) -> Iterator[list[Sample]]:
    """Counts executors as long as it is open; gives the growing samples."""
    samples: list[Sample] = [(time(), count())]
    with polling(lambda: samples.append((time(), count())), POLL_S):
        yield samples


def count_executors(application_id: str) -> int:
    """Executor processes of an application.

    A process counts from its start, as a pod would that is paid for: before it takes work.
    """
    return len(find_executors(application_id))


def find_executors(application_id: str) -> set[int]:
    """Process ids of the executors of an application, from Linux's table of processes."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        # A process may end meanwhile.
        with suppress(OSError):
            words = file.read_bytes().split(b"\0")
            if BACKEND in words and application_id.encode() in words:
                found.add(int(file.parent.name))
    return found


def read_held_mib(process: str) -> float:
    """Memory that a process holds now, by its id or as `self`.

    Raises:
        OSError: there is no such process.
    """
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def sum_executor_s(samples: Sequence[Sample], until_s: float) -> float:
    """Executor-seconds from the first sample until a time.

    >>> sum_executor_s([(0.0, 1), (10.0, 3)], until_s=12.0)
    16.0
    """
    ends_s = [at_s for at_s, _ in samples[1:]] + [until_s]
    return sum(
        count * (min(end_s, until_s) - at_s)
        for (at_s, count), end_s in zip(samples, ends_s, strict=True)
        if at_s < until_s
    )


def list_changes(samples: Sequence[Sample]) -> list[tuple[float, int, int]]:
    """When the number changed, and from what to what.

    >>> list_changes([(0.0, 1), (0.5, 1), (1.0, 3)])
    [(1.0, 1, 3)]
    """
    return [
        (at_s, before, count) for (_, before), (at_s, count) in pairwise(samples) if before != count
    ]
