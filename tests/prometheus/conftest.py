from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thanos",
        type=Path,
        metavar="FILE",
        help="Thanos' program, of github.com/thanos-io/thanos, to test behind its querier, too",
    )
    parser.addoption(
        "--mimir",
        type=Path,
        metavar="FILE",
        help="Mimir's program, of github.com/grafana/mimir, to test with a tenant of it, too",
    )
    parser.addoption(
        "--victoria-metrics",
        type=Path,
        metavar="FILE",
        help="its program, of github.com/VictoriaMetrics/VictoriaMetrics, to test with it, too",
    )
