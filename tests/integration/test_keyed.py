"""Keys change their state partition while the query runs, with all they have, and nothing shows."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import processes
import pytest
from patience import PATIENCE_S
from processes import find_own_executor
from pyspark import TaskContext, cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from balancedstream import BalancedFrame, balanced, read_state
from balancedstream.core.epochs import Wish
from balancedstream.errors import InvalidInputError, PlanTooLargeError
from balancedstream.keyed.control import KeyControl
from balancedstream.workers import decoding
from balancedstream.workers.names import BATCH_PROPERTY

pytestmark = pytest.mark.integration

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(processes)

PARTITIONS = 6
USERS = 8
ROWS = 16
"""A batch has so many rows, the same number for each user."""

TTL_MS = 4_000
TIMER_MS = 3_000
SEEN = "user string, total long, items array<long>, firsts string, partition int, batch long"
LIFE = "user string, what string, batch_ms long, due_ms long, partition int"


def where() -> tuple[int, int]:
    """State partition and micro-batch of the running task."""
    task: Any = TaskContext.get()
    return task.partitionId(), int(task.getLocalProperty(BATCH_PROPERTY))


WIDE = (
    "cost decimal(20,4), day date, at timestamp, local timestamp_ntz, blob binary, ratio double, "
    "place struct<x: int, name: string>, counts map<string, int>, tags array<string>"
)


def make_wide(number: int) -> tuple[Any, ...]:
    """Values of many types that depend on a number."""
    at = datetime(1969, 12, 31, 12, 30, 0, 123456) + timedelta(days=number)  # noqa: DTZ001
    cost = Decimal("12345678901234.5678") + number
    place, counts = (number, "é"), {"a": number, "b": None}
    return (cost, at.date(), at, at, bytearray(b"\0x"), -0.5, place, counts, ["a", None])


def is_decoding() -> bool:
    """Whether PySpark has opened this task's stream of rows through `engine.decoding`."""
    opener: Any = ArrowStreamSerializer.load_stream
    return opener.__module__ == decoding.__name__ and not decoding._markers


class Ledger(StatefulProcessor):
    """Keeps what a key has seen in all three kinds of state, and says all of it each time."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n long")
        self.items = handle.getListState("items", "n long")
        self.firsts = handle.getMapState("firsts", "batch long", "n long")
        self.wide = handle.getValueState("wide", WIDE)

    def add(self, values: list[int]) -> Row:
        partition, batch = where()
        before = (self.total.get() or (0,))[0]
        total = before + len(values)
        self.total.update((total,))
        assert self.wide.get() == (make_wide(before) if self.items.exists() else None)
        self.wide.update(make_wide(total))
        self.items.appendList([(value,) for value in sorted(values)])
        self.firsts.updateValue((batch,), (min(values),))
        firsts = sorted((k[0], v[0]) for k, v in self.firsts.iterator())
        return Row(
            total=total,
            items=[n for (n,) in self.items.get()],
            firsts=str(firsts),
            partition=partition,
            batch=batch,
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seen = [*rows]
        assert is_decoding(), "PySpark has not read these rows where they are decoded"
        assert all([*row.__fields__] == ["user", "n"] for row in seen)
        assert len(key) == 1
        yield Row(user=key[0], **self.add([row.n for row in seen]).asDict())

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:
        assert [*initialState.__fields__] == ["total", "user", "since"]
        self.total.update((initialState.total,))

    def close(self) -> None:
        pass


class TimedLedger(Ledger):
    """Its rows have a time besides."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        timeless = (Row(user=row.user, n=row.n) for row in rows)
        yield from super().handleInputRows(key, timeless, timerValues)


LARGE = 2**53 + 1
"""No float is this whole number."""


def with_large(frame: DataFrame) -> DataFrame:
    columns = {"large": F.col("n") + LARGE, "even": F.col("n") % 2 == 0}
    return frame.withColumns(columns).withColumn("small", F.lit(7).cast("byte"))


def check_large(frames: list[pd.DataFrame]) -> None:
    """In pandas, values are as they are where nothing moves."""
    for frame in frames:
        assert [*frame.columns] == ["user", "n", "large", "even", "small"]
        assert [t.kind for t in frame.dtypes] == ["O", "i", "i", "b", "i"]
        assert (frame["large"] - LARGE == frame["n"]).all()
        assert (~frame["even"] == (frame["n"] % 2 == 1)).all()
        assert (frame["small"] == 7).all()


