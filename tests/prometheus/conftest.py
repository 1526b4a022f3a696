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
