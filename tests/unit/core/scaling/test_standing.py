"""Until when a number of executors is enough, so that a driver may act before it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from balancedstream.core.observations import Observation
from balancedstream.core.periods import Period
from balancedstream.core.policy import AdmissionPolicy, Policy, ScalingPolicy, SchedulePolicy
from balancedstream.core.samples import BatchSample
from balancedstream.core.scaling.arrivals import Arrivals, Forecast
from balancedstream.core.scaling.costs import QueryCost, StageCost
from balancedstream.core.scaling.demand import OVERLOAD_S, Demand
from balancedstream.core.scaling.executors import ScalingDecision
from balancedstream.core.scaling.standing import (
    describe_standing,
    prepare_standing,
    says_the_same,
)
from balancedstream.core.scaling.verdicts import LIMITS, Verdict
from balancedstream.core.wire.plan import Standing, StandingStep

LIMITED = Policy(scaling=ScalingPolicy(max_executors=20))
BOUNDED = replace(LIMITED, admission=AdmissionPolicy(mode="auto"))
SEEN = Observation(10.0, {"a": 1}, requested=1)


def demand(row_s: float = 0.05, rate: float = 100.0, tasks: int = 64) -> Demand:
    """A query with a trigger interval of 10 s, whose rows take so long."""
    cost = QueryCost(2.0, row_s, {"gaps": 0.5}, {"source": StageCost(1.0, tasks, 1.0 / tasks)})
    recent = [BatchSample("q", 1, 10.0, 5.0, int(rate * 10), 10.0, 0.0, 10.0)]
    arrivals = Arrivals((0.0, 10.0), (0.0, 10.0 * rate))
    foreseen = Forecast(rate, rate, "as now")
    return Demand("q", cost, arrivals, foreseen, 10.0, 25.0, recent, 0.0, None, 0.0, 10.0)


def decided(count: int, *demands: Demand, verdict: Verdict = Verdict.STEADY) -> ScalingDecision:
    return ScalingDecision(count, verdict, "", demands=demands)


@given(st.floats(0.001, 0.2), st.integers(1, 12), st.floats(1.0, 1e4), st.floats(0.0, 1e5))
@settings(max_examples=60)
def test_the_first_step_that_is_enough_meets_the_objective_and_the_one_before_does_not(
    row_s: float, count: int, rate: float, rows: float
) -> None:
    query = demand(row_s)
    standing = prepare_standing(SEEN, decided(count, query), LIMITED)
    assume(standing is not None)
    assert standing is not None
    assert (standing.asked, standing.patience_s) == (1, 45.0)
    sizes = [step.executors for step in standing.steps]
    assert (sizes[0], sizes[-1]) == (count, min(20, 8 * count))
    assert sizes == sorted(set(sizes))
    # Those that are there keep up, or the next batch takes so much longer.
    behind = max(1.0, rate / max(standing.steps[0].rows_per_s, 1.0))
    found = standing.find("q", rate, rows / behind)
    assert found is not None

    def meets(executors: int, slack: float) -> bool:
        waits = replace(query, then_rows=rows * slack).after(executors)
        return max(query.steady(executors, rate * slack), waits) <= query.objective_s

    if found.executors < sizes[-1]:
        assert meets(found.executors, 0.99)
    before = sizes.index(found.executors) - 1
    if before >= 0:
        # Limits are whole rows.
        assert not meets(sizes[before], 1.01 + 1.0 / min(rate, rows + 1.0))


def test_executors_are_added_when_the_load_needs_the_reserve() -> None:
    scaling = replace(LIMITED.scaling, reserve_executors=2)
    reserving = prepare_standing(SEEN, decided(9, demand()), replace(LIMITED, scaling=scaling))
    without = prepare_standing(SEEN, decided(7, demand()), LIMITED)
    assert reserving is not None
    assert without is not None
    assert reserving.steps[0] == replace(without.steps[0], executors=9)


def test_none_is_added_from_the_next_excluded_period_on() -> None:
    periods = Period("0 8 * * *", 3600), Period("30 6 * * *", 3600)
    excludes = replace(LIMITED, schedule=SchedulePolicy(excluded=periods))
    standing = prepare_standing(SEEN, decided(8, demand()), excludes)
    free = prepare_standing(SEEN, decided(8, demand()), LIMITED)
    assert standing is not None
    assert free is not None
    assert (standing.until_s, free.until_s) == (6.5 * 3600, None)
    assert not says_the_same(standing, free)


def test_where_more_are_needed_already_it_was_decided_whether_they_come() -> None:
    assert prepare_standing(SEEN, decided(4, demand()), LIMITED) is None
    assert prepare_standing(SEEN, decided(8, demand()), LIMITED) is not None
    waits = replace(demand(), then_rows=1e5)
    assert prepare_standing(SEEN, decided(8, waits), LIMITED) is None


def test_what_was_removed_just_now_is_not_added_again() -> None:
    removed = replace(SEEN, last_removed=True, last_scaled_s=-100.0)
    assert prepare_standing(removed, decided(8, demand()), LIMITED) is None
    assert prepare_standing(replace(removed, now_s=21.0), decided(8, demand()), LIMITED)
    assert prepare_standing(replace(SEEN, requested=9), decided(8, demand()), LIMITED) is None


def test_none_is_added_by_itself_where_the_policy_or_something_else_limits() -> None:
    query = demand()
    assert prepare_standing(SEEN, decided(20, query), LIMITED) is None
    assert prepare_standing(SEEN, decided(4), LIMITED) is None
    for mode in ("advise", "off"):
        limited = replace(LIMITED, scaling=replace(LIMITED.scaling, mode=mode))
        assert prepare_standing(SEEN, decided(4, query), limited) is None
    for verdict in LIMITS:
        assert prepare_standing(SEEN, decided(4, query, verdict=verdict), LIMITED) is None


def test_batches_are_bounded_to_half_of_the_objective_where_the_policy_bounds_them() -> None:
    query = demand()
    plain = prepare_standing(SEEN, decided(8, query), LIMITED)
    bounded = prepare_standing(SEEN, decided(8, query), BOUNDED)
    assert plain is not None
    assert bounded is not None
    assert all(step.batch_rows is None for step in plain.steps)
    assert bounded.steps == tuple(
        replace(step, batch_rows=float(int(query.bound(step.executors)))) for step in plain.steps
    )
    untriggered = prepare_standing(SEEN, decided(8, replace(query, trigger_s=0.0)), BOUNDED)
    assert untriggered is not None
    assert untriggered.bound(8) == {}


@pytest.mark.parametrize(
    ("count", "seen", "verdict"),
    [
        (20, SEEN, Verdict.STEADY),
        (4, SEEN, Verdict.STEADY),
        (8, replace(SEEN, requested=9), Verdict.SURPLUS),
        (8, replace(SEEN, last_removed=True, last_scaled_s=-100.0), Verdict.STEADY),
        *((8, SEEN, verdict) for verdict in sorted(LIMITS)),
    ],
)
def test_they_are_bounded_too_where_the_driver_adds_no_executor(
    count: int, seen: Observation, verdict: Verdict
) -> None:
    standing = prepare_standing(seen, decided(count, demand(), verdict=verdict), BOUNDED)
    assert standing is not None
    (step,) = standing.steps
    assert (step.executors, step.batch_rows) == (count, float(int(demand().bound(count))))
    found = standing.find("q", 1e6, 1e9)
    assert found is not None
    assert found.executors == count


def test_a_plan_is_made_anew_for_bounds_that_come_or_go_or_change_much() -> None:
    def bound(rows: float | None) -> Standing:
        return Standing(2, 60.0, (StandingStep("q", 2, 100.0, 900.0, rows),))

    assert says_the_same(bound(900.0), bound(1000.0))
    assert not says_the_same(bound(700.0), bound(1000.0))
    assert not says_the_same(bound(None), bound(1000.0))
    assert describe_standing(bound(1000.0)) == "q: batches of at most 1,000 rows on 2"


@given(
    st.floats(0.0, 30.0),
    st.floats(0.001, 0.1),
    st.floats(0.01, 0.85),
    st.integers(1, 12),
    st.sampled_from([0.0, 1.0, 10.0, 60.0]),
)
def test_a_bound_lets_in_what_comes_wherever_batches_without_one_would_keep_up(
    fixed_s: float, row_s: float, filled: float, cores: int, trigger_s: float
) -> None:
    cost = QueryCost(fixed_s, row_s, {"gaps": 0.5}, {"source": StageCost(1.0, 64, 0.02)})
    rate = filled / cost.last_per_row(cores)
    objective_s = 2.5 * (trigger_s or 10.0)
    query = replace(demand(rate=rate), cost=cost, trigger_s=trigger_s, objective_s=objective_s)
    assert query.steady(cores, rate) < OVERLOAD_S
    rows = query.bound(cores)
    lasts_s = max(trigger_s, cost.last(rows, cores))
    assert rows / lasts_s >= 0.999 * rate
