"""What an executor was lost by, from Spark's words for its end."""

from __future__ import annotations

import pytest

from balancedstream.core.samples import LossCause
from balancedstream.engine.measuring.losses import find_loss

OF_KUBERNETES = """
The executor with id 3 exited with exit code {code}.

The API gave the following container statuses:

\t container name: executor
\t container state: terminated
\t container started at: 2026-11-28T16:43:27Z
\t exit code: {number}
\t termination reason: {reason}
"""


def say(code: str, reason: str) -> str:
    return OF_KUBERNETES.format(code=code, number=code.partition("(")[0], reason=reason)


@pytest.mark.parametrize(
    ("reason", "loss"),
    [
        (say("137(SIGKILL, possible container OOM)", "OOMKilled"), "memory"),
        (say("137(SIGKILL, possible container OOM)", "Error"), "exit"),
        (say("52", "Error"), "heap"),
        (say("143", "Error"), "exit"),
        ("Command exited with code 137", "exit"),
        (
            "Container killed by YARN for exceeding physical memory limits. 1.5 GB of 1.5 GB "
            "physical memory used.",
            "memory",
        ),
        ("Executor heartbeat timed out after 130000 ms", "silence"),
        (
            "The executor with ID 1 (registered at 1795884071841 ms) was not found in the cluster "
            "at the polling time (1795884158000 ms)",
            "silence",
        ),
        ("The executor with id 3 was deleted by a user or the framework.", None),
        ("Executor killed by driver.", None),
        (
            say("143", "Error")
            + "The API gave the following brief reason: Terminated\nThe API gave the following "
            "message: Pod was terminated in response to imminent node shutdown.",
            None,
        ),
        (
            say("137(SIGKILL, possible container OOM)", "Error")
            + "The API gave the following brief reason: Evicted\nThe API gave the following "
            "message: The node was low on resource: memory.",
            "silence",
        ),
        ("Executor decommission: spark scale down", None),
        # apache/spark#35321: executors that had gone in peace were counted as lost.
        ("Finished decommissioning", None),
        # kubeflow/spark-operator#2589: full disks showed as exit code 143 and nothing else.
        (
            say("143", "Error")
            + "The API gave the following brief reason: Evicted\nThe API gave the following "
            "message: Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.",
            "silence",
        ),
    ],
)
def test_the_cause_is_found_in_sparks_words(reason: str, loss: LossCause | None) -> None:
    assert find_loss(reason) == loss
