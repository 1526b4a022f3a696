from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_runs import Scenario

from balancedstream.core.samples import KeySample, ShuffleRecord
from balancedstream.errors import InvalidInputError
from balancedstream.record import history as history_module
from balancedstream.record import stores
from balancedstream.record.history import History
from balancedstream.record.history_lines import read_history, write_history
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    KeyMoveRecord,
    MoveRecord,
    OperatorBatchLoad,
    Preparations,
    RestartRecord,
    RunInfo,
    ScaleRecord,
)

RUN = RunInfo("app.py", 1_000.0, 2, "4.3.0", "3.11.7", {"act_above": 1.2})


def load(partitions: int = 2, operator: int = 0) -> OperatorBatchLoad:
    executors = tuple(str(partition % 2) for partition in range(partitions))
    return OperatorBatchLoad(operator, "save", (1.0,) * partitions, executors, 1.5, 1.1)


def batch(number: int, query: str = "q", partitions: int = 2) -> BatchRecord:
    return BatchRecord(query, number, 1_000.0 + number, 500, 10, None, 2, (load(partitions),))


def move(partition: int, decided_s: float = 1_001.0, query: str = "q") -> MoveRecord:
    return MoveRecord(query, 0, partition, "0", "1", decided_s, "hot", 1)


def key_move(key: str, decided_s: float = 1_001.0) -> KeyMoveRecord:
    return KeyMoveRecord("q", 0, key, 0, 1, decided_s, "hot", 1)


def same(left: History, right: History) -> None:
    for part in (
        "run", "totals", "queries", "batches", "moves", "key_samples", "key_moves", "scales",
        "decisions", "restarts", "shuffles",
    ):  # fmt: skip
        assert getattr(left, part) == getattr(right, part), part


def test_loads_per_executor_skip_partitions_that_no_task_reported() -> None:
    reported = OperatorBatchLoad(0, "save", (1.0, 2.0, 0.0, 4.0), ("0", "1", "", "0"), 1.0, 1.0)
    assert reported.executor_busy_s() == {"0": 5.0, "1": 2.0}


def test_counters_cover_the_whole_run_while_records_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stores, "OPENING_BATCHES", 5)
    monkeypatch.setattr(stores, "RECENT_BATCHES", 20)
    history = History(RUN)
    for number in range(1_000):
        history.add_batch(batch(number))
    assert [b.batch for b in history.batches] == [*range(5), *range(980, 1_000)]
    assert history.totals.batches == 1_000
    assert history.totals.rows == 10_000
    assert history.queries[0].operator_busy_s == {0: 2_000.0}


def test_each_query_keeps_its_own_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "OPENING_BATCHES", 3)
    monkeypatch.setattr(stores, "RECENT_BATCHES", 4)
    history = History(RUN)
    for number in range(50):
        history.add_batch(batch(number, "early"))
    for number in range(50):
        history.add_batch(batch(number, "late"))
    kept = [(b.query, b.batch) for b in history.batches]
    assert kept == [
        *(("early", n) for n in range(3)),
        *(("late", n) for n in range(3)),
        *(("late", n) for n in range(46, 50)),
    ]


def test_older_batches_lose_their_partitions_but_not_their_imbalance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stores, "OPENING_BATCHES", 2)
    monkeypatch.setattr(stores, "RECENT_MEASUREMENTS", 100)
    history = History(RUN)
    for number in range(30):
        history.add_batch(batch(number, partitions=20))
    batches = history.batches
    assert len(batches) == 30
    assert [b.batch for b in batches if b.measurements()] == [0, 1, 25, 26, 27, 28, 29]
    assert {b.loads[0].imbalance for b in batches} == {1.5}
    assert {b.loads[0].bound for b in batches} == {1.1}


