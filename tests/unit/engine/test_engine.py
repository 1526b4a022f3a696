"""What the engine makes of the tasks that its listener reports."""

from __future__ import annotations

import errno
from typing import Any
from unittest import mock

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext

from balancedstream.core.samples import BatchSample, TaskSample
from balancedstream.engine.engine import is_connection_lost
from balancedstream.engine.events import BatchFinished, StatefulOperator
from balancedstream.engine.measuring.tasks import (
    TaskColumns,
    group_operators,
    is_in_rocksdb,
    sum_tasks,
)

COUNT = StatefulOperator((0,), "StateStoreSave", 2)
JOIN = StatefulOperator((0, 2), "SymmetricHashJoin", 2)

Row = tuple[int, int, int, int, str, int, int, int, int, int]


def row(
    partition: int,
    executor: str = "a",
    *,
    operator: int = 0,
    stage: int = 7,
    busy_ms: int = 1500,
    records: int = 10,
    state_bytes: int = 100,
    restore_ms: int = 250,
    finished_ms: int = 9000,
) -> Row:
    """What is said of a task, in the order of `TaskColumns`; its index is its partition."""
    times = (busy_ms, records, state_bytes, restore_ms, finished_ms)
    return (operator, stage, partition, partition, executor, *times)


def columns(*rows: Row) -> TaskColumns:
    """As `BatchListener` writes them."""
    return TaskColumns(*zip(*rows, strict=True)) if rows else TaskColumns(*[()] * 10)


def sum_rows(
    *rows: Row, operator: StatefulOperator = COUNT, ran_on: dict[int, dict[int, str]] | None = None
) -> tuple[TaskSample, ...]:
    return sum_tasks("q", 5, columns(*rows), [operator], ran_on or {})


# --- tasks ---


def test_a_task_is_one_sample_in_seconds_in_the_order_of_partitions() -> None:
    second, first = row(1, "b"), row(0, "a")
    assert sum_rows(second, first) == (
        TaskSample("q", 0, 0, 5, "a", 1.5, 10, 100, 9.0, 0.0),
        TaskSample("q", 0, 1, 5, "b", 1.5, 10, 100, 9.0, 0.0),
    )


@pytest.mark.parametrize(
    ("ran_on", "restore_s"), [({}, 0.0), ({0: {0: "a"}}, 0.0), ({0: {0: "b"}}, 0.25)]
)
def test_state_was_restored_only_where_the_partition_ran_elsewhere_before(
    ran_on: dict[int, dict[int, str]], restore_s: float
) -> None:
    (sample,) = sum_rows(row(0), ran_on=ran_on)
    assert sample.restore_s == restore_s


def test_a_stage_that_ran_twice_costs_twice_and_has_its_state_once() -> None:
    again = row(0, "b", stage=8, busy_ms=500, records=4, state_bytes=120, finished_ms=9500)
    (sample,) = sum_rows(row(0, "a"), again)
    assert (sample.executor, sample.finished_s) == ("b", 9.5)
    assert (sample.busy_s, sample.records, sample.state_bytes) == (2.0, 14, 120)


def test_an_operator_that_shares_the_task_adds_state_and_no_time_of_its_own() -> None:
    (sample,) = sum_rows(row(0), row(0, operator=2, state_bytes=30), operator=JOIN)
    assert (sample.operator, sample.busy_s, sample.records) == (0, 1.5, 10)
    assert sample.state_bytes == 130


# --- operators ---


def known(*ids: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"op{i}", "partitions": 2} for i in ids]


def test_operators_that_ran_in_the_same_tasks_count_as_one() -> None:
    ran = columns(row(0, operator=2), row(0), row(0, operator=1, stage=9))
    operators = group_operators(known(0, 1, 2), ran, ())
    assert [(o.id, o.ids, o.name) for o in operators] == [(0, (0, 2), "op0"), (1, (1,), "op1")]


def test_operators_that_were_not_seen_in_a_batch_stay_together() -> None:
    before = (StatefulOperator((0, 2), "op0", 2), StatefulOperator((1,), "op1", 2))
    assert group_operators(known(0, 1, 2), columns(row(0, operator=1)), before) == before
    assert group_operators(known(0, 1, 2), columns(), ()) != before


def test_a_batch_has_its_tasks_by_operator_and_partition() -> None:
    tasks = sum_rows(row(0), row(1)) + sum_tasks(
        "q", 5, columns(row(1, operator=3)), [StatefulOperator((3,), "StateStoreSave", 2)], {}
    )
    batch = BatchFinished("q", BatchSample("q", 5, 9.0, 1.0, 20), tasks, (COUNT,), 0)
    assert batch.by_operator() == {0: {0: tasks[0], 1: tasks[1]}, 3: {1: tasks[2]}}


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ([], True),
        ([["rocksdbGetCount", "loadedMapCacheHitCount"]], True),
        ([["rocksdbGetCount"], ["loadedMapCacheHitCount"]], False),
        ([[]], False),
    ],
)
def test_state_is_in_rocksdb_where_every_store_has_its_metrics(
    metrics: list[list[str]], expected: bool
) -> None:
    assert is_in_rocksdb(metrics) is expected


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (ConnectionRefusedError(), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
        # A full disk, and a folder that cannot be listed.
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (Py4JJavaError("failed", mock.Mock(_target_id="o1")), False),
        (ValueError(), False),
    ],
)
def test_a_session_that_is_over_is_told_from_an_error_of_ours(error: Exception, lost: bool) -> None:
    assert is_connection_lost(error) is lost


def test_a_call_that_was_cut_off_means_the_end_only_if_nothing_answers_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut_off = Py4JError("An error occurred while calling o12.next")
    gateway = mock.MagicMock()
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    assert not is_connection_lost(cut_off)
    gateway.jvm.java.lang.System.nanoTime.side_effect = Py4JError("does not exist in the JVM")
    assert is_connection_lost(cut_off)