class PandasLedger(Ledger):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        frames = [*rows]
        check_large(frames)
        row = self.add([int(n) for frame in frames for n in frame["n"]])
        yield pd.DataFrame([{"user": key[0], **row.asDict()}])

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        assert [*initialState.columns] == ["total", "user", "since"]
        self.total.update((int(initialState["total"].sum()),))


class Lives(StatefulProcessor):
    """Values of all kinds that live for a time, and a timer; says what it sees of them."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.born = handle.getValueState("born", "ms long", TTL_MS)
        self.births = handle.getListState("births", "ms long", TTL_MS)
        self.known = handle.getMapState("known", "k string", "ms long", TTL_MS)
        self.due = handle.getValueState("due", "ms long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for _ in rows:
            pass
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        born = [self.born.get()[0]] if self.born.exists() else []
        births = [ms for (ms,) in self.births.get()]
        known = [value[0] for _, value in self.known.iterator()]
        assert born == births == known == [v[0] for v in self.known.values()], (born, births, known)
        assert self.known.containsKey(("k",)) == bool(born)
        # Spark gives names to what it reads of one entry, and to a timer's key.
        assert not born or self.known.getValue(("k",)).ms == born[0]
        yield self._say(key, f"sees {born[0]}" if born else "sees nothing", now_ms)
        if not born:
            self.born.update((now_ms,))
            self.births.put([(now_ms,)])
            self.known.updateValue(("k",), (now_ms,))
            yield self._say(key, "is born", now_ms, now_ms + TTL_MS)
        if not self.due.exists():
            self.due.update((now_ms + TIMER_MS,))
            self.handle.registerTimer(now_ms + TIMER_MS)
            yield self._say(key, "sets", now_ms, now_ms + TIMER_MS)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        self.due.clear()
        due_ms = expiredTimerInfo.getExpiryTimeInMs()
        assert len(key) == 1
        yield self._say((key.user,), "fires", timerValues.getCurrentProcessingTimeInMs(), due_ms)

    def _say(self, key: Any, what: str, now_ms: int, due_ms: int = 0) -> Row:
        return Row(user=key[0], what=what, batch_ms=now_ms, due_ms=due_ms, partition=where()[0])

    def close(self) -> None:
        pass


class PandasLives(Lives):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield to_frame(super().handleInputRows(key, rows, timerValues))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        yield to_frame(super().handleExpiredTimer(key, timerValues, expiredTimerInfo))


def to_frame(rows: Iterator[Row]) -> pd.DataFrame:
    return pd.DataFrame([row.asDict() for row in rows])


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


HELD = "user string, n long, old_ms long, partition int, batch long"
FOR_LONG_MS = 3_600_000


def hold(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Sets a timeout and then only looks; for u0 it goes on to set it."""
    seen = [*frames]
    check_large(seen)
    rows = sum(map(len, seen))
    if not state.exists or key[0] == "u0":
        state.update((rows + (state.get[0] if state.exists else 0),))
        state.setTimeoutDuration(FOR_LONG_MS)
    partition, batch = where()
    said = {"user": key[0], "n": state.get[0], "old_ms": state.oldTimeoutTimestamp}
    yield pd.DataFrame([said | {"partition": partition, "batch": batch}])


FAR_MS = 4_102_444_800_000
"""A timer of the year 2100 never fires here."""

SAID = "user string, step long, said string, partition int, batch long"


