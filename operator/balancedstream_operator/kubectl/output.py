"""Writes to a terminal, a pipe or a file, whatever it can take."""

from __future__ import annotations

import json
import os
import sys
from typing import TextIO

from balancedstream.core.printing import printable
from balancedstream_operator.errors import OutputError


def prepare() -> None:
    """Lets standard output and error show a question mark for what they cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        # One that was closed is None; one of a test may be of another kind.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def finish() -> None:
    """Writes what is left to be written, if it can be."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            _drop(stream)


def say(text: str) -> None:
    """Writes lines to standard output; what is in them is printable.

    Raises:
        OutputError: they cannot be written, and somebody wants to read them.
    """
    _write(sys.stdout, "\n".join(map(printable, text.split("\n"))))


def complain(text: str) -> None:
    """Writes one line to standard error, if it can be written."""
    try:
        _write(sys.stderr, printable(text))
    except OutputError:
        return


def say_json(content: object) -> None:
    """Writes JSON to standard output; what is not printable, or cannot be encoded, is escaped.

    Raises:
        OutputError: it cannot be written, and somebody wants to read it.
    """
    text = json.dumps(content, indent=2, ensure_ascii=False)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    _write(sys.stdout, "".join(_escape(c, encoding) for c in text))


def _escape(character: str, encoding: str) -> str:
    """A character of JSON; all that are not printable are in strings, but for line ends."""
    if character == "\n":
        return character
    try:
        if character.isprintable():
            character.encode(encoding)
            return character
    except (UnicodeEncodeError, LookupError):
        pass
    return json.dumps(character)[1:-1]


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        return
    try:
        print(text, file=stream, flush=True)
    except (BrokenPipeError, ValueError):
        # Who read it has enough, as `head` does, or it was closed.
        _drop(stream)
    except OSError as error:
        _drop(stream)
        message = f"the output cannot be written: {error.strerror or error}"
        raise OutputError(message) from error


def _drop(stream: TextIO) -> None:
    """What is left in the buffer goes nowhere."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return
