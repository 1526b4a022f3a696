"""Decides on a measurement, under the demands of schedule, query, people and other streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.observe.floors import FloorQuery
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.observe.measurer import Measurer
from balancedstream_operator.plan.planner import (
    DecisionInput,
    PlanChoice,
    choose_plan,
    find_demands,
)
from balancedstream_operator.plan.shares import Shares
from balancedstream_operator.plan.stream_state import StreamState


class Chooser:
    """Decides for one stream; `measurer` asks its query, `shares` limits its executors."""

    def __init__(
        self,
        stream: Stream,
        measurer: Measurer,
        shares: Shares,
        find_streams: Callable[[], Iterable[Mapping[str, Any]]],
    ) -> None:
        self._stream = stream
        self._measurer = measurer
        self._shares = shares
        self._find_streams = find_streams
        self._floor = FloorQuery()

    def choose(
        self,
        state: StreamState,
        inputs: DecisionInput,
        measurement: Measurement,
        next_epoch: int,
        *,
        approve: str,
        held: str,
        now_s: float,
    ) -> PlanChoice:
        """Decides on a measurement; the arguments are those of `choose_plan` and `Demands`."""
        policy = state.policy
        queried = self._floor.look(
            state.spec.executors.min_query,
            lambda: self._measurer.ask(state.spec, now_s),
            inputs.desired,
            now_s,
        )
        demands = replace(find_demands(policy, queried, now_s), held=held)

        def choose(most: int | None = None, most_why: str = "") -> PlanChoice:
            limited = replace(demands, most=most, most_why=most_why)
            return choose_plan(
                measurement, policy, inputs, next_epoch, approve=approve, demands=limited
            )

        choice = choose()
        if not self._shares.caps.are_set:
            return choice
        grows = choice.plan is not None and len(choice.plan.executors) > inputs.desired
        most, why = self._shares.ask(
            self._stream,
            state.claim(inputs, choice, measurement),
            self._find_streams(),
            now_s,
            takes=grows,
            waits=policy.scaling.acts and not held,
        )
        return choose(most, why) if why else choice