class Script(StatefulProcessor):
    """Goes through all that state variables and timers can do, step by step, and says what it sees.

    Each kind of variable is there twice: without a time to live, and with a long one.
    """

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.step = handle.getValueState("step", "n long")
        self.kinds = [
            (
                handle.getValueState(f"value{ttl_ms}", "n long", ttl_ms),
                handle.getListState(f"list{ttl_ms}", "n long", ttl_ms),
                handle.getMapState(f"map{ttl_ms}", "k long", "n long", ttl_ms),
            )
            for ttl_ms in (None, FOR_LONG_MS)
        ]

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for _ in rows:
            pass
        step = self.step.get()[0] if self.step.exists() else 0
        said = [sorted(self.handle.listTimers())]
        self._set_timers(step)
        for kind in self.kinds:
            said += self._look(*kind)
            self._act(step, *kind)
            said += self._look(*kind)
        self.step.update((step + 1,))
        partition, batch = where()
        yield Row(user=key[0], step=step, said=repr(said), partition=partition, batch=batch)

    def _set_timers(self, step: int) -> None:
        if step % 4 == 3:
            self.handle.deleteTimer(FAR_MS + step - 1)
        else:
            self.handle.registerTimer(FAR_MS + step)

    def _act(self, step: int, value: Any, values: Any, entries: Any) -> None:
        match step % 6:
            case 0:
                value.update((step,))
                values.put([(1,), (2,)])
                entries.updateValue((1,), (step,))
                entries.updateValue((2,), (step,))
            case 1:
                values.appendValue((step,))
                values.appendList([(3,), (3,)])
                entries.removeKey((1,))
            case 2:
                value.clear()
                entries.updateValue((2,), (step,))
            case 3:
                values.put([(9,)])
                entries.clear()
            case 4:
                values.clear()
                value.update((step,))
                entries.updateValue((5,), (step,))

    def _look(self, value: Any, values: Any, entries: Any) -> list[Any]:
        return [
            (value.exists(), value.get()),
            (values.exists(), [*values.get()]),
            (entries.exists(), sorted(entries.iterator())),
            (sorted(entries.keys()), sorted(entries.values())),
            [(entries.containsKey((k,)), entries.getValue((k,))) for k in (1, 2, 5)],
        ]

    def close(self) -> None:
        pass


@dataclass
class Run:
    """A running query: what it said so far, row by row."""

    query: StreamingQuery
    frame: BalancedFrame
    control: KeyControl
    rows: list[Row] = field(default_factory=list)

    @property
    def last_batch(self) -> int:
        return max((row.batch for row in self.rows), default=-1)

    def wait(self, done: Callable[[list[Row]], object]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not done(self.rows):
            error = self.query.exception()
            if error:
                raise error
            assert time.monotonic() < deadline_s, self.rows[-USERS:]
            time.sleep(0.1)

    def wait_rows(self, count: int) -> None:
        """Waits until there are that many rows in all."""
        self.wait(lambda rows: len(rows) >= count)

    def wait_batches(self, count: int) -> None:
        last = self.last_batch + count
        self.wait(lambda _: self.last_batch >= last)

    def wait_arrival(self, targets: Mapping[str, int]) -> None:
        """Waits until each of these users was last in this partition."""

        def have_arrived(_: list[Row]) -> bool:
            seen = self.partitions()
            return all(seen[user][-1] == partition for user, partition in targets.items())

        self.wait(have_arrived)

    def move(self, partitions_of: dict[str, int], **more: Any) -> None:
        routes = self.control.find_routes(
            {f'"{user}"': p for user, p in partitions_of.items()}, PARTITIONS
        )
        self.control.want(Wish(routes, **more))

    def partitions(self) -> dict[str, list[int]]:
        """Where each user was, batch by batch."""
        seen: defaultdict[str, list[int]] = defaultdict(list)
        for row in self.rows:
            seen[row.user].append(row.partition)
        return dict(seen)


def users(frame: DataFrame) -> DataFrame:
    """`value` counts from 0; the users take turns."""
    name = F.concat(F.lit("u"), (F.col("value") % USERS).cast("string"))
    return frame.select(name.alias("user"), F.col("value").alias("n"))


def check_ledgers(rows: list[Row], totals_before: Mapping[str, int] | None = None) -> None:
    """Every row says what one that was never moved would have said."""
    before = totals_before or {}
    seen: defaultdict[str, list[int]] = defaultdict(list)
    firsts: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.batch):
        number = int(row.user[1:])
        new = [row.batch * ROWS + number, row.batch * ROWS + number + USERS]
        seen[row.user] += new
        firsts[row.user].append((row.batch, new[0]))
        assert row.total == before.get(row.user, 0) + len(seen[row.user]), row
        assert row.items == seen[row.user], row
        assert row.firsts == str(firsts[row.user]), row
    batches = max(row.batch for row in rows) + 1
    assert Counter(row.user for row in rows) == dict.fromkeys(seen, batches)


def check_dice(run: Run) -> None:
    """Each user still has all numbers that were drawn and said before."""
    for user in run.partitions():
        said = [row.items for row in run.rows if row.user == user]
        for before, after in pairwise(said):
            assert after[: len(before)] == before
            assert len(after) > len(before)


