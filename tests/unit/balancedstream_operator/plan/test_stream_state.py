"""What is written down with a decision."""

from __future__ import annotations

from manifests import make_spec

from balancedstream.core.decisions import Decision
from balancedstream.core.observations import ScaleOut
from balancedstream.core.past import Past
from balancedstream.core.scaling.executors import ScalingDecision
from balancedstream.core.scaling.verdicts import Verdict
from balancedstream.core.wire.plan import Answer, Plan
from balancedstream_operator.api.status import Status
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.answers import judge_control
from balancedstream_operator.plan.planner import Demands, PlanChoice
from balancedstream_operator.plan.record import Record
from balancedstream_operator.plan.stream_state import StreamState

NOW_S = 20.0
PLAN = Plan(3, ("1", "2"), {})
REFUSES = Answer(2, refused="there is no executor 9")


def test_a_plan_that_was_refused_stays_refused_when_a_scale_out_is_found_to_have_failed() -> None:
    record = Record(
        8, epoch=3, planned_s=10.0, past=Past(scale_outs=(ScaleOut("q", 5.0, 1, 2, 9.0, 0.5),))
    )
    control = judge_control(PLAN, record.planned_s, record.known_refusal, REFUSES, NOW_S)
    assert control.refusal
    start = StreamState(
        make_spec(),
        DriverState("Running", "Running", ""),
        record,
        PLAN,
        REFUSES,
        control,
        status=Status(),
    )
    measurement = Measurement(15.0, 2, {"1": 1, "2": 1})
    failed = ScaleOut("q", 5.0, 1, 2, 9.0, 0.5, failed=True)
    scaling = ScalingDecision(2, Verdict.STEADY, "", judged=(failed,))
    choice = PlanChoice(Decision({}, {}, scaling, ("1", "2"), {}), Demands())

    written = start.note(start.build_inputs(measurement, NOW_S), measurement, choice, NOW_S)
    assert written.past.scale_outs == (failed,)
    assert judge_control(PLAN, written.planned_s, written.known_refusal, REFUSES, NOW_S) == control
