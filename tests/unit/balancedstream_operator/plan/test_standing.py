"""Plans say beforehand what a driver may do by itself, and what it did is taken over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from manifests import make_spec

from balancedstream.core.past import Past
from balancedstream.core.policy import AdmissionPolicy, Policy, ScalingPolicy
from balancedstream.core.samples import BatchSample, StageSample
from balancedstream.core.wire.plan import Answer, Plan, Stood
from balancedstream_operator.api.status import Status
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.answers import Control
from balancedstream_operator.plan.planner import DecisionInput, Demands, PlanChoice, choose_plan
from balancedstream_operator.plan.record import Record, Refusals
from balancedstream_operator.plan.stream_state import StreamState

NOW_S = 1_000.0
FREE, TAKEN = Demands(), Refusals()
POLICY = Policy(scaling=ScalingPolicy(max_executors=8))


def measure(rows: int = 1000, row_s: float = 0.014) -> Measurement:
    """Batches of so many rows every 10 s, on two executors."""
    busy_s = rows * row_s / 2
    return Measurement(
        NOW_S,
        6,
        {"1": 1, "2": 1},
        batches=tuple(
            BatchSample("q", n, NOW_S - 10.0 * (30 - n), busy_s + 0.5, rows, 10.0, 0.0, 10.0)
            for n in range(31)
        ),
        stages=tuple(
            StageSample(
                "q", n, "source", NOW_S - 10.0 * (30 - n), 32, 2 * busy_s / 32,
                {"1": busy_s, "2": busy_s},
            )
            for n in range(31)
        ),
        last_batches={"q": 30},
    )  # fmt: skip


def choose(
    measured: Measurement,
    before: Plan | None = None,
    policy: Policy = POLICY,
    demands: Demands = FREE,
    refusals: Refusals = TAKEN,
) -> PlanChoice:
    start = DecisionInput(before or Plan(4, ("1", "2"), {}), Past(2), refusals)
    return choose_plan(measured, policy, start, 7, demands=demands)


def given() -> Plan:
    """A plan for two executors that allows more."""
    plan = choose(measure()).plan
    assert plan is not None
    return replace(plan, epoch=6)


def test_a_stream_that_meets_its_objective_gets_a_plan_for_when_it_no_longer_does() -> None:
    choice = choose(measure())
    assert choice.plan is not None
    assert choice.plan.executors == ("1", "2")
    standing = choice.plan.standing
    assert standing is not None
    assert [step.executors for step in standing.steps] == [2, 3, 4, 5, 7, 8]
    assert standing.asked == 2
    assert 100.0 < standing.steps[0].rows_per_s < standing.steps[1].rows_per_s


def test_a_plan_is_not_made_again_for_limits_that_are_nearly_the_same() -> None:
    assert choose(measure(row_s=0.0145), given()).plan is None
    renewed = choose(measure(row_s=0.009), given()).plan
    assert renewed is not None
    assert renewed.epoch == 7


def test_where_a_limit_over_all_streams_holds_no_driver_adds_executors_by_itself() -> None:
    plan = choose(measure(), given(), demands=Demands(alone=False)).plan
    assert plan is not None
    assert plan.standing is None


def test_what_was_allowed_is_withdrawn_when_changes_are_excluded_or_the_policy_only_advises() -> (
    None
):
    excluded = Demands(excluded="excluded until 10:00")
    advising = replace(POLICY, scaling=replace(POLICY.scaling, mode="advise"))
    for plan in (
        choose(measure(), given(), demands=excluded).plan,
        choose(measure(), given(), advising).plan,
    ):
        assert plan is not None
        assert (plan.executors, plan.standing) == (("1", "2"), None)


def test_a_pause_withdraws_what_was_allowed_once_and_changes_nothing_else() -> None:
    paused = Demands(held="nothing is to change now")
    plan = choose(measure(), given(), demands=paused).plan
    assert plan == replace(given(), epoch=7, standing=None)
    assert choose(measure(), plan, demands=paused).plan is None


def test_a_driver_that_refuses_to_add_executors_by_itself_gets_plans_without() -> None:
    refusals = Refusals().add(given(), "plan.standing: unknown field, allowed are epoch")
    assert choose(measure(), refusals=refusals).plan is None


def find_state(answer: Answer, record: Record) -> StreamState:
    """The state of the stream when the driver has answered."""
    return StreamState(
        make_spec(), DriverState("Running", "Running", ""), record, given(), answer, Control(True),
        status=Status(desired_executors=2),
    )  # fmt: skip


def read(answer: Answer, record: Record) -> DecisionInput:
    """What a decision starts from when the driver has answered."""
    return find_state(answer, record).build_inputs(measure(), NOW_S)


def test_executors_that_the_driver_added_are_those_that_the_next_decision_starts_from() -> None:
    record = Record(8, epoch=6, past=Past(2, scaled_at_s=100.0, removed=True))
    stood = Stood(4, 990.0, "standing plan 6: 170 rows/s come")
    inputs = read(Answer(6, stood=stood), record)
    assert (inputs.desired, inputs.stood) == (4, stood)
    assert (inputs.past.scaled_at_s, inputs.past.removed, inputs.past.starting) == (
        990.0,
        False,
        True,
    )
    choice = choose_plan(measure(), POLICY, inputs, 7)
    assert choice.decision.scaling.executors == 4, choice.decision.scaling.reason


@pytest.mark.parametrize(
    ("promised", "removed_s_ago", "room", "delay_s"),
    [(150.0, 900.0, 1.3, 60.0), (90.0, 100.0, 1.2, 120.0), (90.0, 900.0, 1.16, 60.0)],
)
def test_executors_that_a_driver_adds_teach_about_the_removal_before_as_those_of_a_plan(
    promised: float, removed_s_ago: float, room: float, delay_s: float
) -> None:
    # 100 rows/s come: fewer than promised, or more.
    at_s = NOW_S - 10.0
    past = Past(2, at_s - removed_s_ago, removed=True, promised={"q": promised}, room=1.2)
    state = find_state(Answer(6, stood=Stood(4, at_s, "")), Record(8, epoch=6, past=past))
    inputs = state.build_inputs(measure(), NOW_S)
    choice = choose_plan(measure(), POLICY, inputs, 7)
    assert choice.plan is not None
    told = state.note(inputs, measure(), choice, NOW_S).past
    assert told.room == pytest.approx(room)
    assert (told.delay_s, told.removed) == (delay_s, False)


def test_a_clock_of_the_driver_that_is_ahead_does_not_hold_up_what_follows() -> None:
    ahead = read(Answer(6, stood=Stood(4, 9e9, "")), Record(8, epoch=6, past=Past(2)))
    assert ahead.past.scaled_at_s == NOW_S


def test_fewer_than_the_operator_has_asked_for_since_are_not_taken_over() -> None:
    known = read(Answer(6, stood=Stood(4, 990.0, "")), Record(8, epoch=6, past=Past(5)))
    assert (known.desired, known.stood) == (5, None)


def test_a_maximum_that_was_lowered_since_holds_for_what_the_driver_added_too() -> None:
    inputs = read(Answer(6, stood=Stood(6, 990.0, "")), Record(8, epoch=6, past=Past(2)))
    lowered = replace(POLICY, scaling=ScalingPolicy(max_executors=3))
    plan = choose_plan(measure(), lowered, inputs, 7).plan
    assert plan is not None
    assert len(plan.executors) == 3
    assert plan.standing is None


def test_a_pause_keeps_what_the_driver_has_added() -> None:
    inputs = read(Answer(6, stood=Stood(4, 990.0, "")), Record(8, epoch=6, past=Past(2)))
    paused = Demands(held="nothing is to change now")
    plan = choose_plan(measure(), POLICY, inputs, 7, demands=paused).plan
    assert plan is not None
    assert (plan.executors, plan.standing) == (("1", "2", "+1", "+2"), None)


def test_batches_are_bounded_where_the_policy_bounds_them_and_decisions_know_it() -> None:
    acts = replace(POLICY, admission=AdmissionPolicy(mode="auto"))
    plan = choose(measure(), policy=acts).plan
    assert plan is not None
    assert plan.standing is not None
    bound = plan.standing.bound(2)["q"]
    assert 0.0 < bound < 2_000.0
    applied = replace(measure(), epoch=plan.epoch)
    again = choose(applied, before=plan, policy=acts)
    assert (again.plan, again.waits) == (None, "")
    assert all(demand.bounded for demand in again.decision.scaling.demands)
    free = choose(applied, before=plan).plan
    assert free is not None
    assert free.standing is not None
    assert free.standing.bound(2) == {}
