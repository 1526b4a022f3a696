"""Rows get the route that their batch's epoch has for their key."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql.types import StringType, StructType

from balancedstream.core.keys.epochs import Arrival, Epoch, Piece
from balancedstream.keyed import routing
from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.storage import BatchContext, Home, Operator, describe_offset
from balancedstream.workers import garbage
from balancedstream.workers.names import BATCH_PROPERTY, CHECKPOINT_PROPERTY, RUN_PROPERTY

ENCODING = KeyEncoding(StructType().add("user", StringType()))


class Worker:
    """A Python worker, in which task after task of one checkpoint's batches routes rows."""

    def __init__(self, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checkpoint = checkpoint
        self.home = Home(str(checkpoint), Operator())
        (checkpoint / "offsets").mkdir(parents=True)
        # While there is one, whoever makes another is given the same.
        monkeypatch.setattr(TaskContext, "_taskContext", None)
        self._context: Any = TaskContext()
        monkeypatch.setattr(TaskContext, "_taskContext", self._context)

    def plan(self, batch: int, table: str) -> None:
        offset = json.dumps(describe_offset("keys", table, 0))
        (self.checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offset}\n")

    def begin(self, batch: int) -> None:
        """A task of a batch."""
        self._context._partitionId = self._context._taskAttemptId = 0
        self._context._localProperties = {
            CHECKPOINT_PROPERTY: str(self.checkpoint),
            BATCH_PROPERTY: str(batch),
            RUN_PROPERTY: "run",
        }

    def route(self, batch: int, *users: str | None) -> list[int]:
        self.begin(batch)
        # Spark gives each task a function of its own.
        route = cloudpickle.loads(cloudpickle.dumps(routing._make_router(Operator(), ENCODING)))
        routes: list[int] = route(pa.array(users, pa.string())).to_pylist()
        return routes


def test_keys_that_an_epoch_does_not_name_have_route_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(tmp_path, monkeypatch)
    worker.plan(0, "")
    worker.plan(1, worker.home.write_epoch(Epoch(1, 1, {'"de"': 3})))
    assert worker.route(0, "de", "fr") == [0, 0]
    assert worker.route(1, "de", "fr", None) == [3, 0, 0]


def test_a_worker_that_routes_collects_no_modules_after_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watchers: list[Any] = []
    monkeypatch.setattr(gc, "callbacks", watchers)
    monkeypatch.setattr(garbage, "_ended", [])
    worker = Worker(tmp_path, monkeypatch)
    worker.plan(0, "")
    for _ in range(2):
        worker.route(0, "de")
    assert watchers == [garbage._freeze_between_tasks]


def test_a_task_is_told_who_arrives_and_who_is_asked_in_that_batch_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(tmp_path, monkeypatch)
    arrivals = {'"de"': Arrival(0, Piece("f", 3, 5))}
    epoch = Epoch(2, 1, {'"de"': 3}, arrivals, asked=('"fr"',), touched=('"it"',), most=7)
    table = worker.home.write_epoch(epoch)
    for batch in (1, 2):
        worker.plan(batch, table)
    worker.begin(1)
    assert BatchContext(Operator()).epoch == epoch
    worker.begin(2)
    assert BatchContext(Operator()).epoch == Epoch(2, 1, {'"de"': 3}, touched=('"it"',), most=7)


def test_each_batch_and_each_checkpoint_is_routed_by_its_own_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, one = (Worker(tmp_path / name, monkeypatch) for name in ("other", "one"))
    for number, worker in enumerate((one, other)):
        for batch in (0, 1):
            table = worker.home.write_epoch(Epoch(1, batch, {'"de"': 1 + 2 * number + batch}))
            worker.plan(batch, table)
    for batch in (0, 1, 0):
        for worker, route in ((one, 1 + batch), (other, 3 + batch)):
            monkeypatch.setattr(TaskContext, "_taskContext", worker._context)
            assert worker.route(batch, "de") == [route]


def test_a_worker_makes_the_table_of_an_epoch_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(tmp_path, monkeypatch)
    table = worker.home.write_epoch(Epoch(1, 0, {'"de"': 3}))
    worker.plan(0, table)
    worker.plan(1, table)
    frozen: list[str] = []
    freeze = KeyEncoding.freeze

    def note(self: KeyEncoding, text: str) -> Any:
        frozen.append(text)
        return freeze(self, text)

    monkeypatch.setattr(KeyEncoding, "freeze", note)
    for batch in (0, 0, 1):
        assert worker.route(batch, "de") == [3]
    assert frozen == ['"de"']
