"""Finds what ended a query in the text of Spark's exception."""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"

_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: .*)?")
"""The line after a Python traceback's frames: a class, and mostly a text."""

_JAVA = re.compile(r"(?:[a-z]\w*\.)+(?=[A-Z]\w*(?:Exception|Error)\b)")
"""The packages of a Java exception, which say nothing to most."""


_SLOTS = re.compile(
    r"CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT\].* needs (\d+) concurrent .* only (\d+) are .*free"
)


def name_cause(error: str) -> str:
    r"""The cause in one line, in Spark's or Python's own words.

    An error in a Python function has the traceback of that function inside Spark's text; there the
    cause is the line that ends it. Without one, it is what Spark says first.

    >>> name_cause(
    ...     "py4j.Py4JException: Return Message: Traceback (most recent call last):\n"
    ...     "  File 'a.py', line 1, in put\n    write()\nOSError: sink is away\n\tat py4j"
    ... )
    'OSError: sink is away'
    >>> name_cause("java.lang.IllegalStateException: no such table\n\tat a.B.c(B.java:1)")
    'IllegalStateException: no such table'
    """
    if slots := _SLOTS.search(error):
        needed, free = slots.groups()
        return (
            f"in Real-Time Mode all of its tasks run at once: it needs {needed} slots, and {free} "
            "were free when its batch was to begin. No data is lost: started with more executors "
            "or cores, it goes on from its checkpoint"
        )
    lines = error.strip().splitlines()
    last = max((n for n, line in enumerate(lines) if _TRACEBACK in line), default=None)
    if last is not None:
        for line in lines[last + 1 :]:
            # Frames are indented, and so are the lines that they quote.
            if not line.startswith((" ", "\t")) and _EXCEPTION.fullmatch(line.strip()):
                return line.strip()
    first = next((line.strip() for line in lines if line.strip()), "Spark does not say why")
    return _JAVA.sub("", first)
