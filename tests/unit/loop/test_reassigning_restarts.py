"""A query that begins again keeps its keys where its checkpoint and its plan have them."""

from __future__ import annotations

from pathlib import Path

from keyed_stream import DE, FR, SHARE, Stream

from balancedstream.core.keys.epochs import Epoch, Wish
from balancedstream.core.wire.plan import KeyPlacement
from balancedstream.loop.reassigning import PATIENCE_BATCHES


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
