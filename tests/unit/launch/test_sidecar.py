"""The process of a sidecar: whom it waits for, what it joins, and what it tells the driver."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.applications import find_free_port
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from balancedstream.errors import InvalidInputError
from balancedstream.launch import sidecar
from balancedstream.launch.sidecar import (
    EXIT_HOPELESS,
    INVITATION,
    join,
    read_invitation,
    run_agent,
)
from balancedstream.version import __version__

KNOCK = b"0a1b2c"
PATIENCE_S = 30.0


def write_invitation(
    folder: Path, port: object, version: str = __version__, **others: str | None
) -> None:
    """As the plugin does."""
    lines = {
        "BALANCEDSTREAM_JOIN_PORT": str(port),
        "PYSPARK_GATEWAY_PORT": "25333",
        "PYSPARK_GATEWAY_SECRET": KNOCK.decode(),
        "PYSPARK_PIN_THREAD": "true",
        "BALANCEDSTREAM_PLUGIN_VERSION": version,
        **others,
    }
    text = "".join(f"{name}={value}\n" for name, value in lines.items() if value is not None)
    written = folder / "written"
    written.write_text(text)
    written.rename(folder / INVITATION)


@pytest.fixture
def door() -> Iterator[socket.socket]:
    """Where a plugin listens."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(PATIENCE_S)
        yield door


@contextmanager
def admit(door: socket.socket, folder: Path) -> Iterator[socket.socket]:
    """Lets an agent in that knows the secret, as the plugin does."""
    guest, _ = door.accept()
    with guest:
        guest.settimeout(PATIENCE_S)
        assert guest.recv(len(KNOCK), socket.MSG_WAITALL) == KNOCK
        (folder / INVITATION).unlink()
        guest.sendall(b"\n")
        yield guest


@contextmanager
def run_sidecar(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "balancedstream.cli", "sidecar", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_one_driver_after_the_other_is_served(tmp_path: Path, door: socket.socket) -> None:
    port = door.getsockname()[1]
    with run_sidecar(tmp_path) as process:
        for version in ("9.8.8", "9.9.9"):
            write_invitation(tmp_path, port, version)
            with admit(door, tmp_path) as guest:
                assert guest.recv(1) == bytes([EXIT_HOPELESS])
                assert guest.recv(1) == b""
        process.kill()
        assert process.stderr
        waits, *lines = process.stderr.read().splitlines()
    assert waits == f"balancedstream: waits in {tmp_path} for a driver with a streaming query"
    for line, version in zip(lines, ("9.8.8", "9.9.9"), strict=True):
        assert f"the plugin of the driver is {version}, and this sidecar is {__version__}" in line
        assert "The application runs on, not balanced. Take jar and image from the same" in line


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        # Says what it got, and ends by itself when its standard input does.
        ("print(os.environ['PYSPARK_GATEWAY_SECRET']); os.read(0, 1); sys.exit(7)", 7),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137),
    ],
)
def test_the_connection_is_the_agents_standard_input_and_its_status_is_a_shells(
    ends: str,
    status: int,
    door: socket.socket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    code = f"import os, signal, sys; {ends}"
    monkeypatch.setattr(sidecar, "AGENT", (sys.executable, "-c", code))
    write_invitation(tmp_path, door.getsockname()[1])
    invitation = read_invitation(tmp_path)
    # The connection waits until the plugin looks.
    with socket.create_connection(door.getsockname()) as driver, door.accept()[0] as plugin:
        plugin.shutdown(socket.SHUT_WR)
        assert run_agent(driver, invitation) == status
    assert capfd.readouterr().out == (f"{KNOCK.decode()}\n" if status == 7 else "")


def test_who_does_not_welcome_it_is_no_plugin(
    tmp_path: Path, door: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar, "WELCOME_S", 0.1)
    for port in (find_free_port(), door.getsockname()[1]):
        write_invitation(tmp_path, port)
        assert join(read_invitation(tmp_path)) is None


def test_an_invitation_that_it_may_not_read_is_said_with_what_to_do(tmp_path: Path) -> None:
    assert read_invitation(tmp_path) == {}
    # Root may read any file.
    (tmp_path / INVITATION).mkdir()
    with pytest.raises(InvalidInputError, match=r"cannot be read .*the same runAsUser"):
        read_invitation(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["PYTHONSTARTUP", "PYTHONPATH", "LD_PRELOAD", "PATH", "PYTHONHOME", "A B", ""],
)
def test_no_other_variable_reaches_the_agent(tmp_path: Path, name: str) -> None:
    write_invitation(tmp_path, 7)
    expected = read_invitation(tmp_path)
    write_invitation(tmp_path, 7, **{name: "/evil"})
    assert read_invitation(tmp_path) == expected
    assert name not in expected


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("BALANCEDSTREAM_JOIN_PORT", [None, "", "0", "65536", "-1", "7 ", "\u0667", "9" * 5000]),
        ("PYSPARK_GATEWAY_PORT", [None, "x", "99999"]),
        ("PYSPARK_GATEWAY_SECRET", [None, "", "é", "a\0", "g", "a" * 200]),
        ("BALANCEDSTREAM_PLUGIN_VERSION", [None, "1 2", "\x1b[31m", "1" * 99]),
        ("PYSPARK_PIN_THREAD", [None, "false", ""]),
    ],
)
def test_a_broken_invitation_is_one_sentence_that_names_what_is_broken(
    tmp_path: Path, name: str, values: list[str | None]
) -> None:
    for value in values:
        write_invitation(tmp_path, 7, __version__, **{name: value})
        with pytest.raises(InvalidInputError, match=f"no invitation of a plugin: {name} is"):
            read_invitation(tmp_path)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_no_file_is_more_than_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / INVITATION).write_bytes(content)
    with pytest.raises(InvalidInputError, match="no invitation of a plugin"):
        read_invitation(tmp_path)


def test_a_pipe_is_no_invitation_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / INVITATION)
    with pytest.raises(InvalidInputError, match="no invitation of a plugin"):
        read_invitation(tmp_path)


def test_the_command_says_what_is_broken_without_a_stack_trace(tmp_path: Path) -> None:
    (tmp_path / INVITATION).write_text("PYTHONSTARTUP=/evil.py")
    with run_sidecar(tmp_path) as process:
        assert process.wait(PATIENCE_S) == 2
        assert process.stderr
        _, *said = process.stderr.read().splitlines()
    assert len(said) == 1
    assert "is no invitation of a plugin" in said[0]
