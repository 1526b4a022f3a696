"""What a Python worker of Spark keeps out of its garbage collections."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from balancedstream.engine import workers
from balancedstream.engine.workers import FREEZING_TASKS, begin_task


@pytest.fixture(autouse=True)
def _a_new_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(workers, "_begun", set())
    gc.unfreeze()
    yield
    gc.unfreeze()


def run_task(monkeypatch: pytest.MonkeyPatch, attempt: int, *, calls: int = 1) -> int:
    """Begins a task in a fresh place; returns how many objects are frozen in it."""
    gc.unfreeze()
    context = TaskContext()
    context._taskAttemptId = attempt
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    for _ in range(calls):
        begin_task()
    return gc.get_freeze_count()


def test_what_is_loaded_is_frozen_at_the_beginning_of_few_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = range(1, 2 * max(FREEZING_TASKS))
    frozen = {n for n in tasks if run_task(monkeypatch, attempt=1000 + n)}
    assert frozen == FREEZING_TASKS


def test_a_task_that_calls_again_is_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not run_task(monkeypatch, attempt=7, calls=5)
    assert run_task(monkeypatch, attempt=8)


def test_outside_of_a_task_nothing_happens() -> None:
    for _ in range(max(FREEZING_TASKS)):
        begin_task()
    assert not gc.get_freeze_count()


def test_garbage_that_comes_later_is_collected_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class Node:
        own: Node

    run_task(monkeypatch, attempt=1)
    assert run_task(monkeypatch, attempt=2)
    node = Node()
    node.own = node
    gone = weakref.ref(node)
    del node
    gc.collect()
    assert gone() is None
