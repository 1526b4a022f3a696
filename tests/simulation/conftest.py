"""Draws the first seed once for all workers, and prints it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from seeds import RunSeed

_FIRST = pytest.StashKey[RunSeed]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="run the schedule of this seed only")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIRST] = RunSeed(config, "first_seed")


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.getoption("seed")
    return f"simulation: seed {config.stash[_FIRST].value if seed is None else seed}"


@pytest.fixture
def first_seed(pytestconfig: pytest.Config) -> int:
    """The first of the seeds of this run."""
    return pytestconfig.stash[_FIRST].value


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Logs nothing: passes fail by the thousand here, and each would be a line."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
