"""Keys change their state partition while the query runs, with all they have, and nothing shows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keyed_jobs import (
    PARTITIONS,
    ROWS,
    SEEN,
    USERS,
    Ledger,
    Run,
    check_ledgers,
    count,
    find_partitions,
    read_raw,
    unique,
)
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from balancedstream import read_state
from balancedstream.core.keys.epochs import Wish

pytestmark = [pytest.mark.integration, pytest.mark.turn]

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class TimedLedger(Ledger):
    """Its rows have a time besides."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        timeless = (Row(user=row.user, n=row.n) for row in rows)
        yield from super().handleInputRows(key, timeless, timerValues)


def test_a_key_moves_with_its_whole_state_and_no_other_key_changes_its_partition(
    spark: SparkSession, begin_keyed: Callable[..., Run], tmp_path: Path
) -> None:
    run = begin_keyed(count)
    run.wait_batches(1)
    before = {row.user: row.partition for row in run.rows}
    target = (before["u3"] + 1) % PARTITIONS
    run.move({"u3": target})
    run.wait(lambda rows: rows[-1].batch > 1 and run.partitions()["u3"][-1] == target)
    run.wait_batches(1)
    run.query.stop()
    check_ledgers(run.rows)
    after = {row.user: row.partition for row in run.rows[-USERS:]}
    assert after == before | {"u3": target}

    checkpoint = str(tmp_path / "checkpoint")
    totals = read_state(spark, checkpoint, stateVarName="total").collect()
    assert [[*row.key.asDict()] for row in totals] == [["user"]] * USERS
    raw = read_raw(spark, tmp_path)
    state = {row.key["user"]: (row.value.n, row.partition_id) for row in raw.collect()}
    # The batch under way when the query was stopped may have said its rows already.
    commits = (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
    committed = max(int(path.name) for path in commits)
    last = {row.user: (row.total, row.partition) for row in run.rows if row.batch <= committed}
    assert state == last
    assert find_partitions(spark, tmp_path, batchId=0) == before
    assert "balancedstream_route" in raw.schema["key"].dataType.fieldNames()


def test_a_plan_for_a_later_batch_is_in_force_from_exactly_there_or_withdrawn_before(
    begin_keyed: Callable[..., Run],
) -> None:
    run = begin_keyed(count)
    run.wait_batches(1)
    before = {row.user: row.partition for row in run.rows}
    targets = {user: (p + 1) % PARTITIONS for user, p in before.items()}
    withdrawn = run.last_batch + 6
    run.move(targets, effective_batch=withdrawn)
    run.wait_batches(1)
    first = run.last_batch + 3
    run.move({"u0": targets["u0"], "u5": targets["u5"]}, effective_batch=first)
    assert run.last_batch < withdrawn - 2
    run.wait(lambda _: run.last_batch >= withdrawn + 1)
    run.query.stop()
    check_ledgers(run.rows)
    for row in run.rows:
        moved = row.user in {"u0", "u5"} and row.batch >= first
        assert row.partition == (targets if moved else before)[row.user], row


def test_lazy_handoff_leaves_untouched_keys_where_they_are_and_hybrid_brings_them_all(
    begin_keyed: Callable[..., Run], spark: SparkSession, tmp_path: Path
) -> None:
    # After the third batch the odd users are cold.
    rows = f"n < {3 * ROWS} OR n % 2 = 0"

    run = begin_keyed(count, where=rows)
    run.wait_batches(4)
    before = {row.user: row.partition for row in run.rows}
    targets = {user: (p + 1) % PARTITIONS for user, p in before.items()}
    run.move(targets, strategy="lazy")
    run.wait_batches(4)
    run.query.stop()
    cold = {user for user in before if int(user[1:]) % 2}
    assert find_partitions(spark, tmp_path) == {
        user: (before if user in cold else targets)[user] for user in before
    }

    again = begin_keyed(count, where=rows)
    again.wait_batches(1)
    again.move(targets, strategy="hybrid", share=1)
    again.wait_batches(7)
    again.query.stop()
    assert find_partitions(spark, tmp_path) == targets
    check_ledgers([row for row in unique(run.rows + again.rows) if row.user not in cold])


def read_one_batch(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream whose first batch has rows of all users, and no data follows."""
    lines = [f'{{"user": "u{n % USERS}", "n": {n}}}' for n in range(ROWS)]
    (folder / "data").mkdir()
    (folder / "data" / "0.json").write_text("\n".join(lines))
    return spark.readStream.schema("user string, n long").json(str(folder / "data"))


def test_keys_move_in_batches_of_their_own_while_no_data_comes(
    begin_keyed: Callable[..., Run], spark: SparkSession, tmp_path: Path
) -> None:
    run = begin_keyed(count, data=read_one_batch(spark, tmp_path))
    run.wait_batches(1)
    targets = {row.user: (row.partition + 1) % PARTITIONS for row in run.rows}
    run.move(targets, strategy="hybrid", share=USERS // 2)
    # One asks, and each share takes one to arrive.
    logs = tmp_path / "checkpoint" / "offsets"
    run.wait(lambda _: (tmp_path / "checkpoint" / "commits" / "3").exists())
    run.query.stop()
    check_ledgers(run.rows)
    assert run.last_batch == 0
    offsets = [(logs / str(batch)).read_text().splitlines()[2:] for batch in range(4)]
    assert len({data for data, _ in offsets}) == 1
    assert len({epoch for _, epoch in offsets}) == 4
    assert find_partitions(spark, tmp_path) == targets
    assert not (logs / "4").exists()


def test_batches_that_only_move_keys_leave_the_watermark_to_the_data(
    begin_keyed: Callable[..., Run], spark: SparkSession, tmp_path: Path
) -> None:
    data = read_one_batch(spark, tmp_path)
    timed = data.withColumn("at", F.timestamp_seconds(F.col("n") + 1)).withWatermark(
        "at", "1 second"
    )
    modes = TimedLedger(), SEEN, "update", "eventTime"
    run = begin_keyed(lambda frame: frame.transformWithState(*modes), data=timed)
    run.wait_batches(1)
    home = {row.user: row.partition for row in run.rows}
    # The second batch is Spark's own, for timers: the watermark has risen.
    run.wait(lambda _: (tmp_path / "checkpoint" / "commits" / "1").exists())
    targets = {user: (p + 1) % PARTITIONS for user, p in home.items()}
    run.move(targets)
    run.wait(lambda _: (tmp_path / "checkpoint" / "commits" / "3").exists())
    run.wait(lambda _: run.query.lastProgress.batchId == 3)
    told = [(p.numInputRows, p.eventTime["watermark"]) for p in run.query.recentProgress]
    run.query.stop()
    assert [rows for rows, _ in told[2:]] == [USERS, 2 * USERS]
    assert {watermark for _, watermark in told[1:]} == {"1970-01-01T00:00:15.000Z"}
    assert find_partitions(spark, tmp_path) == targets
    check_ledgers(run.rows)


def test_a_restarted_query_goes_on_with_its_keys_where_they_were(
    begin_keyed: Callable[..., Run],
) -> None:
    run = begin_keyed(count)
    run.wait_batches(1)
    target = (run.partitions()["u1"][-1] + 2) % PARTITIONS
    run.move({"u1": target})
    run.wait_arrival({"u1": target})
    run.query.stop()
    again = begin_keyed(count)
    again.wait_batches(3)
    assert set(again.partitions()["u1"]) == {target}
    check_ledgers(unique(run.rows + again.rows))
    again.control.want(Wish())
    again.wait(lambda _: again.partitions()["u1"][-1] == run.partitions()["u1"][0])
    check_ledgers(unique(run.rows + again.rows))
