"""Says things to people on standard error, among what Spark and the job write there."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TextIO

from balancedstream.core.printing import printable


def say(text: str, file: TextIO | None = None) -> None:
    """Writes a line, with who says it; where nobody can read it, nothing happens.

    Args:
        text: for people; what a terminal would obey is left out.
        file: instead of standard error as it is now.
    """
    # It is None, or fails, where it is closed or its reader went away.
    with suppress(AttributeError, OSError, ValueError):
        stream: TextIO = file or sys.stderr
        stream.write(f"balancedstream: {printable(text)}\n")
        stream.flush()
