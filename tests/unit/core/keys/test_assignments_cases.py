"""Single cases of assigning keys: what moves, what stays, and why."""

from __future__ import annotations

import math

import pytest

from balancedstream.core.balance.hotspots import Thresholds, diminish
from balancedstream.core.keys.assignments import KeyLoad, KeyMove, assign
from balancedstream.errors import InvalidInputError


def test_of_two_hot_keys_in_a_partition_one_leaves_for_the_coldest_executor() -> None:
    keys = [KeyLoad("de", 0, 4.0), KeyLoad("fr", 0, 3.5)]
    loads = {0: 8.0, 1: 1.1, 2: 0.9, 3: 1.0, 4: 1.1, 5: 0.9, 6: 1.0, 7: 1.0, 8: 1.0}
    placement = {0: "a", **dict.fromkeys((1, 2, 3, 4), "b"), **dict.fromkeys((5, 6, 7, 8), "c")}
    decision = assign(keys, loads, placement, {"a": 1, "b": 1, "c": 1})
    assert decision.moves == (KeyMove("fr", 0, 5),)
    assert decision.imbalance_after <= 1.05 * decision.bound
    assert "placement alone would leave 1.50" in decision.reason


def test_what_placement_can_level_moves_no_key() -> None:
    keys = [KeyLoad("de", 0, 2.0), KeyLoad("fr", 1, 2.0)]
    loads, placement = {0: 3.0, 1: 3.0}, {0: "a", 1: "a"}
    decision = assign(keys, loads, placement, {"a": 1, "b": 1})
    assert decision.moves == ()
    assert decision.balance == diminish(loads, placement, {"a": 1, "b": 1})
    assert decision.balance.moves != ()
    assert decision.reason == (
        "no key moves: placement alone brings imbalance 2.00 → 1.00 (bound 1.00)"
    )


def test_a_level_query_is_left_as_it_is() -> None:
    keys = [KeyLoad("de", 0, 1.0)]
    decision = assign(keys, {0: 1.1, 1: 1.0}, {0: "a", 1: "b"}, {"a": 1, "b": 1})
    assert decision.moves == ()
    assert decision.reason == "no key moves: imbalance 1.05 is not above 1.10"


def test_a_key_above_the_mean_executor_stays_and_the_others_leave_it_alone() -> None:
    keys = [KeyLoad("de", 0, 6.0), KeyLoad("fr", 0, 1.5), KeyLoad("it", 0, 1.0)]
    loads = {0: 9.0, 1: 0.5, 2: 0.5, 3: 0.0}
    placement = {0: "a", 1: "b", 2: "b", 3: "b"}
    decision = assign(keys, loads, placement, {"a": 1, "b": 1})
    assert decision.unsplittable == ("de",)
    assert {move.key for move in decision.moves} == {"fr", "it"}
    assert decision.bound == pytest.approx(6.5 / 5.0)
    assert decision.imbalance_after == pytest.approx(decision.bound)
    assert decision.reason.endswith(
        "key de alone carries 60 % of the busy time, 1.20 x the mean of an executor, "
        "and no assignment can split it: balanced(...).aggregate can, where its state can be merged"
    )


def test_a_key_that_no_move_can_help_is_named_all_the_same() -> None:
    keys = [KeyLoad("de", 0, 9.0), KeyLoad("fr", 1, 0.5)]
    decision = assign(keys, {0: 9.0, 1: 1.0}, {0: "a", 1: "b"}, {"a": 1, "b": 1})
    assert decision.moves == ()
    assert decision.reason == (
        "no key moves: imbalance 1.80 is within 1.02 x the bound 1.80; key de alone carries 90 % "
        "of the busy time, 1.80 x the mean of an executor, and no assignment can split it: "
        "balanced(...).aggregate can, where its state can be merged"
    )


def test_two_hot_keys_on_one_core_are_parted_though_the_executors_are_level() -> None:
    keys = [KeyLoad("de", 0, 2.0), KeyLoad("fr", 0, 2.0)]
    loads = {0: 4.0, **dict.fromkeys(range(1, 9), 0.5)}
    placement = {0: "a", **dict.fromkeys(range(1, 9), "b")}
    decision = assign(keys, loads, placement, {"a": 2, "b": 2})
    assert decision.imbalance_before == pytest.approx(2.0)
    assert len(decision.moves) == 1
    assert decision.imbalance_after < 1.3


def test_keys_whose_handoff_is_too_dear_stay() -> None:
    loads, placement = {0: 7.0, 1: 0.5, 2: 0.5}, {0: "a", 1: "b", 2: "b"}
    executors = {"a": 1, "b": 1}
    dear = [KeyLoad("de", 0, 4.0, handoff_s=1000.0), KeyLoad("fr", 0, 3.0, handoff_s=1000.0)]
    decision = assign(dear, loads, placement, executors)
    assert decision.moves == ()
    assert decision.reason.startswith("no key moves: no move that pays off")
    # Each would pay if it saved all it costs, but together with what stays it does not.
    dear = [KeyLoad("de", 0, 4.0, handoff_s=79.0), KeyLoad("fr", 0, 3.0, handoff_s=59.9)]
    decision = assign(dear, loads, placement, executors, Thresholds(horizon_batches=20))
    assert decision.moves == (KeyMove("fr", 0, 1),)
    dear = [KeyLoad("de", 0, 3.0, handoff_s=59.0), KeyLoad("fr", 0, 3.0, handoff_s=59.0)]
    decision = assign(dear, {0: 7.0, 1: 2.0, 2: 1.0}, placement, executors)
    assert decision.moves == ()
    assert "too little to earn back the handoff of state in 20 batches" in decision.reason


