"""What kopf gets of the API server's answers: bounded, because kopf reads JSON by recursion.

A session of aiohttp takes a class of responses; kopf asks this one for `json()`, or reads lines
from its `content`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from balancedstream_operator.kube.reading import PARSED_DEPTH, prune, read_json

log = logging.getLogger(__name__)

MAX_LINE_BYTES = 8 * 1024 * 1024
"""Of an event of a watch; the API server stores no object that is larger than 3 MiB."""


class _BoundedLines:
    """The lines of a response, none of them too long or nested too deep."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size_bytes: int) -> AsyncIterator[bytes]:
        """Whole lines as they come, each with its end."""
        rest, skips = b"", False
        async for chunk in self._content.iter_chunked(size_bytes):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if not skips and line.strip():
                    yield bound_line(line) + b"\n"
                skips = False
            if len(rest) > MAX_LINE_BYTES:
                log.warning("an event of more than %d bytes is left out", MAX_LINE_BYTES)
                rest, skips = b"", True
        if rest.strip() and not skips:
            yield bound_line(rest)


class BoundedResponse(aiohttp.ClientResponse):
    """A response in which nothing is nested deeper than Python's recursion goes."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Begins to read; see `aiohttp.ClientResponse`."""
        started = await super().start(connection)
        self.content = _BoundedLines(self.content)  # type: ignore[assignment]
        return started

    async def json(self, **_: Any) -> Any:
        """What the body holds; what is nested too deep is None.

        Raises:
            ValueError: the text is not JSON.
        """
        value = read_json(await self.read())
        prune(value, PARSED_DEPTH)
        return value


def bound_line(line: bytes) -> bytes:
    """One line of JSON in which what is nested too deep is null.

    >>> bound_line(b'{"a": [1]}')
    b'{"a": [1]}'
    """
    try:
        value = read_json(line)
    except ValueError:
        # The reader of the line refuses it.
        return line
    # What was too deep to be parsed has been cut off at that depth already.
    return json.dumps(value).encode() if prune(value, PARSED_DEPTH - 1) else line
