"""Runs a script as Python does or as `balancedstream run` does, and keeps what a shell sees."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patience import PATIENCE_S
from script_cases import ScriptCase

PLAIN = (sys.executable,)
RUN = (sys.executable, "-m", "balancedstream.cli", "run")
LOCAL = (*RUN, "--local", "2:2")

OURS = re.compile(r"^(balancedstream: |\d{4}-\d\d-\d\dT[0-9:]+Z ).*\n", re.MULTILINE)
"""Lines that BalancedStream adds to standard error."""

KEPT = ("PATH", "HOME", "JAVA_HOME", "TMPDIR", "JDK_JAVA_OPTIONS", "LANG", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Seen:
    """What a shell sees of a script.

    Attributes:
        status: of the process; negative for the signal that ended it.
        output: standard output.
        errors: standard error, without our lines.
        files: of the script's folder, name to content.
        ours: our lines.
        process: its id.
    """

    status: int
    output: str
    errors: str
    files: Mapping[str, str]
    ours: str
    process: int


def lay_out(case: ScriptCase, folder: Path) -> None:
    """Writes the case's files."""
    folder.mkdir()
    (folder / "job.py").write_text(case.text)
    for name, text in case.beside.items():
        archive, is_archived, inner = name.partition(".zip/")
        if is_archived:
            with zipfile.ZipFile(folder / f"{archive}.zip", "a") as file:
                # A name alone would have the time of writing, and two runs other archives.
                file.writestr(zipfile.ZipInfo(inner), text)
            continue
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_case(case: ScriptCase, command: Sequence[str], folder: Path) -> Seen:
    """Runs a case in a folder that has only its files, so that two runs see the same.

    Args:
        case: what runs.
        command: what runs it.
        folder: is moved aside afterwards.
    """
    lay_out(case, folder)
    start = [str(folder / case.start[0]), *case.start[1:]] if case.from_elsewhere else case.start
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    running = subprocess.Popen(
        [command[0], *case.flags, *command[1:], *start, *case.arguments],
        cwd=folder.parent if case.from_elsewhere else folder,
        env=environment | dict(case.environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        send_signals(running, case, folder)
        output, errors = running.communicate(case.stdin.encode(), timeout=PATIENCE_S)
    finally:
        running.kill()
    files = {
        str(path.relative_to(folder)): path.read_text(errors="replace")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and not _is_sparks(path)
    }
    said = errors.decode(errors="backslashreplace")
    ours = "".join(found[0] for found in OURS.finditer(said))
    folder.rename(folder.with_name(f"{folder.name}-{time.monotonic_ns()}"))
    return Seen(
        running.returncode,
        output.decode(errors="backslashreplace"),
        OURS.sub("", said),
        files,
        ours,
        running.pid,
    )


def send_signals(running: subprocess.Popen[bytes], case: ScriptCase, folder: Path) -> None:
    """Sends the signals of a case once its script is ready for them."""
    deadline_s = time.monotonic() + PATIENCE_S
    for number in case.sent:
        while not (folder / "ready").exists():
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        time.sleep(0.3)
        running.send_signal(number)


def _is_sparks(path: Path) -> bool:
    """Files whose names Spark draws, and a checkpoint's."""
    return bool({"checkpoint", "artifacts"} & set(path.parts)) or path.name.startswith(".")