def test_of_keys_alike_the_one_cheapest_to_hand_over_moves() -> None:
    keys = [KeyLoad("de", 0, 3.0, handoff_s=2.0), KeyLoad("fr", 0, 3.0, handoff_s=1.0)]
    decision = assign(keys, {0: 6.0, 1: 0.0}, {0: "a", 1: "b"}, {"a": 1, "b": 1})
    assert decision.moves == (KeyMove("fr", 0, 1),)


def test_a_gain_that_is_hardly_one_moves_no_key() -> None:
    keys = [KeyLoad("de", 0, 0.05)]
    loads, placement = {0: 6.5, 1: 3.5}, {0: "a", 1: "b"}
    decision = assign(keys, loads, placement, {"a": 1, "b": 1}, Thresholds(stop_at=1.0))
    assert decision.moves == ()
    assert "by less than 2 %" in decision.reason


def test_where_the_keys_claim_more_than_their_partition_the_partition_is_believed() -> None:
    loads, placement = {0: 6.0, 1: 0.0}, {0: "a", 1: "b"}
    over = [KeyLoad("de", 0, 60.0), KeyLoad("fr", 0, 60.0)]
    right = [KeyLoad("de", 0, 3.0), KeyLoad("fr", 0, 3.0)]
    executors = {"a": 1, "b": 1}
    assert assign(over, loads, placement, executors) == assign(right, loads, placement, executors)


def test_partitions_without_a_live_executor_are_placed_whatever_the_thresholds() -> None:
    keys = [KeyLoad("de", 1, 1.0)]
    loads = {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}
    decision = assign(keys, loads, {0: "a", 1: "gone", 2: "b"}, {"a": 1, "b": 1})
    assert decision.moves == ()
    assert {move.partition for move in decision.balance.moves} == {1, 3}


def test_nothing_measured_is_no_reason_to_move() -> None:
    decision = assign([KeyLoad("de", 0, 0.0)], {0: 0.0}, {0: "a"}, {"a": 1, "b": 1})
    assert decision.moves == ()
    assert (decision.imbalance_before, decision.imbalance_after, decision.bound) == (1.0, 1.0, 1.0)
    assert decision.reason == "no key moves: no partition was busy"


def test_no_partition_at_all_is_no_error() -> None:
    assert assign([], {}, {}, {"a": 1}).reason == "no key moves: no partition was busy"


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ([KeyLoad("de", 0, 1.0), KeyLoad("de", 1, 1.0)], "'de' appears twice"),
        ([KeyLoad("de", 7, 1.0)], "partition 7"),
        ([KeyLoad("de", 0, -1.0)], "busy_s of 'de'"),
        ([KeyLoad("de", 0, math.nan)], "busy_s of 'de'"),
        ([KeyLoad("de", 0, 1.0, handoff_s=math.inf)], "handoff_s of 'de'"),
    ],
)
def test_keys_that_cannot_be_are_refused_by_name(keys: list[KeyLoad], named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        assign(keys, {0: 1.0, 1: 1.0}, {0: "a", 1: "a"}, {"a": 1})


def test_what_placement_refuses_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="loads: partition 0"):
        assign([], {0: -1.0}, {0: "a"}, {"a": 1})
    with pytest.raises(InvalidInputError, match="executors"):
        assign([], {0: 1.0}, {0: "a"}, {})


def test_a_key_does_not_go_where_other_work_makes_an_executor_hot() -> None:
    keys = [KeyLoad("de", 0, 4.0), KeyLoad("fr", 0, 3.0)]
    loads, placement = {0: 7.0, 1: 0.5, 2: 0.6}, {0: "a", 1: "b", 2: "c"}
    executors = {"a": 1, "b": 1, "c": 1}
    assert assign(keys, loads, placement, executors).moves == (KeyMove("fr", 0, 1),)
    decision = assign(keys, loads, placement, executors, base_s={"b": 4.0})
    assert decision.moves == (KeyMove("fr", 0, 2),)
    mean_s = (sum(loads.values()) + 4.0) / 3
    assert decision.imbalance_before == pytest.approx(7.0 / mean_s)
    assert decision.imbalance_after == pytest.approx(4.1 / mean_s), "partition 1 leaves b, too"
    assert decision.bound <= decision.imbalance_after


def test_where_no_partition_is_known_other_work_alone_is_measured() -> None:
    decision = assign([], {}, {}, {"a": 1, "b": 1}, base_s={"a": 3.0, "b": 1.0})
    assert (decision.moves, decision.balance.moves) == ((), ())
    assert (decision.imbalance_before, decision.bound) == pytest.approx((1.5, 1.5))
