"""The outcome of a pass over a stream: values only."""

from __future__ import annotations

from dataclasses import dataclass

from balancedstream.core.money import Price
from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.spec import StreamSpec
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.advice import Advice
from balancedstream_operator.plan.answers import AnswerFound, Control
from balancedstream_operator.plan.planner import DecisionInput, PlanChoice
from balancedstream_operator.plan.record import PlanFound
from balancedstream_operator.repartition.steps import Repartition


@dataclass(frozen=True, slots=True)
class MissingMeasurements:
    """Why the operator could not decide.

    Attributes:
        reason: the missing measurements, for people.
        holds: whether so many passes lacked them that the operator holds the stream as it is.
    """

    reason: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision on a measurement, and the operator's action.

    Attributes:
        measurement: of the stream.
        inputs: the state that the decision started from.
        choice: the decision, and the plan that the operator wrote for it.
        partitions: the advice to have more state partitions; without an id if there is none.
        silent_s: as in `Control`.
        shortage: why executors have been missing for long; empty if none have.
        scales: whether the driver adds and removes executors.
    """

    measurement: Measurement
    inputs: DecisionInput
    choice: PlanChoice
    silent_s: float | None
    shortage: str
    scales: bool = True
    partitions: Advice = Advice()  # noqa: RUF009 - frozen


@dataclass(frozen=True, slots=True)
class Approval:
    """The operator's answer to an approval.

    Attributes:
        proposal: id of the approved proposal.
        epoch: of the plan that carries the proposal out; 0 if no plan does.
        partitions: that spec.partitions is set to; 0 if it is not.
        refusal: why no plan does; empty if one does.
        period: in which it needs nobody's approval, for people; empty if somebody approved it.
    """

    proposal: str
    epoch: int = 0
    refusal: str = ""
    partitions: int = 0
    period: str = ""


@dataclass(frozen=True, slots=True)
class PassOutcome:
    """The outcome of a pass over a stream; a step that the pass did not reach left None.

    Attributes:
        stream: of the pass.
        invalid: why the operator does not accept the spec; empty if it does.
        spec: None if the operator does not accept it.
        unknown: fields of the spec that this release does not know.
        removed: knobs of earlier releases in the spec, each with the reason why it has no effect.
        partitions: number of state partitions of the stream.
        repartition: a change of that number, under way or over; None if none was asked for.
        refusal: why the API server or a rule refused a child; empty if the operator applied all.
        waits: whether the cause of the refusal ends by itself.
        driver: state of the driver, also after a refused spec or child; None if unknown.
        begun: whether the driver's application is new, so that a new history of epochs begins.
        plan_found: findings about the plan's ConfigMap.
        answer: the driver's answer to the plans; None if the driver does not run.
        control: whether the driver follows the newest plan; None if it does not run.
        missing: why there is no measurement; None with one, or if the driver does not run.
        decided: on the measurement; None without one.
        paused: why somebody paused the stream; empty if nobody did.
        approval: the operator's answer to an approval; None without one.
        due_in_s: seconds until the next decision, if nothing is new by then.
        price: of an executor; None without one.
    """

    stream: Stream
    invalid: str = ""
    spec: StreamSpec | None = None
    unknown: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    partitions: int = 0
    repartition: Repartition | None = None
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
    price: Price | None = None
