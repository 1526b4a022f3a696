"""Tests that take turns: long ones, of which a run of CI has time for some only."""

from __future__ import annotations

import random

import pytest
from seeds import RunSeed

_SEED = pytest.StashKey[RunSeed]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--turns",
        type=int,
        metavar="N",
        help="of the files with tests marked `turn`, run N, drawn anew each time; default: all",
    )
    parser.addoption("--turns-seed", type=int, help="draws the same ones again")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SEED] = RunSeed(config, "turns_seed", config.getoption("--turns-seed"))


def pytest_report_header(config: pytest.Config) -> str | None:
    turns, seed = config.getoption("--turns"), config.stash[_SEED].value
    return None if turns is None else f"turns: --turns {turns} --turns-seed {seed}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests whose turn it is not."""
    turns = config.getoption("--turns")
    if turns is None:
        return
    waiting = [item for item in items if item.get_closest_marker("turn")]
    files = sorted({item.path for item in waiting})
    drawn = random.Random(config.stash[_SEED].value).sample(files, min(turns, len(files)))
    left_out = [item for item in waiting if item.path not in drawn]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
