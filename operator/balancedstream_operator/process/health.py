"""Answers the probes of the operator's pod, from its event loop: one that hangs does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web


async def serve_health(port: int, judge: Callable[[], str]) -> asyncio.Server:
    """Serves `/healthz`, which says that the process lives, and `/readyz`.

    Args:
        port: to listen on, for IPv4 and IPv6; 0 for any that is free.
        judge: says why the operator is not ready; empty if it is.
    """

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path not in {"/healthz", "/readyz"}:
            return web.Response(status=404, text="ask for /healthz or /readyz\n")
        hindrance = judge() if request.path == "/readyz" else ""
        return web.Response(status=503 if hindrance else 200, text=f"{hindrance or 'ok'}\n")

    return await asyncio.get_running_loop().create_server(web.Server(answer), None, port)
