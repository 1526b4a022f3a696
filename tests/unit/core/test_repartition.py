"""What is decided on a checkpoint whose number of partitions is to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from balancedstream.core.repartition import (
    MOVABLE,
    PROVIDER,
    ROCKSDB,
    STRICT,
    Checkpoint,
    Fingerprint,
    Operator,
    can_undo,
    check_placement,
    check_undo,
    choose_quiet_s,
    choose_sample,
    choose_step,
    estimate,
    find_difference,
    find_stage,
)
from balancedstream.errors import RepartitionError

CONF = {PROVIDER: ROCKSDB, STRICT: "true"}
PLAIN = Checkpoint(
    planned=4,
    committed=4,
    conf=CONF,
    offsets=({"offset": 500},),
    partitions=6,
    partitions_before=6,
    format="2",
    operators=(Operator(0, "dedupe", ("default",), 1000, 2),),
    has_written=True,
)
HALF_DONE = replace(PLAIN, committed=3, partitions_before=3)
DONE = replace(PLAIN, partitions_before=3)
FAMILY = (0, "default", "default")


def test_a_checkpoint_is_as_its_last_two_batches_say() -> None:
    assert find_stage(PLAIN) == "plain"
    assert find_stage(replace(PLAIN, partitions_before=None)) == "plain"
    assert find_stage(replace(PLAIN, committed=None)) == "empty"
    assert find_stage(replace(PLAIN, committed=3)) == "unfinished"
    assert find_stage(replace(PLAIN, committed=5)) == "unfinished"
    assert find_stage(replace(HALF_DONE, committed=2)) == "unfinished"
    assert find_stage(HALF_DONE) == "half-done"
    assert find_stage(DONE) == "done"


def test_the_same_command_begins_finishes_and_compares_again() -> None:
    assert choose_step(PLAIN, 12) == "begin"
    assert choose_step(HALF_DONE, 6) == "finish"
    assert choose_step(DONE, 6) == "verify"
    assert choose_step(DONE, 3) == "begin"
    assert choose_step(PLAIN, 6) == "leave"


@pytest.mark.parametrize(
    ("change", "partitions", "named"),
    [
        ({}, 0, "--partitions: must be a number from 1 to 100,000, not 0"),
        ({}, 100_001, "not 100001"),
        ({"committed": None, "planned": None}, 12, "no committed batch"),
        ({"committed": 3}, 12, "batch 4 was begun and is not committed"),
        ({"conf": CONF | {PROVIDER: "a.b.HDFSBackedStateStoreProvider"}}, 12, "is kept by HDFS"),
        ({"conf": {}}, 12, "Spark's default"),
        ({"conf": CONF | {STRICT: "false"}}, 12, "useStrictDistribution=false"),
        ({"conf": {k: v for k, v in CONF.items() if k != STRICT}}, 12, "before Spark 3.3"),
        ({"operators": ()}, 12, "names no stateful operator"),
        ({"operators": (Operator(1, "globalLimit", ("a",), 1, 1),)}, 12, "1 is globalLimit"),
        ({"offsets": ({"balancedstream": "keys", "epoch": 0},)}, 12, "uses balanced(...)"),
    ],
)
def test_what_spark_would_refuse_or_break_is_refused_before(
    change: Mapping[str, Any], partitions: int, named: str
) -> None:
    with pytest.raises(RepartitionError) as refused:
        choose_step(replace(PLAIN, **change), partitions)
    assert named in str(refused.value)
    assert str(refused.value).endswith("Nothing was changed.")


def test_a_repartition_that_was_begun_goes_to_its_own_number_only() -> None:
    with pytest.raises(RepartitionError, match=r"--partitions 6, or go back with --undo, and then"):
        choose_step(HALF_DONE, 12)


def test_a_half_done_repartition_of_another_store_says_that_undo_helps() -> None:
    stuck = replace(HALF_DONE, conf=CONF | {PROVIDER: "a.Other"}, has_written=False, format="1")
    with pytest.raises(RepartitionError, match="or go back with --undo"):
        choose_step(stuck, 6)
    check_undo(stuck)


def test_undo_is_for_the_last_batch_and_for_format_2() -> None:
    check_undo(DONE)
    check_undo(HALF_DONE)
    with pytest.raises(RepartitionError, match="is none of a repartition"):
        check_undo(PLAIN)
    with pytest.raises(RepartitionError, match=r"format 1.*repartition back with --partitions 3"):
        check_undo(replace(DONE, format="1"))
    with pytest.raises(RepartitionError, match=r"format 1.*finish it with --partitions 6"):
        check_undo(replace(HALF_DONE, format="1"))


def test_undo_of_a_named_repartition_undoes_no_other_one() -> None:
    assert check_undo(DONE, DONE.partitions)
    assert check_undo(HALF_DONE, HALF_DONE.partitions)
    for found in (PLAIN, DONE, replace(PLAIN, planned=None, committed=None)):
        assert not check_undo(found, 99), "it was undone before, or never begun"
    with pytest.raises(RepartitionError, match="is none of a repartition to 99 state partitions"):
        check_undo(HALF_DONE, 99)
    with pytest.raises(RepartitionError, match="until the query commits its next batch"):
        check_undo(PLAIN, PLAIN.partitions)


def test_format_1_can_be_undone_before_state_was_written_only() -> None:
    assert can_undo(replace(HALF_DONE, format="1", has_written=False))
    assert not can_undo(replace(HALF_DONE, format="1"))
    assert not can_undo(replace(PLAIN, format="1", has_written=False))


@pytest.mark.parametrize("name", sorted(MOVABLE))
def test_operators_that_spark_repartitions_are_taken(name: str) -> None:
    operator = Operator(0, name, ("default",), 1000, 2)
    assert choose_step(replace(PLAIN, operators=(operator,)), 12) == "begin"


def test_more_state_more_stores_and_more_partitions_take_longer() -> None:
    def take_s(state_bytes: int, stores: tuple[str, ...], partitions: int) -> float:
        operator = Operator(0, "symmetricHashJoin", stores, state_bytes, 1)
        return estimate(replace(PLAIN, operators=(operator,)), partitions).duration_s

    least_s = take_s(1000, ("a",), 12)
    assert take_s(10**9, ("a",), 12) > least_s
    assert take_s(1000, ("a", "b"), 12) > least_s
    assert take_s(1000, ("a",), 48) > least_s


def test_a_query_counts_as_stopped_after_three_of_its_own_gaps_within_bounds() -> None:
    assert choose_quiet_s([30.0, 0.0, 10.0, 20.0]) == 30.0
    assert choose_quiet_s([]) == 2.0
    assert choose_quiet_s([0.0, 3600.0]) == 60.0


def test_the_sample_is_about_as_large_as_the_size_above_which_it_is_drawn() -> None:
    assert choose_sample(10 * 2**30, 2**30) == 10
    assert choose_sample(10, 0) == 10


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (Fingerprint(5, 7, 9, 0), ""),
        (Fingerprint(4, 7, 9, 0), "5 rows before and 4 after"),
        (Fingerprint(5, 8, 9, 0), "keys or values differ"),
        (Fingerprint(5, 7, 8, 0), "keys or values differ"),
        (Fingerprint(5, 7, 9, 2), "2 rows are in wrong partitions"),
    ],
)
def test_a_difference_of_states_is_told(after: Fingerprint, told: str) -> None:
    assert find_difference({FAMILY: Fingerprint(5, 7, 9, 0)}, {FAMILY: after}).endswith(told)
    assert bool(told) == bool(find_difference({FAMILY: Fingerprint(5, 7, 9, 0)}, {FAMILY: after}))


def test_a_family_that_is_missing_or_new_is_a_difference() -> None:
    assert find_difference({FAMILY: Fingerprint(5, 7, 9, 0)}, {})
    assert find_difference({}, {FAMILY: Fingerprint(5, 7, 9, 0)})
    assert not find_difference({}, {})


def test_state_in_other_partitions_than_its_keys_say_is_refused() -> None:
    check_placement({FAMILY: Fingerprint(5, 7, 9, 0)})
    with pytest.raises(RepartitionError, match="1 of 5 rows in other partitions"):
        check_placement({FAMILY: Fingerprint(5, 7, 9, 1)})
