"""Routes of plans come true, key by key, and what does not come is given up with a reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import DataType, DoubleType, StringType, StructField, StructType
from scripted import RecordingSpectator

from balancedstream.core.epochs import Arrival, Epoch, Piece, Wish
from balancedstream.core.hotkeys import HotKeySketch
from balancedstream.core.keys import name_key
from balancedstream.core.observations import BatchSample, KeySample
from balancedstream.core.plan import KeyPlacement, Plan
from balancedstream.engine.events import BatchFinished, StatefulOperator
from balancedstream.errors import InvalidInputError
from balancedstream.keyed.control import KeyControl, forget_controls
from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.mailbox import Mailbox
from balancedstream.keyed.storage import Home, describe_offset
from balancedstream.loop.reassigning import PATIENCE_BATCHES, SWITCH_BATCHES, KeyReassigner
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo

PARTITIONS = 6
SHARE = 7
OPERATOR = StatefulOperator((0,), "TransformWithStateInPySpark", PARTITIONS)
DE, FR = '"de"', '"fr"'


class Stream:
    """One balanced query whose batches are made by hand."""

    def __init__(self, folder: Path, *key_types: DataType) -> None:
        self.folder = folder
        self.view = RecordingSpectator()
        self.history = History(RunInfo("test", 0.0, 2, "4.3.0", "3.11"))
        self.exporter = Exporter()
        self.reassigner = KeyReassigner(
            Journal(self.history, self.view, self.exporter, lambda: 0.0)
        )
        context: Any = SimpleNamespace(accumulator=lambda value, param: None)
        types = key_types or (StringType(),)
        fields = [StructField(f"k{at}", of_type) for at, of_type in enumerate(types)]
        encoding = KeyEncoding(StructType(fields))
        self.control = KeyControl(context, "keys", encoding)
        self.batch = -1
        self.run_id = "r"

    def settling(self) -> set[str]:
        return set(self.reassigner.state().settling)

    def run_batch(self, epoch: Epoch, hot: Mapping[str, tuple[int, float]] | None = None) -> None:
        """A batch with this epoch; hot keys are in a partition for so many seconds."""
        self.batch += 1
        table = Home(str(self.folder), "keys").write_epoch(epoch)
        offset = json.dumps(describe_offset("keys", table, epoch.number))
        (self.folder / "offsets").mkdir(exist_ok=True)
        (self.folder / "offsets" / str(self.batch)).write_text(f"v1\n{{}}\n{offset}\n")
        for partition in range(PARTITIONS):
            sketch = HotKeySketch(0.01)
            for key, (place, busy_s) in (hot or {}).items():
                if place == partition:
                    sketch.update(key.encode(), busy_s)
            report = {
                "query": "q", "run": self.run_id, "checkpoint": str(self.folder),
                "batch": self.batch, "partition": partition, "attempt": partition,
                "keys": sketch.to_json(),
                "handoffs": 2, "handoff_s": 0.5,
            }  # fmt: skip
            self.control._take(report)
        sample = BatchSample("q", self.batch, 0.0, 1.0, 1)
        self.reassigner.finish_batch(BatchFinished("q", sample, (), (OPERATOR,), 0))

    def plan(self, *routes: tuple[str, int], effective_batch: int | None = None) -> None:
        named = tuple(KeyPlacement("q", *route) for route in routes)
        plan = Plan(1, (), {}, "fluid", key_placements=named, effective_batch=effective_batch)
        self.reassigner.check(plan)
        self.reassigner.apply(plan, SHARE, {"q": "two hot keys"})

    def wish(self) -> Wish | None:
        return Mailbox(self.control.folder).read_wish()

    def route(self, key: str, partition: int) -> int:
        return self.control.encoding.find_route(key, partition, PARTITIONS)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    stream = Stream(tmp_path)
    stream.run_batch(Epoch(), {DE: (5, 2.0), FR: (1, 1.0)})
    return stream


def test_the_hottest_keys_are_told_with_their_partition(stream: Stream) -> None:
    samples = stream.reassigner.state().samples["q"]
    assert [(s.key, s.partition, s.busy_s) for s in samples] == [(DE, 5, 2.0), (FR, 1, 1.0)]


def test_what_handing_keys_over_took_is_told_of_all_tasks_together(stream: Stream) -> None:
    assert stream.reassigner.handed_over("q") == (2 * PARTITIONS, 0.5 * PARTITIONS)
    assert stream.reassigner.handed_over("unknown") == (0, 0.0)


def test_a_key_is_under_way_until_its_epoch_has_it_where_it_shall_be(stream: Stream) -> None:
    target = stream.route(DE, 2)
    stream.plan((DE, 2))
    assert stream.wish() == Wish({DE: target}, "hybrid", SHARE)
    assert stream.settling() == {"q"}
    stream.run_batch(Epoch(1, 1, asked=(DE,)))
    assert stream.settling() == {"q"}
    stream.run_batch(Epoch(2, 2, {DE: target}, {DE: Arrival(0, Piece("f", 0, 0))}))
    assert (stream.settling(), stream.reassigner.state().last_arrivals["q"]) == (set(), 2)
    assert stream.view.notes[-1] == 'q: key "de" arrived in batch 2'


def test_the_hottest_keys_are_asked_for_first_and_those_of_unknown_load_last(
    stream: Stream,
) -> None:
    stream.run_batch(Epoch(), {'"y"': (4, 1.0), '"z"': (4, 2.0)})
    stream.plan(*((f'"{name}"', 2) for name in "abyz"))
    wish = stream.wish()
    assert wish is not None
    assert [*wish.routes] == ['"z"', '"y"', '"a"', '"b"']


def test_a_key_that_is_prepared_for_a_batch_waits_for_it_and_can_be_withdrawn(
    stream: Stream,
) -> None:
    far = 3 * PATIENCE_BATCHES
    routes = (KeyPlacement("q", DE, 2),)
    stream.reassigner.apply(Plan(1, (), {}, "fluid", routes, effective_batch=far), SHARE, {})
    assert stream.wish() == Wish({DE: stream.route(DE, 2)}, "hybrid", SHARE, far)
    for _ in range(PATIENCE_BATCHES + 1):
        stream.run_batch(Epoch())
    assert (stream.settling(), stream.reassigner.state().immovable["q"]) == ({"q"}, set())
    stream.reassigner.apply(Plan(2, (), {}, "fluid"), SHARE, {})
    assert stream.wish() == Wish({}, "hybrid", SHARE)
    (withdrawn,) = stream.history.key_moves
    assert withdrawn.dropped_reason == "withdrawn before the key moved"
    stream.run_batch(Epoch())
    assert (stream.settling(), stream.reassigner.state().last_arrivals["q"]) == (set(), -1)


def test_the_history_has_each_hot_key_and_where_it_went(stream: Stream) -> None:
    stream.plan((DE, 2))
    (begun,) = stream.history.key_moves
    home = stream.control.encoding.find_partition(DE, 0, PARTITIONS)
    assert (begun.source, begun.target, begun.reason) == (home, 2, "two hot keys")
    assert begun.under_way()
    stream.run_batch(Epoch(1, 1, asked=(DE,)), {DE: (home, 3.0)})
    at = stream.route(DE, 2)
    stream.run_batch(Epoch(2, 2, {DE: at}, {DE: Arrival(0, Piece("f", 0, 0))}), {DE: (2, 4.0)})
    (settled,) = stream.history.key_moves
    assert settled.settled_batch == 2
    told = [(s.batch, s.partition, s.busy_s) for s in stream.history.key_samples if s.key == DE]
    assert told == [(0, 5, 2.0), (1, home, 3.0), (2, 2, 4.0)]
    stream.plan((DE, 4))
    back = stream.history.key_moves[-1]
    assert (back.source, back.target, back.decided_after_batch) == (2, 4, 2)


def test_history_and_notes_have_keys_hashed_where_metrics_may_not_show_them() -> None:
    history = History(RunInfo("test", 0.0, 2, "4.3.0", "3.11"))
    view = RecordingSpectator()
    journal = Journal(history, view, Exporter(hot_keys="hashed"), lambda: 7.0)
    hashed = name_key(DE, "hashed")
    journal.add_hot_keys("q", 0, (KeySample("q", 0, DE, 5, 1, 2.0),), set())
    journal.begin_key_moves(("q", 0), {DE: (5, 2)}, "two hot keys", 1)
    journal.settle_key_move("q", DE, 3)
    assert [sample.key for sample in history.key_samples] == [hashed]
    assert [(move.key, move.settled_batch) for move in history.key_moves] == [(hashed, 3)]
    assert view.notes == [
        f"q: keys move to another state partition: {hashed} to 2",
        f"q: key {hashed} arrived in batch 3",
    ]


def want_in_vain(stream: Stream) -> None:
    """A plan's key is asked for until it is given up."""
    stream.plan((DE, 2))
    for number in range(PATIENCE_BATCHES):
        stream.run_batch(Epoch(number + 1, number + 1, asked=(DE,)))


