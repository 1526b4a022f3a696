"""Answers the probes of the operator's pod, from its event loop: one that hangs does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

READ_S = 5.0
"""A client that has not sent its request by then is not waited for."""


async def serve_health(port: int, judge: Callable[[], str]) -> asyncio.Server:
    """Serves `/healthz`, which says that the process lives, and `/readyz`.

    Args:
        port: to listen on, for IPv4 and IPv6; 0 for any that is free.
        judge: says why the operator is not ready; empty if it is.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A probe that hangs up, or sends rubbish, is no matter.
        with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(READ_S):
                line = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                writer.write(_respond(line, judge))
                await writer.drain()
        with suppress(OSError):
            writer.close()

    return await asyncio.start_server(answer, None, port)


def _respond(line: bytes, judge: Callable[[], str]) -> bytes:
    path = b"".join(line.split()[1:2]).partition(b"?")[0]
    hindrance = judge() if path == b"/readyz" else ""
    known = path in {b"/healthz", b"/readyz"}
    status, text = ("200 OK", "ok") if known else ("404 Not Found", "ask for /healthz or /readyz")
    if hindrance:
        status, text = "503 Service Unavailable", hindrance
    body = f"{text}\n".encode(errors="replace")
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
