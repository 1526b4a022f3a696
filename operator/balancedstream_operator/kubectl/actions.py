"""Asks the operator for something by an annotation, and waits until it has answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from balancedstream.core.printing import printable
from balancedstream_operator.api.annotations import APPROVE_ANNOTATION, PAUSED_ANNOTATION
from balancedstream_operator.api.conditions import PAUSED
from balancedstream_operator.api.resource import Manifest
from balancedstream_operator.api.status import AnsweredApproval, read_status
from balancedstream_operator.errors import NoAnswerError, NoProposalError
from balancedstream_operator.kubectl.connection import Connection

LOOK_S = 0.5
"""Pause between two looks at a stream."""

WORDS = 200
"""Of a reason that are looked for: the message that has them may be cut."""

_LOOKS = 4
"""Looks after which an answer that was there before is taken for the answer: it is the same."""


_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for the operator.

    Attributes:
        timeout_s: from now on.
        clock: gives seconds that only grow.
        sleep: waits for so many seconds.
    """

    timeout_s: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def approve(
    connection: Connection, namespace: str, name: str, proposal: str, patience: Patience
) -> AnsweredApproval:
    """Approves a proposal, and returns the operator's answer: `status.approval`.

    An empty `proposal` means the present one.

    Raises:
        NoProposalError: nothing is proposed.
        NoAnswerError: the operator did not answer in time; the approval still stands.
        ClusterError: the API server does not answer, or refuses it.
    """
    stream = connection.get_stream(namespace, name)
    status = read_status(stream)
    proposal = proposal or (status.proposal.id if status.proposal else "")
    if not proposal:
        message = (
            f"nothing is proposed for {name} (its mode is {status.mode or 'not known'}): only "
            f"what mode Advise proposes is approved. See kubectl bst status {name}"
        )
        raise NoProposalError(message)
    before = status.approval
    connection.annotate(stream, APPROVE_ANNOTATION, proposal)
    looks = 0

    def find_answer(found: Manifest) -> AnsweredApproval | None:
        nonlocal looks
        answer = read_status(found).approval
        if APPROVE_ANNOTATION not in (found["metadata"].get("annotations") or {}):
            looks += 1
        if answer is None or answer.id != proposal:
            return None
        return answer if answer != before or looks >= _LOOKS else None

    what = f"the approval of {proposal}"
    return _wait(connection, namespace, name, find_answer, what=what, patience=patience)


def pause(
    connection: Connection, namespace: str, name: str, reason: str, patience: Patience
) -> str:
    """Pauses a stream, or resumes it; returns what the operator says of it.

    An empty `reason` resumes it.

    Raises:
        NoAnswerError: the operator did not answer in time; what was asked for still stands.
        ClusterError: the API server does not answer, or refuses it.
    """
    stream = connection.get_stream(namespace, name)
    connection.annotate(stream, PAUSED_ANNOTATION, reason or None)
    # As the operator writes it, which may be cut.
    said = "" if reason.lower() == "true" else printable(reason)[:WORDS]

    def find_answer(found: Manifest) -> str | None:
        paused = read_status(found).recall(PAUSED)
        return paused.message if paused.holds is bool(reason) and said in paused.message else None

    what = "the pause" if reason else "the end of the pause"
    return _wait(connection, namespace, name, find_answer, what=what, patience=patience)


def _wait(
    connection: Connection,
    namespace: str,
    name: str,
    find_answer: Callable[[Manifest], _Answer | None],
    *,
    what: str,
    patience: Patience,
) -> _Answer:
    until_s = patience.clock() + patience.timeout_s
    while True:
        found = find_answer(connection.get_stream(namespace, name))
        if found:
            return found
        if patience.clock() >= until_s:
            message = (
                f"the operator has not answered {what} within {patience.timeout_s:.0f} s. The "
                "annotation is set, and an operator acts on it as soon as one looks at this "
                f"stream; the stream runs on meanwhile. See kubectl bst doctor {name}"
            )
            raise NoAnswerError(message)
        patience.sleep(LOOK_S)
