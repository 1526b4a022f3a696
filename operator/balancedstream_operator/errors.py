"""The operator's own errors: the class says whether to retry or to stop.

BalancedStreamError                 of the runtime
└── OperatorError
    ├── ClusterError                the API server did not do what it was asked for
    │   ├── UnreachableError        retry: a later try may succeed
    │   └── RefusedError            stop: the same request is refused again
    ├── ConflictError               stop: a rule of the operator forbids it
    ├── MissingMeasurementsError    retry: there is nothing to decide on now
    ├── StreamGoneError             stop: the stream was deleted
    ├── StreamLeavingError          stop: the stream is being deleted
    └── CommandError                kubectl bst ends with it
        ├── NoClusterError
        ├── NoStreamError
        ├── NoProposalError
        ├── NoAnswerError
        └── OutputError
"""

from __future__ import annotations

from balancedstream.errors import BalancedStreamError


class OperatorError(BalancedStreamError):
    """The root of these errors.

    Attributes:
        advice: what to do about it; empty if the message says so, or nobody knows.
    """

    advice = ""


class ClusterError(OperatorError):
    """The API server did not do what it was asked for: unreachable or refused."""


class UnreachableError(ClusterError):
    """The API server does not answer or is busy, or somebody else wrote first: try again.

    Args:
        message: for people.
        retry_after_s: how long the server asks to wait; 0.0 if it does not.
        advice: as in `OperatorError`.
    """

    def __init__(self, message: str, *, retry_after_s: float = 0.0, advice: str = "") -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.advice = advice


class RefusedError(ClusterError):
    """The API server refused a request: the same one again is no use.

    Args:
        message: for people.
        passes: whether the cause of the refusal ends by itself.
        advice: as in `OperatorError`.
    """

    def __init__(self, message: str, *, passes: bool = False, advice: str = "") -> None:
        super().__init__(message)
        self.passes = passes
        self.advice = advice


class ConflictError(OperatorError):
    """A rule of the operator forbids it: a shared checkpoint, or a name that is taken.

    Args:
        message: for people, with what to do.
        passes: whether the conflict ends by itself.
    """

    def __init__(self, message: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.passes = passes


class MissingMeasurementsError(OperatorError):
    """There are no metrics of the stream to decide on; the message says why."""


class StreamGoneError(OperatorError):
    """The BalancedStream was deleted, and the operator was not notified."""


class StreamLeavingError(OperatorError):
    """The BalancedStream is being deleted: it gets nothing more."""


class CommandError(OperatorError):
    """A command of `kubectl bst` ends; the message says what it means, and what to do."""


class NoClusterError(CommandError):
    """There is no cluster to talk to; nothing was asked or changed.

    Args:
        why: as a sentence.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"there is no cluster to talk to: {why}")


class NoStreamError(CommandError):
    """The BalancedStream does not exist; nothing was changed."""


class NoProposalError(CommandError):
    """Nothing is proposed that could be approved; nothing was changed."""


class NoAnswerError(CommandError):
    """The operator did not answer in time; what was asked for still stands."""


class OutputError(CommandError):
    """What was found cannot be written; what was asked for still stands."""
