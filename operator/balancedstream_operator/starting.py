"""What a decision starts from: what was written down, and what the driver says; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from balancedstream.core.plan import Answer, Plan
from balancedstream_operator.measurements import Measurement
from balancedstream_operator.planner import Given
from balancedstream_operator.records import Control, Record
from balancedstream_operator.spec import StreamSpec
from balancedstream_operator.status import parse_time, recall


def bound_epoch(metadata: Mapping[str, Any], now_s: float) -> int:
    """An epoch that no plan of a stream has passed: its age in seconds.

    Plans come with passes and batches, and by far not each second. So even if plan, record, answer
    and status are lost at once, a next plan beyond it is new to the driver.

    Args:
        metadata: of the BalancedStream.
        now_s: seconds since the Unix epoch.

    >>> bound_epoch({"creationTimestamp": "1970-01-01T00:01:00Z"}, 75.5)
    16
    """
    created_s = parse_time(metadata.get("creationTimestamp"))
    return 0 if created_s is None else max(0, math.ceil(now_s - created_s))


@dataclass(frozen=True, slots=True)
class Start:
    """What is known of a stream whose driver runs.

    Attributes:
        record: written with the newest plan.
        plan: the newest one; None before the first.
        status: of the stream before the pass.
        control: whether the driver follows the plan.
        driver: uid of its pod.
    """

    record: Record
    plan: Plan | None
    status: Mapping[str, Any]
    control: Control
    driver: str

    def give(
        self, spec: StreamSpec, measurement: Measurement, answer: Answer, now_s: float
    ) -> Given:
        """The state that a decision on a measurement starts from.

        Args:
            spec: of the stream.
            measurement: of the stream.
            answer: of its driver.
            now_s: seconds since the Unix epoch.
        """
        record = self.record
        # Until the operator has scaled it, an application has as many executors as it wants.
        scaled = record.scaled_s is not None and answer.scales
        sizes = spec.target_ref is None or scaled
        running = len(measurement.executors)
        scaled_s = record.scaled_s
        if spec.target_ref is None:
            scaled_s = scaled_s or parse_time(recall(self.status, "lastScaleTime"))
        return Given(
            plan=self.plan,
            planned_after=record.planned_after,
            moved=record.moved,
            desired=self._recall_desired(spec, running) if sizes else running,
            last_scaled_s=scaled_s,
            last_scale_out=record.scale_out,
            refusals=record.refusals.follow(self.driver, self.control, self.plan),
            refused_s=now_s - record.planned_s if self.control.refusal else None,
            sizes=sizes,
        )

    def _recall_desired(self, spec: StreamSpec, running: int) -> int:
        """How many executors were decided on last: what is written with the plan comes first."""
        if self.record.desired is not None:
            return self.record.desired
        if self.plan:
            return len(self.plan.executors)
        least = max(spec.executors.min, running)
        return int(recall(self.status, "desiredExecutors", least))
