"""How the operator logs: to standard error, as text or as one JSON object a line."""

from __future__ import annotations

import logging
from typing import Any

import kopf

from balancedstream.core.printing import printable


class _PrintableLines(logging.Formatter):
    """Text of others begins no line, and reaches a terminal without escape sequences."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the base class
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


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
        handler = logging.StreamHandler()
        handler.setFormatter(_PrintableLines("%(asctime)s %(levelname)s %(message)s"))
        logging.basicConfig(handlers=[handler])
    logging.getLogger().setLevel(level)
    # Kopf logs in many lines that it begins and ends; followers log it in one.
    logging.getLogger("kopf").setLevel(logging.ERROR)
