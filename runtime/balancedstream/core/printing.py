"""Makes text from outside safe to print: no escape sequence reaches a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Make any text safe to print on one line: each unprintable character becomes a space.

    Unprintable are the C0 and C1 controls, which terminals obey, line ends, and marks that change
    the direction of text.

    >>> printable("a\n\x1b[31mred")
    'a  [31mred'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in text)
