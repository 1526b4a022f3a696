"""The plugin's own errors: each says what it means for the streams, and what to do."""

from __future__ import annotations

from balancedstream.errors import BalancedStreamError


class NoClusterError(BalancedStreamError):
    """There is no cluster to talk to; nothing was asked or changed.

    Args:
        why: as a sentence.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"there is no cluster to talk to: {why}")


class NoStreamError(BalancedStreamError):
    """The BalancedStream does not exist; nothing was changed."""


class NoProposalError(BalancedStreamError):
    """Nothing is proposed that could be approved; nothing was changed."""


class NoAnswerError(BalancedStreamError):
    """The operator did not answer in time; what was asked for still stands."""


class OutputError(BalancedStreamError):
    """What was found cannot be written; what was asked for still stands."""
