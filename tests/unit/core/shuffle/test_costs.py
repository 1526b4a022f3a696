"""What is known of costs from batch to batch, and whether it is trusted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from balancedstream.core.shuffle.costs import (
    GENERATION_BATCHES,
    GENERATION_RECORDS,
    MIN_RECORDS,
    UNSEEN_SHARE,
    LearntCosts,
    MeasuredCosts,
    learn_costs,
)
from balancedstream.core.shuffle.sketches import CostSketch
from balancedstream.errors import InvalidInputError


def sketch_of(
    cost_s: float = 1.0, *, item: bytes = b"text", records: int = MIN_RECORDS, seed: int = 7
) -> CostSketch:
    sketch = CostSketch(0.05, 0.1, seed=seed)
    sketch.update(item, cost_s, records=records)
    return sketch


def measured(
    error_s: float,
    equal_error_s: float,
    *,
    unattributed_s: float = 0.0,
    sketch: CostSketch | None = None,
) -> MeasuredCosts:
    return MeasuredCosts(
        sketch=sketch or sketch_of(),
        estimated_s=1.0,
        real_s=1.0,
        unattributed_s=unattributed_s,
        judged_s=1.0,
        error_s=error_s,
        equal_error_s=equal_error_s,
    )


def trusted_costs() -> LearntCosts:
    learnt = learn_costs(learn_costs(None, 0, measured(0.0, 0.5)), 1, measured(0.0, 0.5))
    assert learnt.trusted
    return learnt


def test_the_first_batch_teaches_costs_that_are_not_trusted_yet() -> None:
    learnt = learn_costs(None, 0, measured(0.0, 0.5))
    assert not learnt.trusted
    assert learnt.estimates.estimate(b"text") == pytest.approx(1 / MIN_RECORDS)


def test_estimates_that_foretold_a_batch_better_than_equal_costs_are_trusted() -> None:
    assert learn_costs(learn_costs(None, 0, measured(0.0, 0.5)), 1, measured(0.4, 0.5)).trusted


def test_estimates_that_are_hardly_better_than_equal_costs_are_not_trusted_but_stay_so() -> None:
    first = learn_costs(None, 0, measured(0.0, 0.5))
    assert not learn_costs(first, 1, measured(0.48, 0.5)).trusted
    assert learn_costs(trusted_costs(), 2, measured(0.48, 0.5)).trusted


@pytest.mark.parametrize(("error_s", "equal_error_s"), [(0.0, 0.0), (0.0, 1e-17), (0.002, 0.01)])
def test_where_all_cost_the_same_round_robin_goes_on(error_s: float, equal_error_s: float) -> None:
    first = learn_costs(None, 0, measured(0.0, 0.5))
    assert not learn_costs(first, 1, measured(error_s, equal_error_s)).trusted


@pytest.mark.parametrize(("error_s", "equal_error_s"), [(1e-17, 0.0), (0.011, 0.01), (0.05, 0.01)])
def test_a_batch_in_which_all_cost_the_same_is_no_cause_to_forget_the_dear_items(
    error_s: float, equal_error_s: float
) -> None:
    learnt = learn_costs(trusted_costs(), 2, measured(error_s, equal_error_s, sketch=few_of()))
    learnt = learn_costs(learnt, 3, measured(error_s, equal_error_s))
    assert learnt.trusted
    assert learnt.estimates.count(b"new") == MIN_RECORDS // 2


def test_one_dear_item_among_many_cheap_ones_is_worth_estimates() -> None:
    # Of 32 partitions, the one that has it takes twice as long; equal costs are off by 4 % only.
    assert learn_costs(learn_costs(None, 0, measured(0.0, 0.04)), 1, measured(0.0, 0.04)).trusted


def test_a_batch_that_was_estimated_by_something_else_teaches_and_decides_nothing() -> None:
    learnt = learn_costs(trusted_costs(), 2, measured(0.1, 0.5, sketch=few_of()))
    waiting = learnt.unjudged
    learnt = learn_costs(learnt, 3, measured(0.9, 0.5), is_judge=False)
    assert learnt.trusted
    assert learnt.error is None
    assert learnt.estimates.count(b"text") == 3 * MIN_RECORDS
    assert learnt.unjudged == waiting


def test_what_was_trusted_and_fails_is_forgotten_and_that_is_said() -> None:
    learnt = learn_costs(trusted_costs(), 2, measured(0.6, 0.5, sketch=sketch_of(9.0, records=100)))
    assert not learnt.trusted
    assert "off by 60 %" in learnt.reason
    assert learnt.estimates.records == 100


def test_a_function_that_works_after_it_has_read_everything_is_not_trusted() -> None:
    learnt = learn_costs(trusted_costs(), 2, measured(0.0, 0.5, unattributed_s=2.0))
    assert not learnt.trusted
    assert "2.0 s of 3.0 s" in learnt.reason
    # What cannot be told is missed by any estimate: whoever watches the error sees it.
    assert learnt.error == learnt.equal_error == pytest.approx(2 / 3)


def test_the_errors_of_all_tasks_are_judged_together() -> None:
    first = learn_costs(None, 0, measured(0.0, 0.5))
    learnt = learn_costs(first, 1, measured(0.9, 0.5).add(measured(0.1, 0.9)))
    assert learnt.error == pytest.approx(0.5)
    assert learnt.equal_error == pytest.approx(0.7)
    assert learnt.trusted


def few_of(item: bytes = b"new", records: int = MIN_RECORDS // 2) -> CostSketch:
    return sketch_of(5.0, item=item, records=records)


def test_a_batch_of_few_records_decides_nothing_and_is_learnt_all_the_same() -> None:
    few = few_of(records=MIN_RECORDS - 1)
    learnt = learn_costs(trusted_costs(), 2, measured(0.9, 0.1, sketch=few))
    assert learnt.trusted
    assert learnt.error is None
    assert learnt.batch == 2
    assert learnt.estimates.count(b"new") == MIN_RECORDS - 1


def test_small_batches_are_judged_together_once_they_are_enough() -> None:
    learnt = learn_costs(None, 0, measured(0.0, 0.5, sketch=few_of()))
    trusted, errors = [], []
    for batch, error_s in enumerate([0.1, 0.3, 0.9, 0.9], start=1):
        learnt = learn_costs(learnt, batch, measured(error_s, 0.5, sketch=few_of()))
        trusted.append(learnt.trusted)
        errors.append(learnt.error)
    assert trusted == [False, True, True, False]
    assert errors == [None, pytest.approx(0.2), None, pytest.approx(0.9)]


def test_what_was_not_judged_yet_is_still_known_after_a_restart() -> None:
    learnt = learn_costs(trusted_costs(), 2, measured(0.9, 0.1, sketch=few_of()))
    assert LearntCosts.from_bytes(learnt.to_bytes()).unjudged == learnt.unjudged


def test_costs_are_forgotten_after_two_generations() -> None:
    learnt = learn_costs(None, 0, measured(0.0, 0.5, sketch=sketch_of(item=b"old")))
    for batch in range(1, GENERATION_BATCHES):
        learnt = learn_costs(learnt, batch, measured(0.0, 0.5))
    assert learnt.estimates.count(b"old") == MIN_RECORDS
    for batch in range(GENERATION_BATCHES, 2 * GENERATION_BATCHES):
        learnt = learn_costs(learnt, batch, measured(0.0, 0.5))
        assert learnt.estimates.count(b"old") == MIN_RECORDS
    learnt = learn_costs(learnt, 2 * GENERATION_BATCHES, measured(0.0, 0.5))
    assert learnt.estimates.count(b"old") == 0


def rare_items(batch: int, records: int) -> CostSketch:
    """Items that come once and never again."""
    sketch = CostSketch(0.0003, 0.1, seed=7)
    for record in range(records):
        sketch.update(b"%d of %d" % (record, batch), 1.0)
    return sketch


def test_a_generation_goes_on_as_long_as_many_records_are_of_items_never_seen_before() -> None:
    batches = GENERATION_BATCHES + 8
    learnt = None
    for batch in range(batches):
        sketch = rare_items(batch, MIN_RECORDS)
        learnt = learn_costs(learnt, batch, measured(0.0, 0.5, sketch=sketch))
    assert learnt
    assert (learnt.older, learnt.batches) == (None, batches)
    # All items come a second time: the nearer to the end, the fewer are left that came once.
    ended_after = 0
    while learnt.older is None:
        sketch = rare_items(ended_after, MIN_RECORDS)
        learnt = learn_costs(learnt, batches + ended_after, measured(0.0, 0.5, sketch=sketch))
        ended_after += 1
    assert batches * 0.9 < ended_after <= batches + 1
    assert learnt.older.estimate_unseen_share() <= UNSEEN_SHARE


def test_a_generation_ends_when_it_has_so_many_records_though_some_items_are_always_new() -> None:
    sketch = rare_items(0, 4000)
    sketch.update(b"the", 1.0, records=GENERATION_RECORDS - 4001)
    full = replace(trusted_costs(), newer=sketch, batches=GENERATION_BATCHES)
    assert sketch.estimate_unseen_share() > UNSEEN_SHARE
    one_more = CostSketch(0.0003, 0.1, seed=7)
    one_more.update(b"the", 1.0, records=MIN_RECORDS)
    learnt = learn_costs(full, 2, measured(0.0, 0.5, sketch=one_more))
    assert learnt.older is None
    learnt = learn_costs(learnt, 3, measured(0.0, 0.5, sketch=one_more))
    assert learnt.older is not None
    assert learnt.older.records == GENERATION_RECORDS + MIN_RECORDS - 1


def test_sketches_of_another_seed_begin_anew() -> None:
    learnt = learn_costs(trusted_costs(), 2, measured(0.0, 0.5, sketch=sketch_of(seed=8)))
    assert not learnt.trusted
    assert learnt.newer.seed == 8


def test_the_tasks_sketches_stay_as_they_were() -> None:
    given = sketch_of()
    learn_costs(trusted_costs(), 2, measured(0.0, 0.5, sketch=given))
    measured(0.0, 0.5, sketch=given).add(measured(0.0, 0.5))
    measured(0.0, 0.5).add(measured(0.0, 0.5, sketch=given))
    assert given.records == MIN_RECORDS


def test_what_is_read_back_is_what_was_written() -> None:
    learnt = learn_costs(None, 0, measured(0.0, 0.5, sketch=sketch_of(3.0)))
    for batch in range(1, GENERATION_BATCHES + 1):
        assert LearntCosts.from_bytes(learnt.to_bytes()).to_bytes() == learnt.to_bytes()
        learnt = learn_costs(learnt, batch, measured(0.1, 0.5))
    read = LearntCosts.from_bytes(learnt.to_bytes())
    assert read.estimates.to_bytes() == learnt.estimates.to_bytes()
    assert (read.batch, read.trusted, read.reason, read.error) == (
        learnt.batch,
        learnt.trusted,
        learnt.reason,
        learnt.error,
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: b"",
        lambda d: d[:-4],
        lambda d: b"x" + d,
        lambda d: b"BSC2\n3\nx",
        # Its two lines of text, and no sketch.
        lambda d: d[: d.index(b"\n", len(b"BSC2\n")) + 1],
    ],
)
def test_what_is_no_version_or_was_damaged_is_refused(damage: object) -> None:
    data = trusted_costs().to_bytes()
    with pytest.raises(InvalidInputError, match="damaged"):
        LearntCosts.from_bytes(damage(data))  # type: ignore[operator]