def unique(rows: list[Row]) -> list[Row]:
    """A batch that was interrupted is run again."""
    return [*{(row.user, row.batch): row for row in rows}.values()]


@pytest.fixture
def begin(stream: Callable[[int], DataFrame], tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts a balanced query on the users, with their rows kept; stops it when the test ends."""
    runs: list[Run] = []

    def start(
        transform: Callable[[BalancedFrame], DataFrame],
        *,
        data: DataFrame | None = None,
        where: str = "true",
        checkpoint: str = "checkpoint",
    ) -> Run:
        given = users(stream(ROWS)).where(where) if data is None else data
        frame = balanced(given, "user")
        assert frame.control is not None
        rows: list[Row] = []

        def keep(batch: DataFrame, number: int) -> None:
            # As people do who look for their jobs in Spark's UI.
            batch.sparkSession.sparkContext.setJobGroup(f"batch {number}", "a job of mine")
            rows.extend(batch.collect())

        writer = transform(frame).writeStream.queryName(f"keyed-{len(runs)}")
        query = (
            writer.outputMode("update")
            .foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .start()
        )
        runs.append(Run(query, frame, frame.control, rows))
        return runs[-1]

    yield start
    for run in runs:
        run.query.stop()


def read_raw(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    """Each user's total, as Spark's own state reader shows it."""
    reader = spark.read.format("statestore").option("stateVarName", "total").options(**options)
    return reader.load(str(folder / "checkpoint"))


def find_partitions(spark: SparkSession, folder: Path, **options: Any) -> dict[str, int]:
    """Where each user's state is."""
    found = read_raw(spark, folder, **options).collect()
    assert len(found) == USERS
    return {row.key["user"]: row.partition_id for row in found}


def count(frame: BalancedFrame, processor: Ledger | None = None) -> DataFrame:
    return frame.transformWithState(processor or Ledger(), SEEN, "update", "none")


def test_a_key_moves_with_its_whole_state_and_no_other_key_changes_its_partition(
    spark: SparkSession, begin: Callable[..., Run], tmp_path: Path
) -> None:
    run = begin(count)
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
    begin: Callable[..., Run],
) -> None:
    run = begin(count)
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
    begin: Callable[..., Run], spark: SparkSession, tmp_path: Path
) -> None:
    # After the third batch the odd users are cold.
    rows = f"n < {3 * ROWS} OR n % 2 = 0"

    run = begin(count, where=rows)
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

    again = begin(count, where=rows)
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
    begin: Callable[..., Run], spark: SparkSession, tmp_path: Path
) -> None:
    run = begin(count, data=read_one_batch(spark, tmp_path))
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
    begin: Callable[..., Run], spark: SparkSession, tmp_path: Path
) -> None:
    data = read_one_batch(spark, tmp_path)
    timed = data.withColumn("at", F.timestamp_seconds(F.col("n") + 1)).withWatermark(
        "at", "1 second"
    )
    modes = TimedLedger(), SEEN, "update", "eventTime"
    run = begin(lambda frame: frame.transformWithState(*modes), data=timed)
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
    begin: Callable[..., Run],
) -> None:
    run = begin(count)
    run.wait_batches(1)
    target = (run.partitions()["u1"][-1] + 2) % PARTITIONS
    run.move({"u1": target})
    run.wait_arrival({"u1": target})
    run.query.stop()
    again = begin(count)
    again.wait_batches(3)
    assert set(again.partitions()["u1"]) == {target}
    check_ledgers(unique(run.rows + again.rows))
    again.control.want(Wish())
    again.wait(lambda _: again.partitions()["u1"][-1] == run.partitions()["u1"][0])
    check_ledgers(unique(run.rows + again.rows))


def test_pandas_processors_and_initial_state_move_too(
    spark: SparkSession, stream: Callable[[int], DataFrame], begin: Callable[..., Run]
) -> None:
    # Its columns are its own, in an order of its own.
    begins = spark.createDataFrame([(1000, "u2", "May")], "total long, user string, since string")
    initial = balanced(begins, "user")

    def pandas(frame: BalancedFrame) -> DataFrame:
        modes = SEEN, "update", "none"
        return frame.transformWithStateInPandas(PandasLedger(), *modes, initialState=initial)

    def rows(frame: BalancedFrame) -> DataFrame:
        return frame.transformWithState(Ledger(), SEEN, "update", "none", initialState=initial)

    for transform, data in ((pandas, with_large(users(stream(ROWS)))), (rows, None)):
        run = begin(transform, data=data, checkpoint=transform.__name__)
        run.wait_batches(1)
        target = (run.partitions()["u2"][-1] + 1) % PARTITIONS
        run.move({"u2": target})
        run.wait_arrival({"u2": target})
        run.query.stop()
        check_ledgers(run.rows, {"u2": 1000})


