"""The state of a stream before a decision, and the record after it: pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from balancedstream.core.policy import Policy
from balancedstream.core.wire.plan import Answer, Plan
from balancedstream_operator.api.job import measure_mib
from balancedstream_operator.api.spec import StreamSpec
from balancedstream_operator.api.status import Status, parse_time
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.plan.answers import Control
from balancedstream_operator.plan.planner import DecisionInput, PlanChoice
from balancedstream_operator.plan.record import Record
from balancedstream_operator.plan.shares import Claim


def bound_epoch(metadata: Mapping[str, Any], now_s: float) -> int:
    """An epoch that no plan of a stream has passed: its age in seconds.

    Plans come with passes and batches, far less often than once a second. So even after a loss of
    plan, record, answer and status, a plan with a higher epoch is new to the driver.

    >>> bound_epoch({"creationTimestamp": "1970-01-01T00:01:00Z"}, 75.5)
    16
    """
    created_s = parse_time(metadata.get("creationTimestamp"))
    return 0 if created_s is None else max(0, math.ceil(now_s - created_s))


@dataclass(frozen=True, slots=True)
class StreamState:
    """The state of a stream whose driver runs, without its measurement.

    Attributes:
        spec: of the stream.
        driver: state of the driver.
        record: written with the newest plan.
        plan: the newest plan; None before the first.
        answer: of the driver; epoch 0 if it never answered.
        control: whether the driver follows the plan.
        status: of the stream before the pass.
    """

    spec: StreamSpec
    driver: DriverState
    record: Record
    plan: Plan | None
    answer: Answer
    control: Control
    status: Status

    @property
    def policy(self) -> Policy:
        """The policy of the spec; without scaling if the driver cannot scale."""
        policy = self.spec.policy
        if self.answer.scales:
            return policy
        return replace(policy, scaling=replace(policy.scaling, mode="off"))

    def build_inputs(self, measurement: Measurement, now_s: float) -> DecisionInput:
        """The state that a decision on a measurement starts from."""
        record, is_ours = self.record, self.spec.target_ref is None
        # A target chooses its own number of executors until the operator has scaled it.
        sizes = is_ours or (record.past.scaled_at_s is not None and self.answer.scales)
        running = len(measurement.executors)
        scaled_at_s = record.past.scaled_at_s
        if is_ours:
            told_s = parse_time(self.status.last_scale_time)
            scaled_at_s = scaled_at_s or (None if told_s is None else min(told_s, now_s))
        requested = self._recall_requested(running) if sizes else running
        past = replace(record.past, requested=requested, scaled_at_s=scaled_at_s)
        stood = self.answer.stood if sizes else None
        if stood is not None and stood.executors <= requested:
            stood = None
        if stood is not None:
            past = past.stand(stood.executors, min(stood.at_s, now_s))
        return DecisionInput(
            plan=self.plan,
            past=past,
            refusals=record.refusals.follow(self.driver.uid, self.control, self.plan),
            refused_s=now_s - record.planned_s if self.control.refusal else None,
            sizes=sizes,
            stood=stood,
        )

    def claim(self, inputs: DecisionInput, choice: PlanChoice, measurement: Measurement) -> Claim:
        """The stream's claim on the limits over all streams."""
        executors = self.spec.executors
        cores, memory_mib = executors.cores, measure_mib(executors)
        if self.spec.target_ref is not None:
            cores, memory_mib = max(measurement.executors.values(), default=1), 0
        wants = choice.decision.scaling.executors
        return Claim(inputs.desired, executors.min, wants, cores, memory_mib)

    def note(
        self, inputs: DecisionInput, measurement: Measurement, choice: PlanChoice, now_s: float
    ) -> Record:
        """The record after a decision; the operator writes it with the plan of `choice`, if any."""
        before = inputs.past
        if inputs.stood is not None:
            before = before.regret(self.record.past, choice.decision.scaling)
        past = before.after(
            choice.decision,
            choice.plan,
            now_s,
            measurement.last_batches,
            joined=len(measurement.executors) >= inputs.desired,
        )
        if choice.plan is None:
            # The other parts are guesses without a plan.
            known = replace(
                self.record.past,
                scale_outs=past.scale_outs,
                start_s=past.start_s,
                starting=past.starting,
            )
            return replace(self.record, past=known)
        return replace(
            self.record,
            epoch=choice.plan.epoch,
            past=past,
            planned_s=now_s,
            refusals=inputs.refusals,
            known_refusal=self.answer.refused,
            approved=choice.advice.id if choice.approved else self.record.approved,
        )

    def _recall_requested(self, running: int) -> int:
        """The number of executors by the last decision: record first, then plan, then status."""
        if self.record.past.requested is not None:
            return self.record.past.requested
        if self.plan:
            return len(self.plan.executors)
        least = max(self.spec.executors.min, running)
        desired = self.status.desired_executors
        return least if desired is None else desired
