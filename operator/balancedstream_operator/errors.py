"""The operator's own errors."""

from __future__ import annotations

from balancedstream.errors import BalancedStreamError


class ClusterError(BalancedStreamError):
    """The API server cannot be reached, or refused something; nothing is lost, it is tried again.

    Attributes:
        refused: whether it was understood and refused, so that the same will be refused again.
    """

    def __init__(self, message: str, *, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


class StreamGoneError(BalancedStreamError):
    """The BalancedStream was deleted, and nobody told the operator."""
