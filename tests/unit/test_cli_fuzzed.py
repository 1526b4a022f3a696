"""Nothing that a person types ends a command in a traceback, or starts a script by mistake."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE_S

from balancedstream import cli
from balancedstream.cli import main
from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy, to_mapping
from balancedstream.core.samples import KeySample, TaskSample
from balancedstream.launch import running

COMMANDS = ("run", "estimate", "explain", "policy", "plugin", "sidecar", "runn", "")
OPTIONS = (
    "--local", "--policy", "--baseline", "--report", "--record", "--metrics-port",
    "--metrics-address", "--hot-keys", "--stream", "--json", "-m", "--help", "--version", "--", "-",
    "--loc",
)  # fmt: skip
VALUES = (
    "2:4", "0:2", "-1:2", "2:", ":", "9" * 5000, "4.0", "٣", "1e3", "3", "-3", "99999", "default/x",
    "x", "/proc/nowhere", "/dev/null", "plain", "off", "::", "", " ", "café", "\udcff", "\u2192",
    "\x1b[2J", "no\nline", "%s", "{}", "nothere.py", ".",
)  # fmt: skip

words = st.one_of(
    st.sampled_from(COMMANDS + OPTIONS + VALUES),
    st.text(st.characters(exclude_characters="\0"), max_size=6),
)
lines = st.tuples(st.sampled_from(COMMANDS), st.lists(words, max_size=6)).map(
    lambda line: [line[0], *line[1]]
)


class StartedError(BaseException):
    """A command would have become the script's Python."""


def start(*arguments: object) -> None:
    raise StartedError


@pytest.fixture(autouse=True, scope="module")
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the options make is made in an empty folder; no server and no script starts."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path_factory.mktemp("elsewhere"))
        patched.setattr(os, "execve", start)
        patched.setattr(cli, "serve_drivers", start)
        patched.setattr(running, "check_java", lambda: None)
        patched.setattr(running, "_check_port", lambda port, address: None)
        yield


def answer(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit status of a command, and what it said on standard error."""
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        try:
            status = main(arguments)
        except SystemExit as end:
            status = 0 if end.code is None else int(end.code)
        except StartedError:
            status = 0
    return status, errors.getvalue()


@given(lines)
def test_any_words_get_an_answer_or_an_error_of_one_sentence(line: list[str]) -> None:
    status, said = answer(line)
    assert status in {0, 2}, line
    assert (status == 2) == bool(said), line


def write_observation(path: Path) -> str:
    tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0 + p, 10, 1000, 9.0) for p in range(4))
    keys = (KeySample("q", 0, '"de"', 0, 1, 0.5),)
    seen = Observation(10.0, {"a": 1, "b": 2}, tasks, keys=keys)
    content = {"policy": to_mapping(Policy()), "observation": json.loads(seen.to_json())}
    path.write_text(json.dumps(content))
    return path.read_text()


PIECES = (
    "-", "1e999", "NaN", "null", '"', "[", "{", "]", "}", "0", "9" * 400, "9" * 5000, "true",
    '"a"', "-1", "1.5", ",", ":", "\\u0000", "\x00", "[" * 5000,
)  # fmt: skip


def change(text: str, chance: random.Random) -> str:
    """A file that somebody cut off or edited by hand."""
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(text) + 1)
        until = min(len(text), at + chance.choice((0, 1, 1, 3, 20, len(text))))
        text = text[:at] + chance.choice(("", *PIECES)) + text[until:]
    return text


@given(st.integers(0, 10**9))
def test_a_spoilt_observation_is_explained_or_refused(seed: int) -> None:
    path = Path("seen.json")
    path.write_text(change(write_observation(path), random.Random(seed)))
    status, said = answer(["explain", str(path)])
    assert status in {0, 2}
    if status:
        assert said.startswith("balancedstream: ")


@given(st.integers(0, 10**9))
def test_a_spoilt_policy_file_is_read_or_refused(seed: int) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(["policy"])
    Path("job.py").touch()
    Path("policy.yaml").write_text(change(printed.getvalue(), random.Random(seed)))
    status, said = answer(["run", "--policy", "policy.yaml", "job.py"])
    assert status in {0, 2}
    if status:
        assert said.startswith("balancedstream: "), said


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"[" * 100_000, b"9" * 5_000, b"{}"])
@pytest.mark.parametrize("command", [["explain"], ["run", "--policy"]])
def test_a_file_that_is_none_is_refused_by_name(command: list[str], content: bytes) -> None:
    Path("job.py").touch()
    Path("wrong").write_bytes(content)
    status, said = answer([*command, "wrong", *(["job.py"] if command[0] == "run" else [])])
    if status:
        assert "wrong" in said
        assert len(said) < 1_000


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = f"{sys.executable} -m balancedstream.cli"
    return subprocess.run(
        ["/bin/bash", "-c", line.replace("balancedstream", command)],
        env=os.environ | environment,
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("command", ["policy", "--help", "run --help", "explain seen.json"])
@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "ascii:strict"},
        {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ],
    ids=str,
)
def test_a_command_answers_in_any_encoding(command: str, environment: dict[str, str]) -> None:
    write_observation(Path("seen.json"))
    answered = shell(f"balancedstream {command}", **environment)
    assert (answered.returncode, answered.stderr) == (0, b"")
    assert answered.stdout


@pytest.mark.parametrize("command", ["policy", "--help", "explain seen.json", "run", "explain x"])
def test_a_command_whose_reader_is_gone_says_nothing_of_it(command: str) -> None:
    write_observation(Path("seen.json"))
    answered = shell(f"balancedstream {command} 2>errors | true; echo ${{PIPESTATUS[0]}}")
    assert answered.stdout in {b"0\n", b"2\n", b"141\n"}
    assert b"Traceback" not in Path("errors").read_bytes()
    assert b"Exception ignored" not in Path("errors").read_bytes()


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&-", ">/dev/full", "2>/dev/full"])
@pytest.mark.parametrize("command", ["policy", "explain x", "run"])
def test_a_command_with_closed_or_full_streams_ends_by_its_status(
    command: str, closed: str
) -> None:
    answered = shell(f"balancedstream {command} {closed}")
    assert answered.returncode in {0, 2}
    if command != "policy":
        assert answered.stdout == b"", "an error is no output"
    assert b"Traceback" not in answered.stderr
    assert b"Exception ignored" not in answered.stderr


def test_a_command_that_is_interrupted_ends_by_the_signal() -> None:
    os.mkfifo("endless")
    command = [sys.executable, "-m", "balancedstream.cli", "explain", "endless"]
    waiting = subprocess.Popen(command, stderr=subprocess.PIPE)
    with Path("endless").open("wb"):  # opens when the command does
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=PATIENCE_S)
    assert (waiting.returncode, said) == (-signal.SIGINT, b"")
