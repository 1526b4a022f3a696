"""An estimate as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from balancedstream.core.estimates.application import HOUR_S, Fleet, QueryEstimate, Spread, Use
from balancedstream.core.estimates.worth import judge
from balancedstream.estimate.reading import Finding
from balancedstream.estimate.text import describe_state

FORMAT = 1
"""Grows when a field changes its meaning or goes."""


def to_json(findings: Sequence[Finding]) -> str:
    """All applications; ASCII, so that no name of a log reaches a terminal."""
    content = {"format": FORMAT, "applications": [_describe(finding) for finding in findings]}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _describe(finding: Finding) -> dict[str, Any]:
    application = finding.application
    worth = judge(application.queries, application.fleet)
    return {
        "log": str(finding.log.path),
        "name": finding.name,
        "id": finding.id,
        "spark": finding.spark,
        "first_s": finding.first_s,
        "last_s": finding.last_s,
        "ended": finding.ended,
        "notes": describe_state(finding),
        "executors": _describe_fleet(application.fleet, finding),
        "queries": [_describe_query(query) for query in application.queries.values()],
        "worth": {
            "balancing": worth.balancing,
            "scaling": worth.scaling,
            "sentence": worth.sentence,
        },
    }


def _describe_fleet(fleet: Fleet, finding: Finding) -> dict[str, Any]:
    return {
        "fewest": fleet.fewest,
        "most": fleet.most,
        "cores": fleet.cores,
        "dynamic_allocation": finding.dynamic_allocation,
        "added": fleet.added,
        "removed": fleet.removed,
        "lost": fleet.lost,
        **_describe_use(fleet.use),
        "hours": [
            {"begins": _format_hour(hour), **_describe_use(use)}
            for hour, use in sorted(fleet.hours.items())
        ],
    }


def _describe_use(use: Use) -> dict[str, Any]:
    return {
        "used_hours": _round(use.used_s / HOUR_S),
        "judged_hours": _round(use.judged_s / HOUR_S),
        "needed_hours": None if use.needed is None else _round(use.needed_s / HOUR_S),
        "needed": use.needed,
    }


def _describe_query(query: QueryEstimate) -> dict[str, Any]:
    limit = query.limit
    return {
        "query": query.query,
        "batches": query.batches,
        "rows": query.rows,
        **_describe_spread(query.spread),
        "moves": query.moves,
        "partitions": {str(operator): count for operator, count in query.partitions.items()},
        "unsplittable_batches": query.unsplittable,
        "limit": None
        if limit is None
        else {"verdict": limit.verdict.value, "sentence": limit.sentence},
        "hours": [
            {"begins": _format_hour(hour), **_describe_spread(spread)}
            for hour, spread in sorted(query.hours.items())
        ],
    }


def _describe_spread(spread: Spread) -> dict[str, Any]:
    return {
        "measured_batches": spread.batches,
        "imbalance": _round(spread.imbalance),
        "bound": _round(spread.bound),
        "balanced_imbalance": _round(spread.balanced_imbalance),
        "batch_s": _round(spread.batch_s),
        "balanced_batch_s": _round(spread.balanced_batch_s),
    }


def _format_hour(hour: int) -> str:
    return f"{datetime.fromtimestamp(hour * HOUR_S, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _round(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 6)