def test_an_opening_too_large_for_its_budget_is_kept_as_long_as_it_is_recent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stores, "OPENING_BATCHES", 10)
    monkeypatch.setattr(stores, "OPENING_MEASUREMENTS", 40)
    monkeypatch.setattr(stores, "RECENT_BATCHES", 10)
    history = History(RUN)
    for number in range(12):
        history.add_batch(batch(number, partitions=20))
    assert [b.measurements() for b in history.batches] == [20] * 12
    for number in range(12, 40):
        history.add_batch(batch(number, partitions=20))
    assert [b.batch for b in history.batches] == [*range(10), *range(30, 40)]
    assert [b.measurements() > 0 for b in history.batches] == [True] * 2 + [False] * 8 + [True] * 10


def test_the_newest_batch_keeps_its_partitions_however_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stores, "OPENING_MEASUREMENTS", 10)
    monkeypatch.setattr(stores, "RECENT_MEASUREMENTS", 10)
    history = History(RUN)
    for number in range(3):
        history.add_batch(batch(number, partitions=50))
    assert [b.measurements() for b in history.batches] == [0, 0, 50]


def test_only_the_queries_heard_of_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "KEPT_QUERIES", 3)
    history = History(RUN)
    for i in range(10):
        history.add_batch(batch(0, f"q{i}"))
        history.add_batch(batch(i, "steady"))
    assert [query.query for query in history.queries] == ["steady", "q8", "q9"]
    assert history.totals.batches == 20


def test_a_move_is_under_way_until_it_settles() -> None:
    history = History(RUN)
    history.add_move(move(7))
    assert history.moves[0].under_way()
    settled = history.settle_move(("q", 0, 7), settled_s=1_005.0, restore_s=0.25)
    assert settled == replace(move(7), settled_s=1_005.0, restore_s=0.25)
    assert history.moves == (settled,)
    assert (history.totals.moves, history.totals.moves_settled) == (1, 1)


def test_settling_or_dropping_what_is_not_under_way_changes_nothing() -> None:
    history = History(RUN)
    history.add_move(move(7))
    history.settle_move(("q", 0, 7), settled_s=1_005.0, restore_s=None)
    assert history.settle_move(("q", 0, 7), settled_s=1_006.0, restore_s=None) is None
    assert history.drop_move(("q", 0, 8), dropped_s=1_006.0, reason="gone") is None
    assert (history.totals.moves_settled, history.totals.moves_dropped) == (1, 0)


def test_a_newer_move_of_the_same_partition_drops_the_older_one() -> None:
    history = History(RUN)
    history.add_move(move(7))
    history.add_move(move(7, decided_s=1_003.0))
    older, newer = history.moves
    assert older.dropped_s == 1_003.0
    assert "newer" in (older.dropped_reason or "")
    assert newer.under_way()
    assert (history.totals.moves, history.totals.moves_dropped) == (2, 1)


def test_moves_are_bounded_and_the_first_one_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "KEPT_MOVES", 10)
    history = History(RUN)
    for partition in range(100):
        history.add_move(replace(move(partition), decided_after_batch=partition + 4))
    assert [m.partition for m in history.moves] == [*range(90, 100)]
    assert history.queries[0].first_move_after_batch == 4
    assert history.settle_move(("q", 0, 3), settled_s=1.0, restore_s=None) is None


def test_a_key_is_under_way_until_it_is_there_or_stays() -> None:
    history = History(RUN)
    for key in ("de", "fr", "it"):
        history.add_key_move(key_move(key))
    settled = history.settle_key_move("q", "de", settled_s=1_005.0, settled_batch=4)
    assert settled == replace(key_move("de"), settled_s=1_005.0, settled_batch=4)
    dropped = history.drop_key_move("q", "fr", dropped_s=1_006.0, reason="not handed over")
    assert dropped is not None
    assert [move.under_way() for move in history.key_moves] == [False, False, True]
    assert history.settle_key_move("q", "fr", settled_s=1_007.0, settled_batch=5) is None
    history.add_key_move(key_move("it", decided_s=1_008.0))
    assert "newer" in (history.key_moves[2].dropped_reason or "")
    assert (history.totals.key_moves, history.totals.key_moves_settled) == (4, 1)
    assert history.queries[0].first_move_after_batch == 1


