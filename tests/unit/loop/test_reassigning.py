"""Keys that a plan or a person places elsewhere arrive, and are told of while under way."""

from __future__ import annotations

import errno
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from keyed_stream import DE, FR, PARTITIONS, SHARE, Stream
from scripted import RecordingSpectator

from balancedstream.core.keys.epochs import Arrival, Epoch, Piece, Wish
from balancedstream.core.keys.hotkeys import HotKeySketch
from balancedstream.core.keys.text import name_key
from balancedstream.core.samples import KeySample
from balancedstream.core.wire.plan import KeyPlacement, Plan
from balancedstream.keyed import mailbox as mailboxes
from balancedstream.keyed.mailbox import Mailbox
from balancedstream.loop.reassigning import PATIENCE_BATCHES, SWITCH_BATCHES
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo


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
    stream.reassigner.apply(Plan(1, (), {}, routes, effective_batch=far), SHARE, {})
    assert stream.wish() == Wish({DE: stream.route(DE, 2)}, "hybrid", SHARE, far)
    for _ in range(PATIENCE_BATCHES + 1):
        stream.run_batch(Epoch())
    assert (stream.settling(), stream.reassigner.state().immovable["q"]) == ({"q"}, set())
    stream.reassigner.apply(Plan(2, (), {}), SHARE, {})
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


def test_rows_without_a_key_are_known_to_stay_however_hot_they_are(stream: Stream) -> None:
    stream.run_batch(Epoch(), {"null": (0, 9.0), DE: (5, 2.0)})
    assert [hot.key for hot in stream.reassigner.state().samples["q"]] == ["null", DE]
    assert stream.reassigner.state().immovable["q"] == {"null"}


def make_report(stream: Stream) -> dict[str, Any]:
    """Of a task that hands a key over, without batch, partition and attempt."""
    return {
        "query": "q", "run": "r", "checkpoint": str(stream.folder),
        "keys": HotKeySketch(0.01).to_json(), "file": "f", "pieces": {DE: (0, 9)},
        "handoffs": 1, "handoff_s": 0.25,
    }  # fmt: skip


def test_of_a_partition_that_two_attempts_reported_no_state_counts(stream: Stream) -> None:
    report = make_report(stream) | {"batch": 1, "partition": 0}
    mailbox = Mailbox(stream.control.folder)
    stream.control._take(report | {"attempt": 1})
    assert [export.pieces for export in mailbox.read_exports()] == [{DE: (0, 9)}]
    stream.control._take(report | {"attempt": 2, "file": "g"})
    assert mailbox.read_exports() == ()


@pytest.mark.parametrize("fails", ["_append", "_write_whole"])
def test_where_a_report_cannot_be_written_no_state_counts(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    report = make_report(stream) | {"run": "r2", "batch": 1, "partition": 0}
    mailbox = Mailbox(stream.control.folder)
    full = OSError(errno.ENOSPC, "no space")
    reports = [report | {"attempt": 1}, report | {"attempt": 2, "file": "g"}]
    # The second one withdraws; or the first one begins, and is lost.
    failing = reports[1] if fails == "_append" else reports[0]
    for each in reports:
        with monkeypatch.context() as patched:
            if each is failing:
                patched.setattr(mailboxes, fails, mock.Mock(side_effect=full))
            with pytest.raises(OSError, match="no space") if each is failing else nullcontext():
                stream.control._take(each)
    assert mailbox.read_exports() == ()
    stream.control._take(report | {"partition": 1, "attempt": 3})
    assert [export.partition for export in mailbox.read_exports()] == [1]


def test_a_report_writes_its_own_export_however_many_others_there_are(stream: Stream) -> None:
    # Spark's scheduler waits for each report: the sum must not grow with the square of partitions.
    report = make_report(stream) | {"attempt": 1}
    mailbox = Mailbox(stream.control.folder)
    written_bytes, inode, size = 0, 0, 0
    for batch in (5, 6):
        for partition in range(100):
            stream.control._take(report | {"batch": batch, "partition": partition})
            (file,) = stream.control.folder.glob("exports*")
            found = file.stat()
            written_bytes += found.st_size - (size if found.st_ino == inode else 0)
            inode, size = found.st_ino, found.st_size
        exports = mailbox.read_exports()
        assert [(e.batch, e.partition) for e in exports] == [(batch, p) for p in range(100)]
    assert written_bytes < 200 * 100
    # An attempt of an older batch that ends late is of no use to anyone.
    stream.control._take(report | {"batch": 5, "partition": 7, "attempt": 2})
    assert mailbox.read_exports() == exports
