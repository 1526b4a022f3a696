"""Tests that take turns: long ones, of which a run of CI has time for some only."""

from __future__ import annotations

import random
from typing import Any

import pytest

_SEED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--turns",
        type=int,
        metavar="N",
        help="of the files with tests marked `turn`, run N, drawn anew each time; default: all",
    )
    parser.addoption("--turns-seed", type=int, help="draws the same ones again")


def pytest_configure(config: pytest.Config) -> None:
    """Draws the seed once for all workers."""
    given: dict[str, int] = getattr(config, "workerinput", {})
    wanted = config.getoption("--turns-seed")
    drawn = random.randrange(2**32) if wanted is None else wanted
    config.stash[_SEED] = given.get("turns_seed", drawn)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["turns_seed"] = node.config.stash[_SEED]


def pytest_report_header(config: pytest.Config) -> str | None:
    turns = config.getoption("--turns")
    return None if turns is None else f"turns: --turns {turns} --turns-seed {config.stash[_SEED]}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests whose turn it is not."""
    turns = config.getoption("--turns")
    if turns is None:
        return
    waiting = [item for item in items if item.get_closest_marker("turn")]
    files = sorted({item.path for item in waiting})
    drawn = random.Random(config.stash[_SEED]).sample(files, min(turns, len(files)))
    left_out = [item for item in waiting if item.path not in drawn]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