def test_what_is_kept_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "KEPT_KEY_MOVES", 10)
    monkeypatch.setitem(history_module.KEPT, KeySample, 20)
    history = History(RUN)
    for number in range(100):
        history.add_key_move(key_move(f"k{number}"))
        history.add_key_samples([KeySample("q", 0, f"k{number}", 0, number, 0.5)])
    assert [move.key for move in history.key_moves] == [f"k{n}" for n in range(90, 100)]
    assert [sample.batch for sample in history.key_samples] == [*range(80, 100)]
    assert history.totals.key_moves == 100
    same(read_history(write_history(history)), history)


def test_a_restart_is_counted_for_its_query() -> None:
    history = History(RUN)
    history.add_restart(RestartRecord(1_001.0, "q", "the job started it again"))
    assert history.totals.restarts == history.queries[0].restarts == 1


def test_a_simulated_run_survives_the_round_trip(
    simulate: Callable[..., History], scenario: type[Scenario]
) -> None:
    history = simulate(scenario(shift_at=30, grow_at=40), scenario(query="two", seed=2))
    history.add_restart(RestartRecord(1.0, "two", "again"))
    same(read_history(write_history(history)), history)


def test_a_trimmed_history_survives_the_round_trip_with_its_counters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stores, "OPENING_BATCHES", 3)
    monkeypatch.setattr(stores, "RECENT_BATCHES", 10)
    monkeypatch.setattr(stores, "RECENT_MEASUREMENTS", 12)
    monkeypatch.setattr(history_module, "KEPT_MOVES", 5)
    monkeypatch.setattr(history_module, "KEPT_QUERIES", 2)
    history = History(RUN)
    for number in range(40):
        history.add_batch(batch(number, f"q{number % 5}"))
        history.add_move(move(number, query=f"q{number % 5}"))
    read = read_history(write_history(history))
    same(read, history)


def test_what_was_loaded_ahead_survives_the_round_trip_and_an_older_file_has_none() -> None:
    history = History(RUN)
    history.add_preparation("used", 1000, 2.5)
    history.add_preparation("wasted", 10, 0.5)
    *lines, totals = write_history(history)
    counted = read_history([*lines, totals]).totals.preparations
    assert counted == {
        "used": Preparations(1, 1000, 2.5),
        "wasted": Preparations(1, 10, 0.5),
        "failed": Preparations(),
    }
    older = json.loads(totals)
    del older["preparations"]
    read = read_history([*lines, json.dumps(older)])
    assert read.totals.preparations == dict.fromkeys(counted, Preparations())


def test_a_history_that_was_read_goes_on_where_it_stopped() -> None:
    history = History(RUN)
    history.add_preparation("used", 1000, 2.5)
    for partition in range(3):
        history.add_move(move(partition))
    history.settle_move(("q", 0, 0), settled_s=1_002.0, restore_s=0.1)
    read = read_history(write_history(history))
    for each in (history, read):
        each.add_preparation("used", 500, 0.5)
        each.settle_move(("q", 0, 2), settled_s=1_003.0, restore_s=0.2)
        each.add_move(move(1, decided_s=1_004.0))
        each.add_batch(batch(5))
    same(read, history)


