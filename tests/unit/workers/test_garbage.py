"""What a Python worker of Spark keeps out of its garbage collections."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from pyspark import TaskContext

from balancedstream.workers import garbage
from balancedstream.workers.garbage import FREEZING_TASKS, spare_loaded_modules


@pytest.fixture(autouse=True)
def _a_new_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "_ended", [])
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    # Other tests of this process may have run what a worker runs.
    watchers = [*gc.callbacks]
    gc.callbacks[:] = [w for w in watchers if w is not garbage._freeze_between_tasks]
    gc.unfreeze()
    yield
    gc.callbacks[:] = watchers
    gc.unfreeze()


class Node:
    """Garbage in a cycle, once nobody else refers to it."""

    def __init__(self) -> None:
        self.own = self


def run_task() -> weakref.ref[Node]:
    """What PySpark does for a task, and for the worker after it; returns what was of the task."""
    node = Node()
    TaskContext._taskContext = SimpleNamespace()
    spare_loaded_modules()
    spare_loaded_modules()
    # A collection within a task is none between two.
    gc.collect()
    TaskContext._taskContext = None
    of_task = weakref.ref(node)
    del node
    gc.collect()
    return of_task


def test_what_is_loaded_is_frozen_after_few_tasks() -> None:
    # What this process has loaded would make each collection slow.
    gc.freeze()
    frozen = set()
    for number in range(1, 2 * max(FREEZING_TASKS)):
        loaded = Node()
        run_task()
        # What is frozen is no longer among what collections go over.
        if not any(each is loaded for each in gc.get_objects()):
            frozen.add(number)
        del loaded
    assert frozen == FREEZING_TASKS


def test_nothing_of_a_task_is_kept() -> None:
    of_tasks = [run_task() for _ in range(max(FREEZING_TASKS))]
    assert gc.get_freeze_count()
    assert all(of_task() is None for of_task in of_tasks)


def test_garbage_that_comes_later_is_collected_as_ever() -> None:
    run_task()
    assert gc.get_freeze_count()
    gone = weakref.ref(Node())
    gc.collect()
    assert gone() is None


def test_outside_of_a_task_nothing_happens() -> None:
    watchers = [*gc.callbacks]
    spare_loaded_modules()
    gc.collect()
    assert gc.callbacks == watchers
    assert not gc.get_freeze_count()