def test_state_variables_and_timers_do_what_they_do_without_balanced_while_keys_move(
    stream: Callable[[int], DataFrame], begin: Callable[..., Run], tmp_path: Path
) -> None:
    modes = Script(), SAID, "update", "processingTime"
    steps = 12
    plain: list[Row] = []
    query = (
        users(stream(ROWS)).groupBy("user").transformWithState(*modes)
        .writeStream.outputMode("update")
        .foreachBatch(lambda batch, _: plain.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "plain"))
        .start()
    )  # fmt: skip
    deadline_s = time.monotonic() + PATIENCE_S
    while len(plain) < steps * USERS and query.isActive and time.monotonic() < deadline_s:
        time.sleep(0.1)
    query.stop()
    run = begin(lambda frame: frame.transformWithState(*modes))
    # A move that is replaced before it has begun never happens: each is awaited.
    moves = 0
    while moves < 3 or len(run.rows) < steps * USERS:
        targets = {f"u{n}": (moves + n) % PARTITIONS for n in range(USERS)}
        run.move(targets)
        run.wait_arrival(targets)
        moves += 1
    run.query.stop()
    expected = {(row.user, row.step): row.said for row in plain}
    said = {(row.user, row.step): row.said for row in run.rows if row.step < steps}
    assert len(said) == steps * USERS
    for place, seen in said.items():
        assert seen == expected[place], place
    assert all(len(set(partitions)) >= 3 for partitions in run.partitions().values())


def live(frame: BalancedFrame) -> DataFrame:
    return frame.transformWithState(Lives(), LIFE, "update", "processingTime")


def live_in_pandas(frame: BalancedFrame) -> DataFrame:
    return frame.transformWithStateInPandas(PandasLives(), LIFE, "update", "processingTime")