Record = (
    BatchRecord
    | MoveRecord
    | KeyMoveRecord
    | KeySample
    | ScaleRecord
    | DecisionRecord
    | RestartRecord
    | ShuffleRecord
)
names = st.text(max_size=8)
numbers = st.floats(allow_nan=False)


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.builds(
                BatchRecord,
                names,
                st.integers(0, 10**9),
                numbers,
                st.integers(0, 10**9),
                st.integers(0, 10**12),
                st.none() | numbers,
                st.integers(0, 1_000),
                st.lists(
                    st.builds(
                        OperatorBatchLoad,
                        st.integers(0, 3),
                        names,
                        st.just((0.5, 1.5)),
                        st.tuples(names, names),
                        numbers,
                        numbers,
                    ),
                    max_size=2,
                ).map(tuple),
            ),
            st.builds(
                MoveRecord, names, st.integers(0, 3), st.integers(0, 3), names, names, numbers,
                names, st.integers(0, 99), st.none() | numbers, st.none() | numbers,
            ),
            st.builds(
                KeyMoveRecord, names, st.integers(0, 3), names, st.integers(0, 3),
                st.integers(0, 3), numbers, names, st.integers(0, 99), st.none() | numbers,
                st.none() | st.integers(0, 99), st.none() | numbers,
            ),
            st.builds(
                KeySample, names, st.integers(0, 3), names, st.integers(0, 3), st.integers(0, 99),
                numbers,
            ),
            st.builds(ScaleRecord, numbers, st.integers(), st.integers(), names, names),
            st.builds(
                DecisionRecord, numbers, names, st.none() | st.integers(0, 3), st.just("hold"),
                names, st.none() | numbers, st.none() | numbers, st.integers(0, 9),
            ),
            st.builds(RestartRecord, numbers, names, names),
            st.builds(
                ShuffleRecord, numbers, names, st.integers(0, 9), st.integers(0, 9), st.booleans(),
                st.tuples(numbers, numbers), st.tuples(numbers), st.none() | numbers,
                st.none() | numbers, st.booleans(), names,
            ),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_any_record_survives_the_round_trip(records: list[Record]) -> None:
    history = History(RUN)
    for record in records:
        match record:
            case BatchRecord():
                history.add_batch(record)
            case MoveRecord():
                history.add_move(record)
            case KeyMoveRecord():
                history.add_key_move(record)
            case KeySample():
                history.add_key_samples([record])
            case ScaleRecord():
                history.add_scale(record)
            case DecisionRecord():
                history.add_decision(record)
            case RestartRecord():
                history.add_restart(record)
            case ShuffleRecord():
                history.add_shuffle(record)
    lines = list(write_history(history))
    assert list(write_history(read_history(lines))) == lines


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda lines: ["{"], r"line 1: line: not JSON"),
        (lambda lines: ["[]"], r"line 1: line: not a JSON object"),
        (lambda lines: lines[1:], r"line 1: record: 'batch' is not expected"),
        (lambda lines: [lines[0].replace('"format": 1', '"format": 9')], r"line 1: format"),
        (lambda lines: [lines[0], lines[0]], r"line 2: record: 'run' is not expected"),
        (lambda lines: [lines[0], '{"record": "batsh"}'], r"line 2: record: 'batsh'"),
        (lambda lines: [lines[0], '{"record": "move", "colour": 1}'], r"line 2: colour: unknown"),
        (lambda lines: [lines[0], '{"record": "batch", "batch": 1}'], r"line 2: batch: .*loads"),
        (lambda lines: [*lines[:-1], '{"record": "totals", "preparations": 7}'], r"totals: field"),
        (lambda lines: lines[:-1], r"cut short"),
        (lambda lines: [], r"cut short"),
    ],
)
def test_a_damaged_history_is_refused_with_the_line_and_field(
    damage: Callable[[list[str]], list[str]], named: str
) -> None:
    history = History(RUN)
    history.add_batch(batch(0))
    with pytest.raises(InvalidInputError, match=named):
        read_history(damage(list(write_history(history))))


def test_lines_are_json_with_the_record_named() -> None:
    history = History(RUN)
    history.add_batch(batch(0))
    kinds = [json.loads(line)["record"] for line in write_history(history)]
    assert kinds == ["run", "batch", "query", "totals"]


def test_a_history_can_be_read_while_it_grows() -> None:
    history = History(RUN)

    def grow() -> None:
        for number in range(2_000):
            history.add_batch(batch(number))
            history.add_move(move(number))

    writer = threading.Thread(target=grow)
    writer.start()
    while writer.is_alive():
        numbers_seen = [b.batch for b in history.batches]
        assert numbers_seen == sorted(numbers_seen)
        assert len(history.moves) <= history.totals.moves
    writer.join()
    assert history.totals.batches == 2_000
