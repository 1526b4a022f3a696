"""What does not come is given up with a reason; what can never be is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from keyed_stream import DE, FR, OPERATOR, PARTITIONS, SHARE, Stream
from pyspark.sql.types import DoubleType, StringType

from balancedstream.core.keys.epochs import Arrival, Epoch, Piece, Wish
from balancedstream.core.samples import BatchSample
from balancedstream.engine.events import BatchFinished
from balancedstream.errors import InvalidInputError, RefusedKeyError
from balancedstream.loop.reassigning import PATIENCE_BATCHES


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
    event = BatchFinished("q", unplanned, (), (OPERATOR,), 0, run_id=stream.run_id)
    stream.reassigner.finish_batch(event)
    assert stream.reassigner.state().immovable["q"] == {DE}
    stream.run_batch(Epoch(PATIENCE_BATCHES + 1, PATIENCE_BATCHES + 1))
    assert stream.settling() == {"q"}


def test_what_can_never_be_is_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("balancedstream.loop.reassigning.GIVEN_UP_BATCHES", 0)
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
    event = BatchFinished("q", unplanned, (), (OPERATOR,), 0, run_id=stream.run_id)
    stream.reassigner.finish_batch(event)
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
        "q: key null stays: rows without a key are never moved; nothing changed",
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


def test_a_note_on_a_refused_request_has_no_key(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(wish: Wish) -> None:
        raise RefusedKeyError(DE, "is no key of this stream")

    monkeypatch.setattr(stream.control, "want", refuse)
    stream.plan((DE, 2))
    assert stream.view.notes[-1] == (
        "q: its keys stay where they are: is no key of this stream; nothing changed"
    )
    assert DE not in "".join(stream.view.notes)
