"""Text that others wrote, made fit to be shown: escape sequences stay out of terminals."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Makes any text fit for one line: what is no character to be seen becomes a space.

    That is all of the C0 and C1 controls, which terminals obey, line ends, and marks that turn the
    direction of what follows.

    >>> printable("a\n\x1b[31mred")
    'a  [31mred'
    """
    return "".join(c if c.isprintable() else " " for c in text)
