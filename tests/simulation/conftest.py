"""Draws the first seed once for all workers, and prints it."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Benchmarks are no package that is installed.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

_FIRST = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="run the schedule of this seed only")
    parser.addoption(
        "--first-seed", type=int, help="run those from this seed on; default: drawn anew each time"
    )


def pytest_configure(config: pytest.Config) -> None:
    given: dict[str, int] = getattr(config, "workerinput", {})
    first = config.getoption("first_seed")
    drawn = random.SystemRandom().randrange(10**9) if first is None else first
    config.stash[_FIRST] = given.get("first_seed", drawn)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["first_seed"] = node.config.stash[_FIRST]


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.getoption("seed")
    return f"simulation: seed {config.stash[_FIRST] if seed is None else seed}"


@pytest.fixture
def first_seed(pytestconfig: pytest.Config) -> int:
    """The first of the seeds of this run."""
    return pytestconfig.stash[_FIRST]


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Logs nothing: passes fail by the thousand here, and each would be a line."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
