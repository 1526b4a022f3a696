"""How many executors a run starts on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from balancedstream.errors import InvalidInputError

MOST_DIGITS = 6
"""No machine has more executors; Python refuses to read thousands of digits."""


@dataclass(frozen=True, slots=True)
class LocalExecutors:
    """Executor processes on this machine: `least` at the start, `most` at most."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> LocalExecutors:
        """Reads `MIN:MAX`, or `N` for a fixed number.

        Raises:
            InvalidInputError: not two whole numbers, or not 1 <= MIN <= MAX.

        >>> LocalExecutors.parse("2:4")
        LocalExecutors(least=2, most=4)
        """
        least, colon, most = text.partition(":")
        numbers = (least, most if colon else least)
        if all(n.isascii() and n.isdigit() and len(n) <= MOST_DIGITS for n in numbers):
            found = cls(*map(int, numbers))
            if 1 <= found.least <= found.most:
                return found
        message = (
            "--local: must be MIN:MAX with 1 <= MIN <= MAX, such as 2:4, or one number, "
            f"not {text!r}"
        )
        raise InvalidInputError(message)
