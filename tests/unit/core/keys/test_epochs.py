"""Epochs advance by what the batch before wrote down, and are read as they were written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.keys.epochs import (
    HANDOFF_STRATEGIES,
    Arrival,
    Epoch,
    Export,
    Piece,
    Wish,
    advance_epoch,
    parse_epoch,
    parse_wish,
)
from balancedstream.core.keys.routes import MAX_ROUTE
from balancedstream.errors import InvalidInputError


def test_the_same_report_told_twice_is_one_report() -> None:
    asked = advance_epoch(Epoch(), Wish({'"a"': 3}), (), 5)
    export = Export(5, 0, "f", {'"a"': (0, 9)})
    assert advance_epoch(asked, Wish({'"a"': 3}), (export, export), 6).routes == {'"a"': 3}


@pytest.mark.parametrize("batch", [3, 4, 6, 7])
def test_only_what_the_batch_before_wrote_down_counts(batch: int) -> None:
    export = Export(batch, 0, "f", {'"a"': (0, 9)})
    epoch = advance_epoch(Epoch(), Wish({'"a"': 3}), (export,), 6)
    assert (epoch.routes, epoch.arrivals, epoch.asked) == ({}, {}, ('"a"',))


def test_hybrid_handoff_asks_for_the_hottest_keys_first() -> None:
    wish = Wish({'"c"': 1, '"a"': 2, '"b"': 3}, "hybrid", 2)
    epoch = advance_epoch(Epoch(), wish, (), 0)
    assert (epoch.asked, epoch.touched) == (('"c"', '"a"'), ('"c"', '"a"', '"b"'))
    assert epoch.most == 2


@given(st.integers(0, 6), st.integers(1, 6), st.integers(1, 4))
def test_keys_that_never_hand_anything_over_do_not_hold_up_the_others(
    stuck_count: int, willing_count: int, share: int
) -> None:
    stuck = [f'"s{number}"' for number in range(stuck_count)]
    willing = [f'"w{number}"' for number in range(willing_count)]
    wish = Wish(dict.fromkeys([*stuck, *willing], 3), "hybrid", share)
    epoch = Epoch()
    # Each that comes may have to wait until all others had their turn.
    for batch in range(1 + willing_count * (stuck_count + willing_count)):
        pieces = {key: (0, 9) for key in epoch.asked if key in willing}
        exports = (Export(batch - 1, 0, str(batch), pieces),) if pieces else ()
        epoch = advance_epoch(epoch, wish, exports, batch)
    assert sorted(epoch.routes) == willing


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(0, 2**40)
epochs = st.builds(
    Epoch,
    numbers,
    numbers,
    st.dictionaries(names, numbers),
    st.dictionaries(names, st.builds(Arrival, numbers, st.builds(Piece, names, numbers, numbers))),
    st.lists(names).map(tuple),
    st.lists(names).map(tuple),
    st.none() | numbers,
)
wishes = st.builds(
    Wish,
    st.dictionaries(names, st.integers(0, MAX_ROUTE)),
    st.sampled_from(HANDOFF_STRATEGIES),
    st.integers(1, 2**40),
    st.none() | numbers,
)


@settings(max_examples=30)
@given(epochs, wishes)
def test_epochs_and_wishes_are_read_as_they_were_written(epoch: Epoch, wish: Wish) -> None:
    assert parse_epoch(epoch.to_json()) == epoch
    assert parse_epoch(epoch.to_json().encode()) == epoch
    assert parse_wish(wish.to_json()) == wish
    assert [*parse_wish(wish.to_json()).routes] == [*wish.routes]
    assert "\n" not in epoch.to_json() + wish.to_json()


@pytest.mark.parametrize("route", [-1, MAX_ROUTE + 1, "3", True, 1.5, None])
def test_a_route_that_no_row_can_have_is_refused_with_its_key(route: Any) -> None:
    with pytest.raises(InvalidInputError, match='routes: key "de" must have a whole number'):
        Wish({'"fr"': 1, '"de"': route})


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "{}", '{"arrivals":{"a":[1]},"asked":[],"touched":[]}']
)
def test_what_is_no_epoch_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="epoch: is damaged or has another format"):
        parse_epoch(text)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"routes":[1]}', '{"to":1}', '{"share":0}', '{"share":"a"}']
)
def test_what_is_no_wish_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="wish: is damaged or has another format"):
        parse_wish(text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"strategy": "soon"}, "strategy: must be one of eager, lazy, hybrid, not 'soon'"),
        ({"share": 0}, "share: must be 1 or more keys a batch, not 0"),
    ],
)
def test_a_wish_that_cannot_come_true_is_refused_by_its_field(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Wish({}, **fields)
