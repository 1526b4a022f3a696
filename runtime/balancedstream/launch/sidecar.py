"""Runs the agent in a container beside the driver's, for a driver whose image has no Python.

The plugin writes an invitation into a folder that both containers share: what it would tell a child
by environment variables, and a port of the pod's loopback. The connection to it is the agent's
standard input, and takes its exit status back. This process only waits, and outlives each agent.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from balancedstream.errors import InvalidInputError
from balancedstream.launch.saying import say
from balancedstream.version import __version__

INVITATION = "agent.env"
PORT = "BALANCEDSTREAM_JOIN_PORT"
GREETING = "PYSPARK_GATEWAY_SECRET"
VERSION = "BALANCEDSTREAM_PLUGIN_VERSION"
"""As in `Sidecar.java` and `Agent.java`."""


def _is_port(text: str) -> bool:
    is_number = text.isascii() and text.isdecimal() and len(text) < 6
    return is_number and 0 < int(text) < 65_536


_KNOWN: dict[str, Callable[[str], object]] = {
    PORT: _is_port,
    GREETING: re.compile(r"[0-9a-f]{1,128}").fullmatch,
    VERSION: re.compile(r"[A-Za-z0-9.+_-]{0,64}").fullmatch,
    "PYSPARK_GATEWAY_PORT": _is_port,
    "PYSPARK_PIN_THREAD": "true".__eq__,
}
"""What an invitation says. Nothing else becomes a variable of the agent's environment, because
whoever can write to the folder could name code there, which the agent's Python would run."""

MAX_BYTES = 4096

LOOPBACK = "127.0.0.1"
LOOK_S = 1.0
"""How often the folder is looked at."""

WELCOME_S = 30.0
"""After so long, whoever listens is no plugin: the driver was killed, and its port is another's."""

EXIT_HOPELESS = 78
"""As the agent's, which this process does not import: another start would end the same way."""

AGENT = (sys.executable, "-P", "-m", "balancedstream.agent")


def serve_drivers(folder: Path) -> NoReturn:
    """Runs an agent for the driver that shares a folder, and for each that comes after it.

    Raises:
        InvalidInputError: there is no such folder, or an invitation in it cannot be read.
    """
    if not folder.is_dir():
        message = (
            f"{folder} is no folder. Mount the volume there that the driver shares, which has it "
            "as spark.balancedstream.sidecar."
        )
        raise InvalidInputError(message)
    say(f"waits in {folder} for a driver with a streaming query")
    while True:
        invitation = read_invitation(folder)
        driver = join(invitation) if invitation else None
        if driver is None:
            time.sleep(LOOK_S)
            continue
        with driver:
            status = run_agent(driver, invitation)
            # The driver may be gone.
            with suppress(OSError):
                driver.sendall(bytes([status]))


def read_invitation(folder: Path) -> Mapping[str, str]:
    """What a plugin has written into a folder; empty if nobody is waited for there.

    Raises:
        InvalidInputError: it cannot be read.
    """
    path = folder / INVITATION
    try:
        text = _read_file(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        message = (
            f"{path} cannot be read ({error.strerror}). The application runs on, not balanced. The "
            "driver's user alone may read it: give this container the same runAsUser."
        )
        raise InvalidInputError(message) from error
    told = dict(line.partition("=")[::2] for line in text.split("\n"))
    for name, known in _KNOWN.items():
        if not known(told.get(name, "\n")):
            # Without the value, which may be a secret.
            message = (
                f"{path} is no invitation of a plugin: {name} is missing in it, or is no value of "
                "it. The application runs on, not balanced. Take jar and image from the same "
                "version, and let nobody but the driver write to that folder."
            )
            raise InvalidInputError(message)
    return {name: told[name] for name in _KNOWN}


def _read_file(path: Path) -> str:
    """The beginning of a file, also if it is a pipe to which nobody writes."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        return file.read(MAX_BYTES).decode("ascii", "replace") if is_file else ""


def join(invitation: Mapping[str, str]) -> socket.socket | None:
    """The connection to a driver; None if it does not listen any more."""
    try:
        driver = socket.create_connection((LOOPBACK, int(invitation[PORT])), WELCOME_S)
    except OSError:
        return None
    with suppress(OSError):
        driver.sendall(invitation[GREETING].encode("ascii"))
        if driver.recv(1):
            driver.settimeout(None)
            return driver
    driver.close()
    return None


def run_agent(driver: socket.socket, invitation: Mapping[str, str]) -> int:
    """Runs an agent until it ends; returns its exit status, as a shell gives it."""
    version = invitation[VERSION]
    if version != __version__:
        say(
            f"the plugin of the driver is {version}, and this sidecar is {__version__}. The "
            "application runs on, not balanced. Take jar and image from the same version."
        )
        return EXIT_HOPELESS
    ended = subprocess.run(AGENT, stdin=driver.fileno(), env=os.environ | invitation, check=False)
    return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
