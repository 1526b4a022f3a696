"""The state that moves is that of the attempt that counts."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import processes
import pytest
from keyed_jobs import PARTITIONS, Ledger, Run, count, where
from patience import PATIENCE_S
from processes import find_own_executor
from pyspark import TaskContext, cloudpickle
from pyspark.sql import Row

pytestmark = [pytest.mark.integration, pytest.mark.turn]

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(processes)


class Dice(Ledger):
    """Draws numbers that no second attempt draws again."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        partition, batch = where()
        drawn = [random.SystemRandom().randrange(1 << 40) for _ in rows]
        self.items.appendList([(n,) for n in drawn])
        self.total.update((len(drawn),))
        kept = [n for (n,) in self.items.get()]
        yield Row(
            user=key[0], total=len(kept), items=kept, firsts="", partition=partition, batch=batch
        )


class FailingDice(Dice):
    """Its first attempt at a task fails late."""

    def close(self) -> None:
        task: Any = TaskContext.get()
        if task is not None and task.attemptNumber() == 0 and where()[1] % 2:
            message = "the first attempt fails"
            raise RuntimeError(message)


class ZombieDice(Dice):
    """One task that hands keys over loses its executor, and finishes when its batch is committed.

    Args:
        checkpoint: of the query.
        folder: has the file that the task writes to, as `written last`.
    """

    def __init__(self, checkpoint: Path, folder: Path) -> None:
        self._checkpoint = checkpoint
        self._folder = folder

    def close(self) -> None:
        task: Any = TaskContext.get()
        if task is None:
            return
        partition, batch = where()
        handoffs = self._checkpoint / "balancedstream" / "keys" / "handoffs"
        own = [*handoffs.glob(f"{batch}-{partition}-{task.taskAttemptId()}-*.state")]
        if not own:
            return
        # The file itself is removed some batches later.
        try:
            os.link(own[0], self._folder / "written last")
        except FileExistsError:
            return
        # What PySpark's daemon tells its workers when the executor is gone.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.kill(find_own_executor(), signal.SIGKILL)
        deadline_s = time.monotonic() + PATIENCE_S
        while not (self._checkpoint / "commits" / str(batch)).exists():
            assert time.monotonic() < deadline_s
            time.sleep(0.02)


def check_dice(run: Run) -> None:
    """Each user still has all numbers that were drawn and said before."""
    for user in run.partitions():
        said = [row.items for row in run.rows if row.user == user]
        for before, after in pairwise(said):
            assert after[: len(before)] == before
            assert len(after) > len(before)


def test_the_state_of_the_attempt_that_counts_moves_also_where_no_two_attempts_agree(
    begin_keyed: Callable[..., Run],
) -> None:
    run = begin_keyed(lambda frame: count(frame, FailingDice()))
    run.wait_batches(1)
    home = {row.user: row.partition for row in run.rows}
    handed_over_twice = False
    for step in range(1, 12):
        run.move({user: (p + step) % PARTITIONS for user, p in home.items()})
        run.wait_batches(3)
        epochs = [run.control.read_epoch(batch) for batch in range(run.last_batch)]
        handed_over_twice |= any(epoch.asked for epoch in epochs[1::2])
        if handed_over_twice and step >= 2:
            break
    run.query.stop()
    assert handed_over_twice
    check_dice(run)
    assert all(len(set(seen)) >= 3 for seen in run.partitions().values())


def test_state_that_a_zombie_writes_when_its_batch_is_committed_is_not_what_moves(
    begin_keyed: Callable[..., Run], tmp_path: Path
) -> None:
    dice = ZombieDice(tmp_path / "checkpoint", tmp_path)
    run = begin_keyed(lambda frame: count(frame, dice))
    run.wait_batches(1)
    targets = {row.user: (row.partition + 1) % PARTITIONS for row in run.rows}
    run.move(targets)
    run.wait_arrival(targets)
    run.wait(lambda _: (tmp_path / "written last").stat().st_size)
    run.wait_batches(1)
    run.query.stop()
    check_dice(run)
