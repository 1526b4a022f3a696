"""Tests that take turns: long ones, of which a run of CI has time for some only.

And the folder for what processes leave behind that are killed, as Spark's executors are in tests:
a JVM's copy of RocksDB alone has 14 MiB.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator

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
    # A shell has what it starts in the background ignore it, and so would what tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # pytest-xdist's workers inherit it
        _collect_leftovers(config)
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


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """What a test changes of them, later tests and what they start would have, too."""
    changed = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in changed}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _collect_leftovers(config: pytest.Config) -> None:
    """Gives the processes of this run a folder for temporary files that goes when it ends."""
    system = tempfile.gettempdir()
    # Spark's sockets are in it, and a socket's path has 107 characters at most.
    folder = tempfile.mkdtemp(prefix="bst-")
    # Who ends a run with it, as `timeout` does, gets the same end as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    java = os.environ.get("JDK_JAVA_OPTIONS", "")
    os.environ["JDK_JAVA_OPTIONS"] = f'{java} "-Djava.io.tmpdir={folder}"'.strip()
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    # The files of failed tests stay where pytest keeps them.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", system)
