"""An exporter that serves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from balancedstream.metrics.exporter import Exporter


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    exporter = Exporter()
    exporter.start(0)
    yield exporter
    exporter.close()
