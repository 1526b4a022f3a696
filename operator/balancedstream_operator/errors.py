"""The operator's own errors."""

from __future__ import annotations

from balancedstream.errors import BalancedStreamError


class ClusterError(BalancedStreamError):
    """The API server cannot be reached, or refused a request; the next pass tries again.

    Attributes:
        refused: whether the server refused the request, so that retrying the same is no use.
        passes: whether what it is refused for ends by itself.
        retry_after_s: how long the server asks to wait; 0.0 if it does not.
        advice: what to do about it; empty if the message says so, or nobody knows.
    """

    def __init__(
        self,
        message: str,
        *,
        refused: bool,
        passes: bool = False,
        retry_after_s: float = 0.0,
        advice: str = "",
    ) -> None:
        super().__init__(message)
        self.refused = refused
        self.passes = passes
        self.retry_after_s = retry_after_s
        self.advice = advice


class StreamGoneError(BalancedStreamError):
    """The BalancedStream was deleted, and the operator was not notified."""


class StreamLeavingError(BalancedStreamError):
    """The BalancedStream is being deleted: it gets nothing more."""
