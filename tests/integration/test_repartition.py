"""A stopped query gets another number of state partitions, and its results stay those of all rows.

The session and the queries are real; a repartition that is killed runs in its own processes.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from checkpoints import read_tree, rest
from patience import PATIENCE_S
from processes import write_submit_arguments
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from stateful_queries import CountRows

from balancedstream.core.logs import Format
from balancedstream.core.repartition import find_stage
from balancedstream.engine.repartition.files import read_checkpoint
from balancedstream.engine.session.settings import (
    CHANGELOG,
    CHECKPOINT_FORMAT,
    PROVIDER,
    ROCKSDB,
    SHUFFLE_PARTITIONS,
)
from balancedstream.errors import RepartitionError
from balancedstream.launch.repartition import RepartitionOptions, repartition

pytestmark = [pytest.mark.integration, pytest.mark.turn]

HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

ROWS = 120
"""A batch; each start of a query runs one batch, for nothing else is there at its start."""

KEYS = 40

Rows = Counter[tuple[Any, ...]]


def count_keys(stream: DataFrame) -> DataFrame:
    return stream.groupBy((F.col("value") % KEYS).alias("k")).count()


def drop_repeated(stream: DataFrame) -> DataFrame:
    return stream.select((F.col("value") % 150).alias("k")).dropDuplicates(["k"])


def join_with_later(stream: DataFrame) -> DataFrame:
    later = stream.select((F.col("value") - ROWS).alias("before"))
    return later.join(stream, F.col("before") == F.col("value")).select("before")


def transform(stream: DataFrame) -> DataFrame:
    keyed = stream.withColumn("k", F.col("value") % KEYS)
    return keyed.groupBy("k").transformWithState(CountRows(), "k long, n long", "update", "none")


def recompute_counts(batches: int) -> Rows:
    """What the last batch tells: each batch has each key."""
    return Counter(Counter(v % KEYS for v in range(batches * ROWS)).items())


def recompute_distinct(batches: int) -> Rows:
    return Counter({(v,): 1 for v in {v % 150 for v in range(batches * ROWS)}})


def recompute_join(batches: int) -> Rows:
    return Counter((v,) for v in range((batches - 1) * ROWS))


COMMAND = (sys.executable, "-m", "balancedstream.cli", "repartition")


@dataclass
class Query:
    """A query that runs a batch at each start, and what it told since."""

    spark: SparkSession
    build: Callable[[DataFrame], DataFrame]
    checkpoint: Path
    mode: str = "update"
    batches: int = 0
    last: Rows = field(default_factory=Counter)
    all: Rows = field(default_factory=Counter)

    def run(self, batches: int = 1) -> None:
        for _ in range(batches):
            self.last = Counter()
            source = self.spark.readStream.format("rate-micro-batch")
            rows = source.option("rowsPerBatch", ROWS).option("numPartitions", 1).load()
            query = (
                self.build(rows)
                .writeStream.outputMode(self.mode)
                .foreachBatch(self._keep)
                .option("checkpointLocation", str(self.checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination(int(PATIENCE_S))
            self.batches += 1
        rest(self.checkpoint)

    def _keep(self, rows: DataFrame, batch: int) -> None:
        told = Counter(tuple(row) for row in rows.collect())
        self.last += told
        self.all += told

    def repartition(self, partitions: int = 0, **options: Any) -> None:
        rest(self.checkpoint)
        asked = RepartitionOptions(str(self.checkpoint), partitions, **options)
        repartition(asked, self._share_session)
        rest(self.checkpoint)

    @contextmanager
    def _share_session(self, state_format: Format) -> Iterator[SparkSession]:
        session = self.spark.newSession()
        session.conf.set(PROVIDER, ROCKSDB)
        session.conf.set(CHECKPOINT_FORMAT, state_format)
        session.conf.set("spark.sql.adaptive.enabled", "false")
        yield session

    @property
    def stage(self) -> str:
        return find_stage(read_checkpoint(self.checkpoint))


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Callable[..., Query]:
    """A query on a new checkpoint with three state partitions."""

    def begin(build: Callable[[DataFrame], DataFrame], mode: str = "update", **own: str) -> Query:
        session = spark.newSession()
        for key, value in (own | {SHUFFLE_PARTITIONS: "3"}).items():
            session.conf.set(key, value)
        return Query(session, build, tmp_path / "checkpoint", mode)

    return begin


def test_an_aggregation_goes_up_and_down_and_back(
    query: Callable[..., Query], capsys: pytest.CaptureFixture[str]
) -> None:
    counted = query(count_keys)
    counted.run(2)
    for partitions in (5, 2, 3):
        counted.repartition(partitions)
        assert f"Equal before and after: {KEYS} rows of state" in capsys.readouterr().out
        counted.run()
        assert read_checkpoint(counted.checkpoint).partitions == partitions
        assert counted.last == recompute_counts(counted.batches)
        counted.repartition(partitions)
        assert "state partitions already. Nothing was changed." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("build", "mode", "recompute"),
    [
        (drop_repeated, "update", recompute_distinct),
        (join_with_later, "append", recompute_join),
    ],
)
def test_other_operators_go_up_and_back(
    build: Callable[[DataFrame], DataFrame],
    mode: str,
    recompute: Callable[[int], Rows],
    query: Callable[..., Query],
) -> None:
    asked = query(build, mode)
    asked.run()
    for partitions in (5, 3):
        asked.repartition(partitions)
        asked.run()
        assert asked.all == recompute(asked.batches)


def test_state_with_variables_of_its_own_goes_up_and_a_sample_is_compared(
    query: Callable[..., Query], capsys: pytest.CaptureFixture[str]
) -> None:
    counted = query(transform)
    counted.run()
    counted.repartition(5, sample_above_bytes=1000)
    assert "the values of a sample, one key in" in capsys.readouterr().out
    counted.run()
    assert counted.last == recompute_counts(counted.batches)


def test_an_undone_repartition_leaves_results_as_they_were_and_the_next_one_too(
    query: Callable[..., Query],
) -> None:
    counted = query(count_keys)
    counted.run(2)
    counted.repartition(5)
    counted.repartition(undo=True)
    counted.run()
    assert read_checkpoint(counted.checkpoint).partitions == 3
    assert counted.last == recompute_counts(counted.batches)
    counted.repartition(6)
    counted.run()
    assert counted.last == recompute_counts(counted.batches)
    with pytest.raises(RepartitionError, match="none of a repartition"):
        counted.repartition(undo=True)


def test_a_checkpoint_of_format_1_is_repartitioned_and_not_undone(
    query: Callable[..., Query],
) -> None:
    counted = query(count_keys, **{CHECKPOINT_FORMAT: "1", CHANGELOG: "false"})
    counted.run(2)
    counted.repartition(5)
    before = read_tree(counted.checkpoint)
    with pytest.raises(RepartitionError, match=r"format 1.*back with --partitions 3"):
        counted.repartition(undo=True)
    assert read_tree(counted.checkpoint) == before
    counted.run()
    assert counted.last == recompute_counts(counted.batches)


def test_state_that_spark_cannot_repartition_is_refused_and_left_alone(
    query: Callable[..., Query],
) -> None:
    counted = query(count_keys, **{PROVIDER: HDFS})
    counted.run()
    before = read_tree(counted.checkpoint)
    with pytest.raises(RepartitionError, match="HDFSBackedStateStoreProvider"):
        counted.repartition(5)
    assert read_tree(counted.checkpoint) == before


@pytest.mark.parametrize("partitions", [6, 8])
def test_an_aggregation_without_keys_is_refused_and_left_alone(
    partitions: int, query: Callable[..., Query]
) -> None:
    counted = query(lambda stream: stream.groupBy().count())
    counted.run()
    before = read_tree(counted.checkpoint)
    with pytest.raises(RepartitionError, match="aggregation without keys"):
        counted.repartition(partitions)
    assert read_tree(counted.checkpoint) == before


@pytest.mark.parametrize("then", ["finish", "undo"])
def test_a_repartition_that_is_killed_half_way_is_finished_or_undone(
    then: str, query: Callable[..., Query]
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"killed at a moment that is drawn with seed {seed}")
    counted = query(count_keys)
    counted.run(2)
    kill_repartition(counted, 16, random.Random(seed).random())
    with pytest.raises(StreamingQueryException, match="REPARTITION"):
        counted.run()
    with pytest.raises(RepartitionError, match="to 16 was begun"):
        counted.repartition(5)
    assert counted.stage == "half-done"
    finish_or_undo(then, counted, 16)


def test_settings_of_a_driver_in_a_cluster_keep_no_repartition_from_starting(
    query: Callable[..., Query], tmp_path: Path
) -> None:
    counted = query(count_keys)
    counted.run()
    secret = tmp_path / "secret"
    secret.write_text("shared by executors")
    of_cluster = (
        f"--conf spark.authenticate=true --conf spark.authenticate.secret.file={secret} "
        "--conf spark.kubernetes.namespace=shop"
    )
    subprocess.run(
        [*COMMAND, str(counted.checkpoint), "--partitions", "5"],
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": f"{of_cluster} {write_submit_arguments()}"},
        check=True,
    )
    counted.run()
    assert read_checkpoint(counted.checkpoint).partitions == 5
    assert counted.last == recompute_counts(counted.batches)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
@pytest.mark.parametrize("then", ["finish", "undo"])
def test_a_repartition_that_fills_the_disk_is_finished_or_undone(
    then: str, query: Callable[..., Query], small_disk: Path
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"what is left of the disk is drawn with seed {seed}")
    counted = query(count_keys)
    counted.checkpoint = small_disk / "checkpoint"
    counted.run(2)
    left_bytes = random.Random(seed).randrange(200_000)
    with full(small_disk, left_bytes), pytest.raises(RepartitionError) as raised:
        counted.repartition(48)
    rest(counted.checkpoint)
    print(f"{left_bytes:,} bytes left: {counted.stage}; {raised.value}")
    finish_or_undo(then, counted, 48)


def finish_or_undo(then: str, counted: Query, partitions: int) -> None:
    """Ends an interrupted repartition; what comes after it is that of all rows."""
    if then == "finish" or counted.stage == "plain":
        counted.repartition(partitions)
        assert counted.stage == "done"
    else:
        counted.repartition(undo=True)
        assert counted.stage == "plain"
    counted.run()
    assert counted.last == recompute_counts(counted.batches)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["/bin/umount", "--lazy", str(disk)], check=True)


@contextmanager
def full(disk: Path, left_bytes: int) -> Iterator[None]:
    """Leaves so much free on a file system."""
    free = os.statvfs(disk)
    filler = disk / "filler"
    filler.write_bytes(bytes(free.f_bavail * free.f_frsize - left_bytes))
    yield
    filler.unlink()


def kill_repartition(query: Query, partitions: int, part: float) -> None:
    """Kills all processes of a repartition when this part of the partitions has been written.

    One that is done by then is undone, and tried again with an earlier moment.
    """
    command = [*COMMAND, str(query.checkpoint)]
    while query.stage != "half-done":
        if query.stage == "done":
            query.repartition(undo=True)
        process = subprocess.Popen(
            [*command, "--partitions", str(partitions)],
            env=os.environ | {"PYSPARK_SUBMIT_ARGS": write_submit_arguments()},
            start_new_session=True,
        )
        await_written(query.checkpoint, int(part * partitions), process)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        rest(query.checkpoint)
        part /= 2


def await_written(checkpoint: Path, partitions: int, process: subprocess.Popen[bytes]) -> None:
    """Waits until the batch is begun and so many new partitions have state, or the process ends."""
    before = read_checkpoint(checkpoint).planned
    deadline_s = time.monotonic() + PATIENCE_S
    while process.poll() is None:
        assert time.monotonic() < deadline_s
        planned = read_checkpoint(checkpoint).planned
        if planned != before and count_written(checkpoint, planned) >= partitions:
            return
        time.sleep(0.01)


def count_written(checkpoint: Path, batch: int | None) -> int:
    assert batch is not None
    return len({file.parent for file in checkpoint.glob(f"state/0/*/{batch + 1}_*.*")})
