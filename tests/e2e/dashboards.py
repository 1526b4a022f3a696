"""The chart's Grafana dashboard, asked of a real Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from installing import CHART
from monitoring import Prometheus
from streams import Stream

DASHBOARD = CHART / "files" / "dashboard.json"
HOT_KEYS = "Hot keys"
SHUFFLES = "Cost-aware shuffles"
"""Rows of the dashboard that are empty where a stream uses no such thing."""


def find_empty_panels(prometheus: Prometheus, stream: Stream, *rows: str) -> list[str]:
    """Panels of which a query finds nothing.

    Args:
        prometheus: that is asked.
        stream: whose query is `counts`.
        rows: whose panels are looked at; all but those of `HOT_KEYS` and `SHUFFLES` if none.
    """
    variables = {
        "$__rate_interval": "1m",
        "$stream": f"{stream.namespace}/{stream.name}",
        "$query": "counts",
    }
    panels = list(_read_panels())
    wanted = set(rows) or {row for row, _ in panels} - {HOT_KEYS, SHUFFLES}
    assert wanted <= {row for row, _ in panels}, "such a row is there"
    empty = []
    for row, panel in panels:
        for target in panel["targets"] if row in wanted else ():
            expression = target["expr"]
            for variable, value in variables.items():
                expression = expression.replace(variable, value)
            if not prometheus.query(expression):
                empty.append(f"{panel['title']}: {expression}")
    return empty


def _read_panels() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each panel with the title of the row that it is in."""
    row = ""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        else:
            yield row, panel
