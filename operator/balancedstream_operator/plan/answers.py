"""The driver's answer to the plans: read from its ConfigMap, and judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from balancedstream.core.wire.objects import (
    ANSWER_KEY,
    APPLICATION_KEY,
    STOPPED_KEY,
    answer_name,
    is_other_application,
)
from balancedstream.core.wire.plan import Answer, Plan, parse_answer
from balancedstream.core.wire.stopping import Stopped, parse_stopped
from balancedstream.errors import BalancedStreamError, InvalidInputError
from balancedstream_operator.api.resource import Stream
from balancedstream_operator.kube.cluster import Cluster

SILENT_AFTER_S = 60.0
"""A driver that has not answered a plan for this long gets no new one."""

MAX_AHEAD = 1_000_000
"""Epochs that are further ahead of the operator's own are forged: at one plan every 15 seconds it
takes half a year to get there."""


@dataclass(frozen=True, slots=True)
class AnswerFound:
    """The driver's answer to the plans, as it was read.

    Attributes:
        answer: None if the driver has not answered yet, or if the answer cannot be read.
        unreadable: why the answer cannot be read; empty otherwise.
        refused_anew: whether the driver refuses a plan for a reason that is new to the operator.
    """

    answer: Answer | None = None
    unreadable: str = ""
    refused_anew: bool = False


class AnswerReader:
    """Reads the answers of one stream's driver."""

    def __init__(self, stream: Stream, cluster: Cluster) -> None:
        self._stream = stream
        self._cluster = cluster
        self._refused = ""

    def read_application(self) -> str:
        """Spark's id of the application that answered last; empty without an answer."""
        return str(self._read_data().get(APPLICATION_KEY, ""))

    def read(self, known_epoch: int, application: str) -> AnswerFound:
        """The driver's answer; an answer of another application does not count.

        Args:
            known_epoch: the newest epoch of plan and record.
            application: Spark's id of the driver's application; empty if unknown.
        """
        data = self._read_data()
        text = str(data.get(ANSWER_KEY, ""))
        if not text or is_other_application(str(data.get(APPLICATION_KEY, "")), application):
            return AnswerFound()
        try:
            answer = parse_answer(text)
            check_epoch("answer", answer.epoch, known_epoch)
        except BalancedStreamError as error:
            return AnswerFound(unreadable=str(error))
        refused_anew = bool(answer.refused) and answer.refused != self._refused
        self._refused = answer.refused
        return AnswerFound(answer, refused_anew=refused_anew)

    def read_stopped(self, asked: str) -> Stopped | None:
        """What the driver says of a request to stop; None if it says nothing of this one."""
        text = str(self._read_data().get(STOPPED_KEY, ""))
        try:
            found = parse_stopped(text) if text else None
        except BalancedStreamError:
            return None
        return found if found is not None and found.id == asked else None

    def _read_data(self) -> Mapping[str, Any]:
        name = answer_name(self._stream.name)
        found = self._cluster.get("v1", "ConfigMap", self._stream.namespace, name) or {}
        return found.get("data") or {}


def check_epoch(what: str, epoch: int, newest: int) -> None:
    """Refuses an epoch that no operator can have reached.

    Raises:
        InvalidInputError: the epoch is more than `MAX_AHEAD` ahead of the newest known one.

    >>> check_epoch("plan", 8, 7)
    """
    if epoch > newest + MAX_AHEAD:
        message = (
            f"{what}.epoch: {epoch} is so far ahead of {newest}, the newest known epoch, that it "
            "is forged; it is ignored"
        )
        raise InvalidInputError(message)


@dataclass(frozen=True, slots=True)
class Control:
    """Whether the driver follows the newest plan.

    Attributes:
        follows: None while the driver has time to answer.
        refusal: why the driver refused the plan; empty if it did not.
        silent_s: for how long the driver has left the plan unanswered; None if it answered or has
            time.
    """

    follows: bool | None
    refusal: str = ""
    silent_s: float | None = None


def judge_control(
    plan: Plan | None,
    planned_s: float,
    known_refusal: str,
    answer: Answer | None,
    now_s: float,
) -> Control:
    """Whether the driver follows the newest plan, by its answer.

    An answer does not say which plan it refuses. So a refusal that is older than the plan counts
    for the plan only if the driver says nothing else in time. If the driver follows a newer plan,
    that plan was lost or replaced since; the driver takes no older one.

    Args:
        plan: the newest plan; None before the first.
        planned_s: when the operator wrote that plan, seconds since the Unix epoch.
        known_refusal: how the driver had refused an older plan by then; empty if it had not.
        answer: of the driver; None without an answer.
        now_s: seconds since the Unix epoch.

    >>> judge_control(Plan(2, ("a",), {}), 0.0, "", Answer(2), 9.0).follows
    True
    """
    if plan is None or (answer is not None and answer.epoch == plan.epoch):
        return Control(True)
    if answer is not None and answer.epoch > plan.epoch:
        reason = f"plan.epoch: {plan.epoch} is older than {answer.epoch}, which is in force"
        return Control(False, refusal=reason)
    waited_s = now_s - planned_s
    late = waited_s > SILENT_AFTER_S
    if answer is not None and answer.refused and (late or answer.refused != known_refusal):
        return Control(False, refusal=answer.refused)
    return Control(False, silent_s=waited_s) if late else Control(None)
