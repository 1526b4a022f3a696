"""A stateless stream scales under the operator, and its status says what limits it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from supervised import Scene, Shown, conditions

from balancedstream.core.samples import BatchSample, SlotHolder, StageSample
from balancedstream.core.scaling.verdicts import Verdict
from balancedstream_operator.api.conditions import SCALING_LIMITED
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.report.limits import LIMITING, name_reason

BATCH = BatchSample("q", 0, 0.0, 9.8, 400, interval_s=10.0, backlog_rows=50.0)


def run_stateless(
    scene: Scene, tasks: int, busy_s: dict[str, float], batch: BatchSample = BATCH
) -> Shown:
    """Two passes over a stream without state, its batches all alike."""
    scene.run_pass()
    scene.start_driver()
    longest_s = sum(busy_s.values()) / tasks
    scene.finish_stateless_batches(
        StageSample("q", 0, "source", 0.0, tasks, longest_s, busy_s), batch
    )
    return scene.run_pass()


@pytest.mark.parametrize("verdict", sorted(LIMITING))
def test_each_verdict_that_limits_has_a_remedy(verdict: Verdict) -> None:
    assert SCALING_LIMITED.find_remedy("True", name_reason(verdict))


def test_a_stateless_stream_whose_executors_are_busy_gets_more_and_has_nothing_to_balance() -> None:
    scene = Scene()
    done = run_stateless(scene, tasks=16, busy_s={"1": 9.5, "2": 9.5})
    assert done.status["desiredExecutors"] == 3
    plan = scene.cluster.plan()
    assert plan is not None
    assert (len(plan.executors), dict(plan.placement)) == (3, {})
    assert conditions(done)["Balanced"] == ("True", "Even")
    assert "no query keeps state: there is nothing to balance" in done.status["reason"]
    assert done.status["utilization"] == 0.95
    # 400 rows in 19 busy seconds, on two cores.
    assert done.status["trueProcessingRate"] == round(400 / 19 * 2, 3)


def test_a_stream_at_its_limit_stays_there_while_a_long_batch_shows_nothing() -> None:
    scene = Scene(executors={"min": 2, "max": 2})
    done = run_stateless(scene, tasks=16, busy_s={"1": 9.5, "2": 9.5})
    assert conditions(done)["ScalingLimited"] == ("True", "AtLimit")
    assert isinstance(scene.measured, Measurement)
    scene.measured = replace(scene.measured, batches=(), stages=())
    assert conditions(scene.run_pass())["ScalingLimited"] == ("True", "AtLimit")
    scene.resource["spec"]["executors"]["max"] = 4
    scene.resource["metadata"]["generation"] = 2
    done = scene.run_pass()
    assert conditions(done)["ScalingLimited"] == ("False", "WithinLimits"), "of the new spec"


def test_a_source_with_too_few_splits_is_a_condition_that_names_both_numbers() -> None:
    scene = Scene(executors={"min": 2, "max": 8})
    scene.executors = dict.fromkeys("1234", 1)
    done = run_stateless(scene, tasks=2, busy_s={"1": 9.6, "2": 9.6})
    assert done.status["desiredExecutors"] == 4, "nothing is added to those that run"
    assert conditions(done)["ScalingLimited"] == ("True", "SourceBound")
    limited = [e for e in done.events if e.reason == "SourceBound"]
    assert [e.warning for e in limited] == [True]
    assert "has 2 splits for 4 cores" in limited[0].message


def test_slots_that_a_query_in_real_time_mode_lacks_are_a_condition_with_both_numbers() -> None:
    scene = Scene(executors={"min": 2, "max": 3})
    run_stateless(scene, tasks=2, busy_s={"1": 1.0, "2": 1.0})
    assert isinstance(scene.measured, Measurement)
    live = SlotHolder("live", "real-time", 6)
    scene.measured = replace(scene.measured, holders=(live,), epoch=1)
    done = scene.run_pass()
    assert done.status["desiredExecutors"] == 3, "as many as are allowed"
    assert conditions(done)["ScalingLimited"] == ("True", "Slots")
    assert "query live in Real-Time Mode is left alone" in done.status["reason"]
    said = "needs 6 slots at once, beside up to 2 tasks of others; there are 2"
    assert said in done.status["reason"]


def test_a_driver_that_takes_most_of_a_batch_is_a_condition_that_names_the_part() -> None:
    slow = BatchSample(
        "q", 0, 0.0, 9.8, 400, interval_s=9.8, backlog_rows=50.0, trigger_s=5.0, planning_s=8.5
    )
    scene = Scene()
    done = run_stateless(scene, tasks=16, busy_s={"1": 1.2, "2": 1.2}, batch=slow)
    assert conditions(done)["ScalingLimited"] == ("True", "DriverBound")
    assert "most of it planning (8.5 s)" in done.status["reason"]
