"""How the operator logs: to standard error, as text or as one JSON object a line."""

from __future__ import annotations

import logging

import kopf


def start_logging(level: str, log_format: str) -> None:
    """Logs to standard error.

    Args:
        level: the least that is logged, such as INFO.
        log_format: "json" for one object a line, anything else for text.
    """
    if log_format == "json":
        kopf.configure(log_format=kopf.LogFormat.JSON)
        # Kopf silences it, and with it errors of tasks that nobody waits for.
        logging.getLogger("asyncio").propagate = True
    else:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger().setLevel(level)
    # It says in many lines that it begins and ends, which followers say in one.
    logging.getLogger("kopf").setLevel(logging.ERROR)
