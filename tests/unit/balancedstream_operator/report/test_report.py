"""What the status and the events say of what a pass found and did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from manifests import STREAM, make_spec

from balancedstream.core.money import Price
from balancedstream.core.past import Past
from balancedstream.core.policy import Policy
from balancedstream.core.samples import BatchSample
from balancedstream.core.wire.plan import Answer, Plan
from balancedstream_operator.api.status import (
    Cost,
    LoadedAhead,
    PastDecision,
    Preparations,
    Status,
    write_status,
)
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.answers import AnswerFound, Control
from balancedstream_operator.plan.planner import DecisionInput, choose_plan
from balancedstream_operator.plan.record import PlanFound
from balancedstream_operator.reconcile.outcome import (
    Decided,
    MissingMeasurements,
    PassOutcome,
)
from balancedstream_operator.report.draft import Report
from balancedstream_operator.report.report import report, report_failure

NOW_S = 10_000.0
RUNNING = DriverState("Starting", "DriverRunning", "pod clicks-driver-0 is running", running=True)
UNKNOWN = Status()
PLAN = Plan(3, ("1", "2"), {})


def report_on(before: Status = UNKNOWN, **found: Any) -> Report:
    """What is said of a pass that found what is given."""
    outcome = PassOutcome(STREAM, spec=make_spec(), partitions=48, **found)
    return report(outcome, before, 1, NOW_S)


def decide(
    measurement: Measurement, *, plan: Plan | None = None, planned_after: int = 0, **changes: Any
) -> Decided:
    """What a pass decides on a measurement, with the default policy."""
    given = DecisionInput(plan, Past(2, planned_after={"q": planned_after}))
    made: dict[str, Any] = {
        "silent_s": None,
        "shortage": "",
        **changes,
    }
    choice = choose_plan(measurement, Policy(), given, 4)
    return Decided(measurement, given, choice, **made)


def measured(*batches: BatchSample, **changes: Any) -> Measurement:
    last_batches = {b.query: b.batch for b in sorted(batches, key=lambda b: b.batch)}
    return Measurement(
        NOW_S,
        3,
        {"1": 1, "2": 1},
        batches=batches,
        last_batches=last_batches,
        finished_s={b.query: b.finished_s for b in batches},
        backlog_rows={b.query: b.backlog_rows for b in batches if b.backlog_rows is not None},
        **changes,
    )


def batch(age_s: float, *, backlog: float | None = None, number: int = 9) -> BatchSample:
    return BatchSample("q", number, NOW_S - age_s, 5.0, 400, 10.0, backlog)


def message(made: Report, kind: str) -> str:
    (found,) = [c for c in made.status.conditions if c.type == kind]
    assert found.message is not None
    return found.message


def outline(made: Report, kind: str) -> tuple[str, str]:
    (found,) = [c for c in made.status.conditions if c.type == kind]
    return found.status, found.reason


def reasons(made: Report) -> list[str]:
    return [event.reason for event in made.events]


def test_a_stream_costs_what_its_executors_do_beside_its_maximum_until_it_stops() -> None:
    found: dict[str, Any] = {"driver": RUNNING, "decided": decide(measured(batch(20.0)))}
    assert report_on(**found).status.cost is None
    most = make_spec().executors.max
    running = report_on(price=Price(0.5, "EUR"), **found).status
    assert running.cost == Cost(
        spent_per_day=24.0, saved_per_day=(most - 2) * 12.0, max_executors=most, currency="EUR"
    )
    assert write_status(running)["cost"]["savedPerDay"] == (most - 2) * 12.0
    stopped = DriverState("Suspended", "Suspended", "nothing runs")
    assert report_on(running, price=Price(0.5, "EUR"), driver=stopped).status.cost is None


@pytest.mark.parametrize(
    ("batches", "outlined", "says"),
    [
        pytest.param([], ("Unknown", "NoBatchYet"), "can take long", id="none yet"),
        pytest.param([batch(20.0)], ("True", "BatchesProgress"), "finished batch 9", id="recent"),
        pytest.param([batch(601.0)], ("True", "Idle"), "601 s ago; there has been no", id="idle"),
        pytest.param(
            [batch(601.0, backlog=0.0)], ("True", "Idle"), "no input since", id="nothing waits"
        ),
        pytest.param(
            [batch(601.0, backlog=70.0)], ("False", "NoProgress"), "70 rows wait", id="hangs"
        ),
    ],
)
def test_running_follows_from_the_last_batch_and_the_backlog(
    batches: list[BatchSample], outlined: tuple[str, str], says: str
) -> None:
    made = report_on(driver=RUNNING, decided=decide(measured(*batches)))
    assert outline(made, "Running") == outlined
    assert says in message(made, "Running")


@pytest.mark.parametrize(
    ("longest_s", "age_s", "outlined"),
    [
        pytest.param(700.0, 2000.0, ("True", "BatchesProgress"), id="as long as before"),
        pytest.param(700.0, 2101.0, ("False", "NoProgress"), id="three times as long"),
        pytest.param(30.0, 601.0, ("False", "NoProgress"), id="ten minutes in any case"),
    ],
)
def test_a_query_hangs_by_what_its_batches_take(
    longest_s: float, age_s: float, outlined: tuple[str, str]
) -> None:
    found = measured(batch(age_s, backlog=70.0), longest_s={"q": longest_s})
    assert outline(report_on(driver=RUNNING, decided=decide(found)), "Running") == outlined


def test_a_query_that_hangs_is_seen_beside_one_that_does_not() -> None:
    other = replace(batch(5.0, backlog=3.0), query="r")
    made = report_on(driver=RUNNING, decided=decide(measured(batch(700.0, backlog=70.0), other)))
    assert outline(made, "Running") == ("False", "NoProgress")
    assert "of query q finished 700 s ago" in message(made, "Running")


def test_a_stream_whose_batches_outlast_the_window_runs() -> None:
    long_ago = {"q": NOW_S - 400.0}
    found = Measurement(NOW_S, 3, {"1": 1}, last_batches={"q": 9}, finished_s=long_ago)
    made = report_on(driver=RUNNING, decided=decide(found))
    assert outline(made, "Running") == ("True", "BatchesProgress")
    assert made.status.phase == "Running"


def test_a_stream_that_has_waited_for_data_since_its_start_runs() -> None:
    made = report_on(driver=RUNNING, decided=decide(measured(idle_s={"q": NOW_S - 5.0})))
    assert outline(made, "Running") == ("True", "Idle")
    assert outline(made, "Ready")[0] == "True"


@pytest.mark.parametrize(
    ("partitions", "keys", "outlined", "says"),
    [
        (0, 0, ("False", "Settled"), "no state partition is moving"),
        (3, 0, ("True", "MovesUnderWay"), "3 state partitions are moving"),
        (0, 2, ("True", "MovesUnderWay"), "2 keys are moving"),
        (3, 2, ("True", "MovesUnderWay"), "3 state partitions and 2 keys are moving"),
    ],
)
def test_moves_are_counted_while_they_last(
    partitions: int, keys: int, outlined: tuple[str, str], says: str
) -> None:
    found = measured(batch(1.0), under_way={("q", 0): partitions}, keys_under_way={"q": keys})
    made = report_on(driver=RUNNING, decided=decide(found))
    assert outline(made, "Migrating") == outlined
    assert message(made, "Migrating") == says


def test_moves_say_how_many_of_them_are_being_prepared() -> None:
    found = measured(batch(1.0), under_way={("q", 0): 3}, preparing=2)
    made = report_on(driver=RUNNING, decided=decide(found))
    assert message(made, "Migrating") == (
        "3 state partitions are moving, 2 with state that is loaded ahead now"
    )


def test_the_status_says_what_became_of_state_that_was_loaded_ahead() -> None:
    loaded = LoadedAhead(moves=2, state_bytes=1500, seconds=3.0)
    found = measured(batch(1.0), preparations=Preparations(used=loaded))
    made = report_on(driver=RUNNING, decided=decide(found))
    used = {"moves": 2, "stateBytes": 1500, "seconds": 3.0}
    # What is none is named: a merge patch would leave what was there before.
    assert write_status(made.status)["preparations"] == {
        "used": used,
        "failed": None,
        "wasted": None,
    }
    older = report_on(driver=RUNNING, decided=decide(measured(batch(1.0))))
    assert older.status.preparations is None


def test_a_missing_measurement_is_reported_and_holds_the_stream_only_when_it_lasts() -> None:
    missing = MissingMeasurements("Prometheus cannot be queried", holds=False)
    made = report_on(driver=RUNNING, answer=AnswerFound(), missing=missing)
    assert outline(made, "MetricsAvailable") == ("False", "Missing")
    assert "Fallback" not in {c.type for c in made.status.conditions}
    missing = MissingMeasurements("Prometheus cannot be queried", holds=True)
    made = report_on(driver=RUNNING, answer=AnswerFound(), missing=missing)
    assert outline(made, "Fallback") == ("True", "MetricsMissing")
    assert made.status.reason == (
        "Prometheus cannot be queried. The stream keeps running as it is: nothing is moved, added "
        "or removed"
    )


def test_an_answer_that_cannot_be_read_is_an_event_and_keeps_the_epoch() -> None:
    answer = AnswerFound(unreadable="answer: no JSON")
    made = report_on(Status(applied_epoch=2), driver=RUNNING, answer=answer, control=Control(None))
    assert ("AnswerUnreadable", "answer: no JSON", True) in [
        (e.reason, e.message, e.warning) for e in made.events
    ]
    assert made.status.applied_epoch == 2


def test_what_was_refused_of_other_plans_is_an_event_only_while_it_is_new() -> None:
    refused = Answer(2, "plan.epoch: 0 is older than 2")
    for anew, expected in ((True, ["PlanRefused"]), (False, [])):
        answer = AnswerFound(refused, refused_anew=anew)
        made = report_on(driver=RUNNING, answer=answer, control=Control(True))
        assert [r for r in reasons(made) if r == "PlanRefused"] == expected
        assert made.status.applied_epoch == 2
        assert outline(made, "PlanRefused") == ("False", "PlanAccepted")


def test_a_refused_plan_is_a_condition_with_the_words_of_the_driver_until_one_is_accepted() -> None:
    answer = AnswerFound(Answer(2, "plan.budget_s: unknown field"), refused_anew=True)
    control = Control(False, refusal="plan.budget_s: unknown field")
    made = report_on(driver=RUNNING, answer=answer, control=control)
    assert outline(made, "PlanRefused") == ("True", "PlanRefused")
    assert "plan.budget_s: unknown field" in message(made, "PlanRefused")
    assert reasons(made).count("PlanRefused") == 1
    before = made.status
    waiting = report_on(before, driver=RUNNING, answer=answer, control=Control(None))
    assert outline(waiting, "PlanRefused")[0] == "True", "the next plan is not answered yet"
    accepted = AnswerFound(Answer(4))
    made = report_on(before, driver=RUNNING, answer=accepted, control=Control(True))
    assert outline(made, "PlanRefused") == ("False", "PlanAccepted")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (PlanFound(), []),
        (PlanFound(overwritten=True), ["PlanOverwritten"]),
        (PlanFound(overwritten=True, adopted=True), ["PlanAdopted"]),
    ],
)
def test_what_others_did_to_the_plan_is_an_event(found: PlanFound, expected: list[str]) -> None:
    events = reasons(report_on(driver=RUNNING, plan_found=found))
    assert [reason for reason in events if reason.startswith("Plan")] == expected


def test_a_pass_that_failed_is_a_condition_that_names_the_error_and_leaves_all_else() -> None:
    before = Status(phase="Running", plan_epoch=7, observed_generation=3)
    made = report_failure(RuntimeError("q is broken\nmore"), before, NOW_S)
    status = made.status
    assert (status.phase, status.plan_epoch, status.observed_generation) == ("Running", 7, 3)
    assert outline(made, "PassFailed") == ("True", "RuntimeError")
    assert message(made, "PassFailed").startswith(
        "the last pass failed: RuntimeError: q is broken. The pods of"
    )
    assert [(e.reason, e.warning) for e in made.events] == [("RuntimeError", True)]
    made = report_on(status, driver=RUNNING)
    assert outline(made, "PassFailed") == ("False", "Completed")


def test_a_plan_that_cannot_be_read_is_an_event_that_says_why() -> None:
    made = report_on(driver=RUNNING, plan_found=PlanFound(unreadable="plan.epoch: missing"))
    (event,) = [e for e in made.events if e.reason == "PlanUnreadable"]
    assert event.warning
    assert event.message == "the plan cannot be used and will be replaced: plan.epoch: missing"


def test_a_silent_driver_is_named_with_its_plan_and_how_long_it_has_been_silent() -> None:
    decided = decide(measured(batch(1.0)), plan=PLAN, silent_s=75.0)
    made = report_on(driver=RUNNING, decided=decided)
    assert outline(made, "Fallback") == ("True", "DriverSilent")
    assert message(made, "Fallback").startswith(
        "the driver has not answered plan 3 for 75 s: its log says why"
    )


@pytest.mark.parametrize(
    ("passed", "moving", "reported"), [(3, 0, False), (4, 1, False), (4, 0, True)]
)
def test_the_effect_of_a_plan_is_reported_once_four_batches_ran_and_nothing_moves(
    passed: int, moving: int, reported: bool
) -> None:
    decision = PastDecision(kind="scale", epoch=3, reason="why")
    batches = [batch(10.0 * age, number=10 + passed - age) for age in range(3)]
    found = measured(*batches, under_way={("q", 0): moving})
    decided = decide(found, plan=PLAN, planned_after=10)
    made = report_on(Status(decisions=(decision,)), driver=RUNNING, decided=decided)
    assert made.status.utilization is None, "three batches say too little"
    effect = made.status.decisions[0].effect
    assert effect == ("2 executors" if reported else None)


def test_executors_that_are_missing_are_reported_with_the_words_of_kubernetes() -> None:
    found = Measurement(NOW_S, 3, {"1": 1}, batches=(batch(1.0),))
    for shortage, outlined in (("", "False"), ("0/3 nodes are available", "True")):
        made = report_on(driver=RUNNING, decided=decide(found, shortage=shortage))
        assert outline(made, "ScalingLimited")[0] == outlined
    assert outline(made, "ScalingLimited")[1] == "ExecutorsPending"
    assert message(made, "ScalingLimited") == (
        "1 of 2 executors did not start: 0/3 nodes are available. Look at them with kubectl get "
        "pods --selector spark-role=executor,balancedstream.io/stream=clicks"
    )


def test_a_spec_that_is_not_accepted_leaves_all_else_as_it_was() -> None:
    before = Status(partitions=48, plan_epoch=7, phase="Running")
    made = report(PassOutcome(STREAM, invalid="spec.image: missing"), before, 2, NOW_S)
    status = made.status
    assert (status.partitions, status.plan_epoch) == (48, 7)
    assert (status.phase, status.reason) == ("Invalid", "spec.image: missing")
    judged = {"Accepted", "Ready", "Reconciling", "Stalled", "Paused", "PassFailed"}
    assert known(status) == judged, "whether it is balanced is not measured"
    assert reasons(made) == ["InvalidSpec"]


def test_a_refused_child_is_a_failing_stream_whose_driver_is_not_judged() -> None:
    refusal = "the API server did not apply StatefulSet clicks-driver: no"
    made = report_on(refusal=refusal, driver=DriverState("Pending", "NoDriver", "no pod"))
    assert made.status.phase == "Failing"
    assert outline(made, "Running") == ("False", "Refused")
    judged = {"Accepted", "Ready", "Reconciling", "Stalled", "Running", "Paused", "PassFailed"}
    judged.add("Excluded")
    assert known(made.status) == judged


def known(status: Status) -> set[str]:
    """The conditions that are True or False."""
    return {c.type for c in status.conditions if c.status != "Unknown"}