@pytest.mark.parametrize("transform", [live, live_in_pandas])
def test_time_to_live_is_kept_to_the_millisecond_and_timers_fire_once_at_their_time(
    transform: Callable[[BalancedFrame], DataFrame],
    spark: SparkSession,
    begin: Callable[..., Run],
    tmp_path: Path,
) -> None:
    run = begin(transform)
    moves = 0
    while moves < 8 or run.rows[-1].batch_ms - run.rows[0].batch_ms < 3 * TTL_MS:
        run.wait_rows(len(run.rows) + 1)
        run.move({f"u{n}": (moves + n) % PARTITIONS for n in range(USERS // 2)})
        moves += 1
    run.query.stop()
    elsewhere = 0
    for user in {row.user for row in run.rows}:
        mine = [row for row in run.rows if row.user == user]
        ends_ms = 0
        for row in mine:
            if row.what.startswith("sees"):
                expected = f"sees {ends_ms - TTL_MS}" if row.batch_ms < ends_ms else "sees nothing"
                assert row.what == expected, row
            if row.what == "is born":
                ends_ms = row.due_ms
        batches_ms = sorted({row.batch_ms for row in run.rows})
        sets = [row for row in mine if row.what == "sets"]
        fires = [row for row in mine if row.what == "fires"]
        # Spark fires what is due before the batch's time, in the first batch that is later.
        due_ms = [row.due_ms for row in sets if row.due_ms < batches_ms[-1]]
        assert [row.due_ms for row in fires] == due_ms
        assert fires
        for row in fires:
            assert row.batch_ms == min(ms for ms in batches_ms if ms > row.due_ms), row
        set_in = {row.due_ms: row.partition for row in sets}
        elsewhere += sum(row.partition != set_in[row.due_ms] for row in fires)
    assert elsewhere, "no timer fired in another partition than it was set in"
    moved = {row.user for row in run.rows for other in run.rows if row.user == other.user
             and row.partition != other.partition}  # fmt: skip
    assert moved == {f"u{n}" for n in range(USERS // 2)}

    def read(variable: str, *, flat: bool = True) -> DataFrame:
        options = {"stateVarName": variable, "flattenCollectionTypes": flat}
        state = read_state(spark, str(tmp_path / "checkpoint"), **options)
        assert "balancedstream" not in state.schema.json()
        return state

    values = [row.value for row in read("born").collect()]
    values += [value for row in read("births", flat=False).collect() for value in row.list_value]
    entries = read("known", flat=False).collect()
    values += [value for row in entries for value in row.map_value.values()]
    assert len(values) >= 3 * USERS // 2
    # Also of those that moved, and that Spark therefore keeps for longer.
    assert all(value.ttlExpirationMs == value.value.ms + TTL_MS for value in values)
    assert [*read("births").columns, *read("known").columns] == [
        *("key", "list_element", "partition_id"),
        *("key", "user_map_key", "user_map_value", "partition_id"),
    ]


def test_spark_tells_no_function_of_a_timeout_that_stands_so_such_a_key_stays(
    spark: SparkSession,
    stream: Callable[[int], DataFrame],
    begin: Callable[..., Run],
    tmp_path: Path,
) -> None:
    modes = HELD, "n long", "update", "ProcessingTimeTimeout"
    data = with_large(users(stream(ROWS)))
    run = begin(lambda frame: frame.applyInPandasWithState(hold, *modes), data=data)
    run.wait_batches(1)
    home = {row.user: row.partition for row in run.rows}
    run.move({user: (home[user] + 1) % PARTITIONS for user in ("u0", "u1")})
    run.wait(lambda _: run.partitions()["u0"][-1] != home["u0"])
    run.wait_batches(1)
    run.query.stop()
    per_batch = ROWS // USERS
    for row in run.rows:
        assert row.n == per_batch * (row.batch + 1 if row.user == "u0" else 1), row
        assert row.user == "u0" or row.partition == home[row.user]
    # Were it told here, such a key could be moved with its timeout.
    assert {row.old_ms for row in run.rows} == {-1}
    held = read_state(spark, str(tmp_path / "checkpoint")).collect()
    assert len(held) == USERS
    assert all(row.value.timeoutTimestamp > FOR_LONG_MS for row in held)


def test_the_state_of_the_attempt_that_counts_moves_also_where_no_two_attempts_agree(
    begin: Callable[..., Run],
) -> None:
    run = begin(lambda frame: count(frame, FailingDice()))
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
    begin: Callable[..., Run], tmp_path: Path
) -> None:
    dice = ZombieDice(tmp_path / "checkpoint", tmp_path)
    run = begin(lambda frame: count(frame, dice))
    run.wait_batches(1)
    targets = {row.user: (row.partition + 1) % PARTITIONS for row in run.rows}
    run.move(targets)
    run.wait_arrival(targets)
    run.wait(lambda _: (tmp_path / "written last").stat().st_size)
    run.wait_batches(1)
    run.query.stop()
    check_dice(run)


def test_one_balanced_frame_is_refused_to_a_second_query_and_serves_the_next_one(
    begin: Callable[..., Run], tmp_path: Path
) -> None:
    run = begin(count)

    def start_again(checkpoint: str) -> StreamingQuery:
        transformed = count(run.frame)
        location = str(tmp_path / checkpoint)
        writer = transformed.writeStream.outputMode("update").format("noop")
        return writer.option("checkpointLocation", location).start()

    run.wait_batches(1)
    with pytest.raises(StreamingQueryException, match=r"has the same balanced\(\.\.\.\)"):
        start_again("second").awaitTermination(60)
    run.wait_batches(1)
    run.query.stop()
    later = start_again("second")
    deadline_s = time.monotonic() + 60
    while later.lastProgress is None and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert later.lastProgress
    later.stop()


def test_what_cannot_be_balanced_is_refused_with_the_field_named(
    spark: SparkSession,
    stream: Callable[[int], DataFrame],
    begin: Callable[..., Run],
    tmp_path: Path,
) -> None:
    rows = users(stream(ROWS))
    with pytest.raises(InvalidInputError, match=r"keys: there is no column 'nobody', only user, n"):
        balanced(rows, "nobody")
    with pytest.raises(InvalidInputError, match="keys: name the column"):
        balanced(rows)
    with pytest.raises(InvalidInputError, match="balancedstream_route has a name that is needed"):
        balanced(rows.withColumn("balancedstream_route", F.lit(1)), "user")
    with pytest.raises(InvalidInputError, match="this DataFrame is no stream"):
        count(balanced(spark.createDataFrame([("u", 1)], "user string, n long"), "user"))
    with pytest.raises(InvalidInputError, match="stateStructType: its field held is of type"):
        balanced(rows, "user").applyInPandasWithState(
            hold, HELD, "n long, held variant", "update", "NoTimeout"
        )
    frame = balanced(rows, "user")
    assert frame.control is not None
    with pytest.raises(InvalidInputError, match="key u1: is no key of this stream"):
        frame.control.want(Wish({"u1": 1}))
    with pytest.raises(InvalidInputError, match="rows without a key are never moved"):
        frame.control.want(Wish({"null": 1}))
    with pytest.raises(PlanTooLargeError, match="has 20001 keys, at most 20000 fit"):
        frame.control.want(Wish({f'"u{n}"': 1 for n in range(20_001)}))

    plain = rows.groupBy("user").transformWithState(Ledger(), SEEN, "update", "none")
    query = (
        plain.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "plain"))
        .trigger(availableNow=True)
        .start()
    )
    while not query.lastProgress:
        time.sleep(0.1)
    query.stop()
    planned = {*(tmp_path / "plain" / "offsets").iterdir()}
    refused = r"planned with no balanced operator of the name 'keys'; no row was processed"
    with pytest.raises(StreamingQueryException, match=refused):
        begin(count, checkpoint="plain").wait_batches(1)
    assert {*(tmp_path / "plain" / "offsets").iterdir()} == planned


def test_a_checkpoint_that_is_not_mounted_is_refused_before_there_is_any_data(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "input").mkdir()
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.default.link./store", f"file://{tmp_path}/store")
    rows = spark.readStream.schema("user string, n long").json(str(tmp_path / "input"))
    query = (
        count(balanced(rows, "user")).writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", "viewfs:///store/app")
        .start()
    )  # fmt: skip
    with pytest.raises(StreamingQueryException, match=r"viewfs:/+store/app is not on a mounted"):
        query.awaitTermination(PATIENCE_S)
    assert query.lastProgress is None
    app = tmp_path / "store" / "app"
    assert (app / "metadata").exists()
    assert not [*app.glob("offsets/[0-9]*")]


def test_keys_with_the_time_of_the_watermark_are_never_moved(
    stream: Callable[[int], DataFrame],
) -> None:
    at = F.timestamp_seconds("n").alias("at")
    timed = users(stream(ROWS)).select("user", "n", at).withWatermark("at", "3 seconds")
    modes = SEEN, "update"
    for key in ("at", "window"):
        frame = balanced(timed.withColumn("window", F.window("at", "1 minute")), "user", key)
        assert is_movable(frame.transformWithState(Ledger(), *modes, "processingTime"))
        with pytest.warns(UserWarning, match="keys with the time of the watermark are not moved"):
            assert not is_movable(frame.transformWithState(Ledger(), *modes, "eventTime"))
        assert frame.control is None


def is_movable(transformed: DataFrame) -> bool:
    return "balancedstream_route" in transformed._jdf.queryExecution().logical().toString()


def test_keys_of_a_type_with_another_hash_are_never_moved_and_the_job_runs(
    spark: SparkSession, stream: Callable[[int], DataFrame], tmp_path: Path
) -> None:
    collated = F.expr("collate(user, 'UNICODE')").alias("user")
    begins = spark.createDataFrame([(1000, "u2", "May")], "total long, user string, since string")
    initial = begins.select("total", collated, "since")
    with pytest.warns(UserWarning, match="another collation") as warned:
        frame = balanced(users(stream(ROWS)).select(collated, "n"), "user")
    assert len(warned) == 1
    counted = frame.transformWithState(
        Ledger(), SEEN, "update", "none", initialState=balanced(initial, "user")
    )
    assert frame.control is None
    rows: list[Row] = []
    query = (
        counted.writeStream.outputMode("update")
        .foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    while not rows and query.isActive:
        time.sleep(0.1)
    query.stop()
    assert {row.user: row.total for row in rows if not row.batch} == {
        f"u{n}": ROWS // USERS + (1000 if n == 2 else 0) for n in range(USERS)
    }