def test_keys_that_do_not_come_are_given_up_and_not_asked_again(stream: Stream) -> None:
    want_in_vain(stream)
    assert stream.wish() == Wish()
    assert stream.settling() == set()
    assert "1 keys stay where they are" in stream.view.notes[-1]
    (dropped,) = stream.history.key_moves
    assert dropped.dropped_reason == "their state was not handed over within 10 batches"
    stream.control.want(Wish({FR: 1}))
    stream.plan((DE, 2))
    assert stream.wish() == Wish({}, "hybrid", SHARE), "a plan is told anew after that"
    stream.run_batch(Epoch(), {DE: (5, 2.0), FR: (1, 1.0)})
    assert stream.reassigner.state().immovable["q"] == {DE}
    shown = [
        sample.labels["key"]
        for family in stream.exporter.collect()
        for sample in family.samples
        if sample.name == "balancedstream_hot_key_busy_seconds"
    ]
    assert shown == [FR], "whoever decides by the metrics shall not count on the other"


def test_what_was_given_up_is_asked_for_again_after_many_batches(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("balancedstream.loop.reassigning.GIVEN_UP_BATCHES", 3)
    want_in_vain(stream)
    epoch = Epoch(PATIENCE_BATCHES + 1, PATIENCE_BATCHES + 1)
    for _ in range(3):
        stream.run_batch(epoch)
        assert stream.reassigner.state().immovable["q"] == {DE}
    assert stream.wish() == Wish()
    stream.run_batch(epoch)
    assert stream.reassigner.state().immovable["q"] == set()
    assert stream.settling() == {"q"}
    assert stream.wish() == Wish({DE: stream.route(DE, 2)}, "hybrid", SHARE)


def test_what_was_given_up_is_asked_for_again_once_the_checkpoint_can_be_read(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("balancedstream.loop.reassigning.GIVEN_UP_BATCHES", 0)
    want_in_vain(stream)
    unplanned = BatchSample("q", 99, 0.0, 1.0, 1)
    stream.reassigner.finish_batch(BatchFinished("q", unplanned, (), (OPERATOR,), 0))
    assert stream.reassigner.state().immovable["q"] == {DE}
    stream.run_batch(Epoch(PATIENCE_BATCHES + 1, PATIENCE_BATCHES + 1))
    assert stream.settling() == {"q"}


def test_what_can_never_be_is_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("balancedstream.loop.reassigning.GIVEN_UP_BATCHES", 0)
    forget_controls("q")
    stream = Stream(tmp_path)
    stream.plan(("null", 2))
    for number in range(3):
        stream.run_batch(Epoch(number + 1, number + 1))
    assert len(stream.view.notes) == 1
    assert "key null stays" in stream.view.notes[0]
    assert stream.reassigner.state().immovable["q"] == {"null"}


def test_where_keys_can_not_even_be_given_up_that_is_told_and_the_query_is_looked_after(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.plan((DE, 2))
    monkeypatch.setattr("balancedstream.keyed.control.MAX_KEYS", 0)
    at = {FR: stream.route(FR, 3)}
    for number in range(PATIENCE_BATCHES):
        stream.run_batch(Epoch(number + 1, number + 1, at, asked=(DE,)))
    assert "cannot take back the request for its keys" in stream.view.notes[-2]
    assert stream.reassigner.state().immovable["q"] == {DE}


def test_a_checkpoint_that_cannot_be_read_hides_where_keys_are_until_the_next_batch(
    stream: Stream,
) -> None:
    stream.plan((DE, 2))
    unplanned = BatchSample("q", 99, 0.0, 1.0, 1)
    stream.reassigner.finish_batch(BatchFinished("q", unplanned, (), (OPERATOR,), 0))
    assert stream.view.notes[-1].startswith("q: cannot read where its keys are: ")
    assert stream.settling() == {"q"}
    at = stream.route(DE, 2)
    stream.run_batch(Epoch(1, 1, {DE: at}, {DE: Arrival(0, Piece("f", 0, 0))}))
    assert stream.settling() == set()


def test_what_the_driver_cannot_write_down_is_told_and_comes_true_with_the_next_plan(
    stream: Stream,
) -> None:
    shutil.rmtree(stream.control.folder)
    stream.plan((DE, 2))
    assert stream.view.notes[-1].startswith("q: its keys stay where they are: ")
    assert (stream.settling(), stream.history.key_moves) == (set(), ())
    stream.control.folder.mkdir()
    stream.plan((DE, 2))
    assert stream.wish() == Wish({DE: stream.route(DE, 2)}, "hybrid", SHARE)
    assert stream.settling() == {"q"}


def test_what_was_given_up_is_not_asked_for_when_the_query_begins_again(stream: Stream) -> None:
    stream.plan((DE, 2), (FR, 3))
    at = {FR: stream.route(FR, 3)}
    for number in range(PATIENCE_BATCHES):
        stream.run_batch(Epoch(number + 1, number + 1, at, asked=(DE,)))
    stream.reassigner.end_query("q")
    stream.run_id = "r2"
    stream.run_batch(Epoch(PATIENCE_BATCHES + 1, 0, at))
    assert stream.reassigner.state().placements == (KeyPlacement("q", FR, 3),)
    assert stream.wish() == Wish(at, "hybrid", SHARE)
    assert stream.settling() == set()


def test_what_a_plan_wants_of_a_query_that_begins_later_counts_more_than_its_checkpoint(
    tmp_path: Path,
) -> None:
    stream = Stream(tmp_path)
    stream.plan((DE, 4), ("#0123456789abcdef", 3))
    stream.run_batch(Epoch(7, 0, {DE: stream.route(DE, 2), FR: stream.route(FR, 1)}))
    wanted = {DE: stream.route(DE, 4), FR: stream.route(FR, 1)}
    assert stream.wish() == Wish(wanted, "hybrid", SHARE)
    assert stream.settling() == {"q"}


def test_after_a_restart_keys_stay_where_the_checkpoint_has_them(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    at = stream.route(DE, 2)
    stream.run_batch(Epoch(7, 0, {DE: at}))
    assert stream.reassigner.state().placements == (KeyPlacement("q", DE, 2),)
    assert stream.wish() is None
    stream.plan((FR, 3))
    assert stream.wish() == Wish({DE: at, FR: stream.route(FR, 3)}, "hybrid", SHARE)


def test_a_plan_that_has_no_room_for_more_sends_those_keys_home_that_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("balancedstream.loop.reassigning.MAX_KEY_PLACEMENTS", 2)
    stream = Stream(tmp_path)
    cold, target = '"nl"', stream.route(FR, 3)
    at = {DE: stream.route(DE, 2), cold: stream.route(cold, 1)}
    stream.run_batch(Epoch(7, 0, at))
    stream.plan((FR, 3))
    assert stream.wish() == Wish({**at, FR: target}, "hybrid", SHARE)
    stream.plan((DE, 2), (FR, 3))
    assert stream.wish() == Wish({DE: at[DE], FR: target}, "hybrid", SHARE)
    assert stream.reassigner.state().placements == (
        KeyPlacement("q", DE, 2),
        KeyPlacement("q", FR, 3),
    )


def test_what_a_person_wants_holds_until_a_plan_routes_keys(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    by_hand = Wish({FR: stream.route(FR, 3)})
    stream.control.want(by_hand)
    stream.run_batch(Epoch())
    stream.plan()
    assert stream.wish() == by_hand
    stream.plan((DE, 2))
    assert stream.wish() == Wish({DE: stream.route(DE, 2)}, "hybrid", SHARE)


def test_a_newer_plan_changes_when_keys_arrive_and_how_many_at_once(stream: Stream) -> None:
    routes = {DE: stream.route(DE, 2)}
    stream.plan((DE, 2), effective_batch=100)
    assert stream.wish() == Wish(routes, "hybrid", SHARE, effective_batch=100)
    stream.plan((DE, 2))
    assert stream.wish() == Wish(routes, "hybrid", SHARE)
    (move,) = stream.history.key_moves
    assert not move.dropped_reason


def test_what_was_wanted_of_a_run_before_is_not_wanted_of_the_next_one(stream: Stream) -> None:
    stream.plan((DE, 2))
    stream.reassigner.end_query("q")
    stream.plan()
    stream.run_id = "r2"
    stream.run_batch(Epoch())
    assert stream.wish() == Wish({}, "hybrid", SHARE)


def test_a_query_that_begins_before_the_end_of_its_last_run_is_told_keeps_its_keys_in_hand(
    stream: Stream,
) -> None:
    stream.run_id = "r2"
    stream.run_batch(Epoch(), {DE: (5, 2.0)})
    stream.reassigner.end_query("q")
    stream.run_batch(Epoch(), {DE: (5, 2.0)})
    assert [hot.key for hot in stream.reassigner.state().samples["q"]] == [DE]
    stream.plan((DE, 2))
    assert stream.settling() == {"q"}


def test_a_hashed_key_is_found_once_it_is_hot(stream: Stream) -> None:
    late = '"nl"'
    hashed = name_key(late, "hashed")
    stream.plan((str(hashed), 2))
    assert stream.wish() is None
    stream.run_batch(Epoch())
    assert stream.view.notes == [
        f"q: no key that is hot now or was reassigned matches {hashed}; a key that a plan names by "
        "its hash goes to its partition once it is hot"
    ]
    stream.run_batch(Epoch(), {late: (4, 2.0)})
    assert stream.wish() == Wish({late: stream.route(late, 2)}, "hybrid", SHARE)


def test_keys_under_way_come_in_shares_and_the_history_knows_when_the_query_ended(
    stream: Stream,
) -> None:
    assert stream.reassigner.coming_batches("q") == 0
    keys = [f'"u{n}"' for n in range(SHARE + 5)]
    away = [key for key in keys if stream.route(key, 2)]
    at_home = [key for key in keys if not stream.route(key, 2)]
    stream.plan(*((key, 2) for key in (*away[: SHARE + 1], *at_home)))
    assert stream.reassigner.coming_batches("q") == SWITCH_BATCHES + 1
    assert {move.key for move in stream.history.key_moves} == {*away[: SHARE + 1]}
    stream.reassigner.end_query("q")
    assert {move.dropped_reason for move in stream.history.key_moves} == {"the query ended"}


def test_a_plan_may_speak_of_keys_that_it_only_knows_hashed(stream: Stream) -> None:
    stream.plan((str(name_key(DE, "hashed")), 2), ("#0123456789abcdef", 3))
    assert stream.wish() == Wish({DE: stream.route(DE, 2)}, "hybrid", SHARE)


def test_a_key_that_is_none_of_the_query_is_refused_by_its_name(stream: Stream) -> None:
    with pytest.raises(InvalidInputError, match="key de: is no key of this stream"):
        stream.plan(("de", 2))
    assert stream.wish() is None


def test_a_partition_that_is_not_there_is_refused_by_the_key(stream: Stream) -> None:
    with pytest.raises(InvalidInputError, match='key "de" cannot go to partition 6: q has 6'):
        stream.plan((DE, PARTITIONS))
    assert stream.wish() is None


def test_of_what_was_planned_before_the_query_was_known_only_what_cannot_be_is_left_out(
    tmp_path: Path,
) -> None:
    stream = Stream(tmp_path)
    stream.reassigner.end_query("q")
    stream.plan((DE, PARTITIONS), (FR, 2), ("null", 3))
    stream.run_batch(Epoch())
    assert stream.wish() == Wish({FR: stream.route(FR, 2)}, "hybrid", SHARE)
    assert stream.view.notes == [
        'q: key "de" stays: partition: must be an integer from 0 to 5, not 6',
        "q: key null stays: key null: rows without a key are never moved; nothing changed",
        'q: keys move to another state partition: "fr" to 2',
    ]
    stream.run_batch(Epoch())
    assert len(stream.view.notes) == 3


@pytest.mark.parametrize(
    ("never", "why"),
    [('["de","NaN"]', "NaN is never moved"), ('["de",0.0]', "a float or double is never moved")],
)
def test_a_key_that_may_not_move_stays_where_its_checkpoint_has_it(
    tmp_path: Path, never: str, why: str
) -> None:
    stream = Stream(tmp_path, StringType(), DoubleType())
    free = '["fr",0.5]'
    place = 3
    route = stream.route(never, place)
    with pytest.raises(InvalidInputError, match=why):
        stream.control.find_routes({never: place}, PARTITIONS)
    stream.run_batch(Epoch(routes={never: route}), {never: (place, 9.0), free: (1, 1.0)})
    assert stream.reassigner.state().immovable["q"] == {never}
    adopted = [(kept.key, kept.partition) for kept in stream.reassigner.state().placements]
    assert adopted == [(never, place)]
    stream.plan(*adopted, (free, 2))
    wish = Wish({free: stream.route(free, 2), never: route}, "hybrid", SHARE)
    assert stream.wish() == wish
    with pytest.raises(InvalidInputError, match=why):
        stream.plan((never, place + 1))
    assert stream.wish() == wish


def test_rows_without_a_key_are_known_to_stay_however_hot_they_are(stream: Stream) -> None:
    stream.run_batch(Epoch(), {"null": (0, 9.0), DE: (5, 2.0)})
    assert [hot.key for hot in stream.reassigner.state().samples["q"]] == ["null", DE]
    assert stream.reassigner.state().immovable["q"] == {"null"}


def test_of_a_partition_that_two_attempts_reported_no_state_counts(stream: Stream) -> None:
    report = {
        "query": "q", "run": "r", "checkpoint": str(stream.folder), "batch": 1, "partition": 0,
        "keys": HotKeySketch(0.01).to_json(), "file": "f", "pieces": {DE: (0, 9)},
        "handoffs": 1, "handoff_s": 0.25,
    }  # fmt: skip
    mailbox = Mailbox(stream.control.folder)
    stream.control._take(report | {"attempt": 1})
    assert [export.pieces for export in mailbox.read_exports()] == [{DE: (0, 9)}]
    stream.control._take(report | {"attempt": 2, "file": "g"})
    assert mailbox.read_exports() == ()
