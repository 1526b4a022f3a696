"""The errors a user can meet: each says what happened, what it means for the data, what to do."""


class BalancedStreamError(Exception):
    """Root of every error raised on purpose by this package."""


class InvalidInputError(BalancedStreamError, ValueError):
    """A value given by the user cannot be used; the message names the field."""


class RefusedKeyError(InvalidInputError):
    """A key cannot be used or moved; the message names the key, `why` does not.

    Args:
        key: the key as text.
        why: what is wrong with it, without any part of the key.
        consequence: what that means, and what to do.
        detail: more about what is wrong, which may quote the key.

    Attributes:
        why: what is wrong, and the consequence, for places where keys must not be seen.
    """

    def __init__(
        self, key: str, why: str, consequence: str = "nothing changed", *, detail: str = ""
    ) -> None:
        quoted = f" ({detail})" if detail else ""
        super().__init__(f"key {key:.80}: {why}{quoted}; {consequence}")
        self.why = f"{why}; {consequence}"


class StalePlanError(BalancedStreamError):
    """A plan is older than one already accepted; nothing was changed, the newer one stays."""


class PlanConflictError(BalancedStreamError):
    """Two different plans bear one epoch; nothing was changed, the first one stays."""


class PlanTooLargeError(BalancedStreamError):
    """A plan or answer exceeds what its transport can hold; nothing was changed."""


class MissingPackageError(BalancedStreamError):
    """A package that a command needs is not installed; nothing was started."""


class PortInUseError(BalancedStreamError):
    """Another program listens on the port that was to serve; nothing was started."""


class CheckpointError(BalancedStreamError):
    """A checkpoint cannot be used for key assignment; no row of the batch was processed."""


class SharedFolderError(BalancedStreamError):
    """A folder that driver and executors share cannot be used; the batch fails, no row is lost."""


class RepartitionError(BalancedStreamError):
    """The number of state partitions was not changed as asked; the message says what is there."""
