"""Every kind of state does what it does without `balanced` while keys move."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from keyed_jobs import (
    FOR_LONG_MS,
    HELD,
    PARTITIONS,
    ROWS,
    SEEN,
    USERS,
    Ledger,
    Run,
    check_large,
    check_ledgers,
    hold,
    users,
    where,
    with_large,
)
from patience import PATIENCE_S
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from balancedstream import BalancedFrame, balanced, read_state

pytestmark = [pytest.mark.integration, pytest.mark.turn]

# The executors cannot import test modules: functions travel with their code.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

TTL_MS = 4_000
TIMER_MS = 3_000
LIFE = "user string, what string, batch_ms long, due_ms long, partition int"


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


def test_pandas_processors_and_initial_state_move_too(
    spark: SparkSession, stream: Callable[[int], DataFrame], begin_keyed: Callable[..., Run]
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
        run = begin_keyed(transform, data=data, checkpoint=transform.__name__)
        run.wait_batches(1)
        target = (run.partitions()["u2"][-1] + 1) % PARTITIONS
        run.move({"u2": target})
        run.wait_arrival({"u2": target})
        run.query.stop()
        check_ledgers(run.rows, {"u2": 1000})


def test_state_variables_and_timers_do_what_they_do_without_balanced_while_keys_move(
    stream: Callable[[int], DataFrame], begin_keyed: Callable[..., Run], tmp_path: Path
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
    run = begin_keyed(lambda frame: frame.transformWithState(*modes))
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
    begin_keyed: Callable[..., Run],
    tmp_path: Path,
) -> None:
    run = begin_keyed(transform)
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
    begin_keyed: Callable[..., Run],
    tmp_path: Path,
) -> None:
    modes = HELD, "n long", "update", "ProcessingTimeTimeout"
    data = with_large(users(stream(ROWS)))
    run = begin_keyed(lambda frame: frame.applyInPandasWithState(hold, *modes), data=data)
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
