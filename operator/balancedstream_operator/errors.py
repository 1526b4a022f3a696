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

    Args:
        message: for people.
        advice: what to do about it; empty if the message says so, or nobody knows.
        passes: whether the cause ends by itself.
        retry_after_s: how long the API server asks to wait; 0.0 if it does not.
    """

    def __init__(
        self, message: str, *, advice: str = "", passes: bool = False, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.advice = advice
        self.passes = passes
        self.retry_after_s = retry_after_s


class ClusterError(OperatorError):
    """The API server did not do what it was asked for: unreachable or refused."""


class UnreachableError(ClusterError):
    """The API server does not answer or is busy, or somebody else wrote first: try again."""


class RefusedError(ClusterError):
    """The API server refused a request: the same one again is no use."""


class ConflictError(OperatorError):
    """A rule of the operator forbids it: a shared checkpoint, or a name that is taken."""


class MissingMeasurementsError(OperatorError):
    """There are no metrics of the stream to decide on; the message says why."""


class StreamGoneError(OperatorError):
    """The BalancedStream was deleted, and the operator was not notified."""


class StreamLeavingError(OperatorError):
    """The BalancedStream is being deleted: it gets nothing more."""


class CommandError(OperatorError):
    """A command of `kubectl bst` ends; the message says what it means, and what to do."""


class NoClusterError(CommandError):
    """There is no cluster to talk to; nothing was asked or changed."""

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
