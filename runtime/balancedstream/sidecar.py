"""Runs the agent in a container beside the driver's, for a driver whose image has no Python.

The plugin writes an invitation into a folder that both containers share: what it would tell a child
by environment variables, and a port of the pod's loopback. The connection to it is the agent's
standard input, and takes its exit status back. This process only waits, and outlives each agent.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from balancedstream.errors import InvalidInputError
from balancedstream.version import __version__

INVITATION = "agent.env"
PORT = "BALANCEDSTREAM_JOIN_PORT"
GREETING = "PYSPARK_GATEWAY_SECRET"
VERSION = "BALANCEDSTREAM_PLUGIN_VERSION"
"""As in `Sidecar.java` and `Agent.java`."""

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
        lines = path.read_text("ascii").splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        message = (
            f"{path} cannot be read ({error.strerror}). The application runs on, not balanced. The "
            "driver's user alone may read it: give this container the same runAsUser."
        )
        raise InvalidInputError(message) from error
    return dict(line.split("=", 1) for line in lines)


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


def say(text: str) -> None:
    """Writes a line to the container's log."""
    print(f"balancedstream: {text}", file=sys.stderr)
