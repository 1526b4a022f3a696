"""How the operator logs: to standard error, as text or as one JSON object a line."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


class _JsonLines(logging.Formatter):
    """Each record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "message": record.getMessage(),
            "severity": record.levelname.lower(),
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "logger": record.name,
        }
        if record.exc_info:
            entry["exc_info"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def start_logging(level: str, log_format: str) -> None:
    """Logs to standard error.

    Args:
        level: the least that is logged, such as INFO.
        log_format: "json" for one object a line, anything else for text.
    """
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(_JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=level)
