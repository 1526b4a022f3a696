"""Executors with a CPU quota each, as pods with a limit: Linux's control groups, for root only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.benchmark import MeasurementError
from harness.counting import find_executors
from harness.polling import polling

GROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
POLL_S = 0.2

QUICK_JVM = {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Executors that compile quickly and collect garbage in one thread: a pod's JVM would do both on
the cores that its tasks leave, and a small quota leaves none."""


@contextmanager
def limiting_executors(application_id: str, cores: float) -> Iterator[None]:
    """Gives each executor of an application its own quota, those that start later too.

    Args:
        application_id: of an application whose executors are processes of this machine.
        cores: that each executor may use, with the Python workers it starts from now on.

    Raises:
        MeasurementError: there are no control groups that this process may make.
    """
    root = find_cpu_groups()
    made: dict[int, Path] = {}

    def limit_new() -> None:
        for pid in find_executors(application_id) - made.keys():
            made[pid] = make_group(root / f"executor-{pid}", cores)
            # It may have ended meanwhile.
            with suppress(ProcessLookupError):
                (made[pid] / "cgroup.procs").write_text(str(pid))

    limit_new()
    try:
        with polling(limit_new, POLL_S):
            yield
    finally:
        for group in made.values():
            remove_group(group, root)


def find_cpu_groups() -> Path:
    """The folder of the groups that limit CPU: that of version 1, or the only one of version 2."""
    old = GROUPS / "cpu"
    if (old / "cpu.cfs_quota_us").exists() or (old / "cgroup.procs").exists():
        found = old
    else:
        found = GROUPS
        with suppress(OSError):
            (found / "cgroup.subtree_control").write_text("+cpu")
    if os.access(found, os.W_OK) and (found / "cgroup.procs").exists():
        return found
    message = "executors cannot be limited: this needs root, and control groups in /sys/fs/cgroup"
    raise MeasurementError(message)


def make_group(group: Path, cores: float) -> Path:
    """Makes a group whose processes may use so many cores together."""
    group.mkdir()
    quota_us = int(cores * PERIOD_US)
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(quota_us))
    return group


def remove_group(group: Path, root: Path) -> None:
    """Removes a group; what still runs in it goes back to the root."""
    for pid in (group / "cgroup.procs").read_text().split():
        with suppress(OSError):
            (root / "cgroup.procs").write_text(pid)
    group.rmdir()
