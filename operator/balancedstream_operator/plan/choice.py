"""Decides on a measurement, under all that is asked of the decision from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.observe.floors import FloorAnswer, FloorQuery
from balancedstream_operator.observe.measurement import Measurement
from balancedstream_operator.observe.measurer import Measurer
from balancedstream_operator.plan.planner import (
    DecisionInput,
    Demands,
    PlanChoice,
    choose_plan,
    find_demands,
)
from balancedstream_operator.plan.shares import Shares
from balancedstream_operator.plan.stream_state import StreamState


@dataclass(frozen=True, slots=True)
class Chosen:
    """A decision, and what it was made under.

    Attributes:
        choice: the decision, and the plan that it asks for.
        demands: on the decision.
        queried: what the stream's query asks for.
    """

    choice: PlanChoice
    demands: Demands
    queried: FloorAnswer


class Chooser:
    """Decides for one stream.

    Args:
        stream: which.
        measurer: asks the stream's query.
        shares: of all streams, under the operator's limits over all of them.
        find_streams: gives all BalancedStreams that are known.
    """

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
    ) -> Chosen:
        """Decides on a measurement.

        Args:
            state: what is known of the stream.
            inputs: the state to start from.
            measurement: of the stream.
            next_epoch: epoch of a new plan.
            approve: id of the advice to carry out; empty for none.
            held: why no plan may be written, whatever is decided; empty if one may.
            now_s: seconds since the Unix epoch.

        Raises:
            ClusterError: the stream's Secret cannot be read for now.
        """
        policy = state.policy
        queried = self._floor.look(
            state.spec.executors.min_query,
            lambda: self._measurer.ask(state.spec, now_s),
            inputs.desired,
            now_s,
        )
        demands = replace(find_demands(policy, queried.executors, now_s), held=held)
        choose = partial(choose_plan, measurement, policy, inputs, next_epoch, approve=approve)
        choice = choose(demands=demands)
        if not self._shares.caps.are_set:
            return Chosen(choice, demands, queried)
        grows = choice.plan is not None and len(choice.plan.executors) > inputs.desired
        left = self._shares.ask(
            self._stream,
            state.claim(inputs, choice, measurement),
            self._find_streams(),
            now_s,
            takes=grows,
            waits=policy.scaling.acts and not held,
        )
        if left is not None:
            demands = replace(demands, most=left.most, most_why=left.why)
            choice = choose(demands=demands)
        return Chosen(choice, demands, queried)
