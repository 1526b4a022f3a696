"""What the status and the events of a stream say is what the new plan does."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from manifests import make_spec
from observed import POLICIES, check_plan, observations
from supervised import STREAM

from balancedstream.core.decisions import raise_minimum
from balancedstream.core.observations import Observation, PlanInForce
from balancedstream.core.past import Past
from balancedstream.core.policy import Policy
from balancedstream.core.wire.plan import Answer, Plan
from balancedstream_operator.api.status import Status
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.answers import AnswerFound, Control
from balancedstream_operator.plan.planner import DecisionInput, Demands, PlanChoice, choose_plan
from balancedstream_operator.plan.record import Refusals
from balancedstream_operator.reconcile.outcome import Decided, PassOutcome
from balancedstream_operator.report.draft import Report
from balancedstream_operator.report.report import report

EPOCH = 4
RUNNING = DriverState("Starting", "DriverRunning", "pod clicks-driver-0 is running", running=True)


def measure(seen: Observation) -> Measurement:
    """What Prometheus says of an application that is on its way as an observation says."""
    before = seen.in_force
    return Measurement(
        seen.now_s,
        EPOCH - (before.waits != ""),
        seen.executors,
        seen.tasks,
        seen.batches,
        last_batches={task.query: 12 for task in seen.tasks},
        under_way=dict.fromkeys(before.under_way, 1),
        keys=seen.keys,
        keys_under_way=dict.fromkeys(before.settling, 1),
        stages=seen.stages,
        hidden=seen.hidden,
    )


def plan_before(seen: Observation) -> Plan:
    """The plan whose moves and keys are under way."""
    names = (*seen.executors, *(f"+{n}" for n in range(max(0, seen.asked - len(seen.executors)))))
    placement = {
        operator: tuple(
            names.index(targets[p]) if targets.get(p) in names else -1
            for p in range(max(targets, default=-1) + 1)
        )
        for operator, targets in seen.in_force.under_way.items()
    }
    return Plan(EPOCH, names, placement, key_placements=seen.in_force.key_placements)


def take_over(measurement: Measurement, given: DecisionInput) -> PlanInForce:
    """What the next plan takes over, as the tests of the core need it."""
    plan = given.plan
    assert plan is not None
    refused = set(given.refusals.keys)
    if given.refusals.all_keys:
        refused |= {(key.query, key.key) for key in measurement.keys}
    placed = () if given.refusals.all_keys else plan.key_placements
    return PlanInForce(
        {} if given.refused_s is not None else {o: plan.owners(*o) for o in measurement.under_way},
        frozenset(measurement.keys_under_way),
        tuple(p for p in placed if (p.query, p.key) not in refused),
        frozenset(refused),
    )


def report_on(measurement: Measurement, given: DecisionInput, choice: PlanChoice) -> Report:
    decided = Decided(measurement, given, choice, silent_s=None, shortage="")
    outcome = PassOutcome(
        STREAM,
        spec=make_spec(),
        partitions=9,
        driver=RUNNING,
        answer=AnswerFound(Answer(EPOCH)),
        control=Control(follows=True),
        decided=decided,
    )
    return report(outcome, Status(), 1, measurement.scraped_s)


@given(
    observations(),
    POLICIES,
    st.data(),
    st.none() | st.integers(1, 4),
    st.sampled_from(["", "", "the driver has not answered"]),
)
@settings(max_examples=300, deadline=None)
def test_status_and_events_say_what_the_plan_does(
    seen: Observation, policy: Policy, data: st.DataObject, most: int | None, held: str
) -> None:
    assume(policy.scaling.max_executors)
    refusals = Refusals(
        keys=tuple(sorted(seen.in_force.refused_keys)), all_keys=data.draw(st.booleans())
    )
    measurement = measure(seen)
    start = DecisionInput(
        plan_before(seen),
        Past(seen.asked, seen.last_scaled_s),
        refusals,
        refused_s=0.0 if seen.in_force.repeat else None,
        sizes=data.draw(st.sampled_from([True, True, False])),
    )
    if not start.sizes:
        start = replace(start, past=replace(start.past, requested=len(seen.executors)))
    why = f"the operator's limits leave {most}" if most is not None else ""
    demands = Demands(seen.excluded, seen.floor, seen.floor_why, most, why, held)

    def choose(approve: str = "") -> PlanChoice:
        return choose_plan(measurement, policy, start, EPOCH + 1, approve=approve, demands=demands)

    choice = choose()
    if choice.advice.id and data.draw(st.booleans()):
        advised = choice.advice
        choice = choose(advised.id)
        assert choice.advice == advised
        assert choice.approved == (choice.plan is not None)
        if choice.approved and policy.balance.mode == "advise":
            for query, operator in choice.decision.moving:
                why = choice.decision.describe_reason((query, operator))
                assert f"query {query}, operator {operator}: {why}" in advised.reason
    in_force = take_over(measurement, start)
    then = replace(seen, requested=start.desired, in_force=in_force)
    check_plan(then, choice.decision, choice.plan)
    if choice.waits or held:
        assert choice.plan is None

    said = report_on(measurement, start, choice)
    status = said.status
    made = {entry.kind: entry.reason for entry in status.decisions or ()}
    told = {event.reason: event.message for event in said.events}
    moving, plan = choice.decision.moving, choice.plan
    assert ("move" in made) == ("Moving" in told) == bool(moving)
    if moving:
        assert plan is not None
        assert told["Moving"] == made["move"]
        assert choice.decision.describe_reason(moving[0])[:200] in made["move"]
    scales = plan is not None and len(plan.executors) != start.desired
    assert ("scale" in made) == ("Scaling" in told) == scales
    count = len(plan.executors) if plan is not None else start.desired
    assert status.desired_executors == count
    if scales:
        assert f"from {start.desired} to {count}" in made["scale"]
    if most is not None and plan is not None and scales:
        assert count <= max(most, 1)
    if demands.excluded and scales:
        limits = raise_minimum(policy, seen.floor).scaling
        assert not policy.scaling.acts or not limits.min_executors <= start.desired, "limits only"
    if plan is None and status.imbalance is not None:
        assert not re.search(r"operator \d+: (\d+ key moves?: |\d+ moves?: )", status.reason or "")
