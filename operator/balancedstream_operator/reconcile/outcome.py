"""What a pass over a stream found and did: values only."""

from __future__ import annotations

from dataclasses import dataclass

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.spec import StreamSpec
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.answers import AnswerFound, Control
from balancedstream_operator.plan.planner import DecisionInput, PlanChoice
from balancedstream_operator.plan.record import PlanFound


@dataclass(frozen=True, slots=True)
class MissingMeasurements:
    """Why nothing could be decided.

    Attributes:
        reason: what is missing, for a person.
        holds: whether it is missing for so many passes that the operator holds the stream as it is.
    """

    reason: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided on a measurement, and what was done about it.

    Attributes:
        measurement: of the stream.
        inputs: the state that the decision started from.
        choice: the decision, and the plan that was written for it.
        silent_s: for how long the driver has left the plan in force unanswered; None if it answered
            or still has time.
        shortage: why executors have been missing for long; empty if none have.
        scales: whether the driver adds and removes executors.
    """

    measurement: Measurement
    inputs: DecisionInput
    choice: PlanChoice
    silent_s: float | None
    shortage: str
    scales: bool = True


@dataclass(frozen=True, slots=True)
class Approval:
    """What became of an approval.

    Attributes:
        proposal: id of the proposal that somebody approved.
        epoch: of the plan that carries it out; 0 if none does.
        refusal: why none does; empty if one does.
    """

    proposal: str
    epoch: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class PassOutcome:
    """What a pass over a stream found and did, in its order; what it did not come to is None.

    Attributes:
        stream: which.
        invalid: why the spec is not accepted; empty if it is.
        spec: what the user asks for; None if it is not accepted.
        unknown: fields of the spec that this release does not know.
        removed: knobs of earlier releases in the spec, each with the reason why it has no effect.
        partitions: state partitions of the stream.
        refusal: why a child was refused, by the API server or a rule; empty if all were applied.
        waits: whether the cause of the refusal ends by itself.
        driver: the state of the driver, also if the spec is not accepted or a child was refused;
            None if it is unknown.
        begun: whether the driver is of another application than the plans before, so that a new
            history of epochs begins.
        plan_found: what the plan's ConfigMap held.
        answer: the driver's answer to the plans; None if the driver does not run.
        control: whether the driver follows the newest plan; None if it does not run.
        missing: why there is no measurement; None if there is one, or if the driver does not run.
        decided: on the measurement; None without one.
        paused: why somebody paused the stream; empty if nobody did.
        approval: what became of an approval; None if there was none.
        due_in_s: seconds until the stream is decided on again, if nothing is new by then.
    """

    stream: Stream
    invalid: str = ""
    spec: StreamSpec | None = None
    unknown: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    partitions: int = 0
    refusal: str = ""
    waits: bool = False
    driver: DriverState | None = None
    begun: bool = False
    plan_found: PlanFound = PlanFound()  # noqa: RUF009 - frozen
    answer: AnswerFound | None = None
    control: Control | None = None
    missing: MissingMeasurements | None = None
    decided: Decided | None = None
    paused: str = ""
    approval: Approval | None = None
    due_in_s: float = 0.0
