"""Finds the Java for Spark, before Spark fails without a clear message."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from balancedstream.errors import BalancedStreamError

MIN_VERSION = 17
"""The oldest version that Spark 4 runs on."""

INSTALL_HINTS = {
    "Linux": (
        "install it with `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu) or "
        "`dnf install java-17-openjdk-headless` (Fedora, RHEL)"
    ),
    "Darwin": "install it with `brew install openjdk@17`",
    "Windows": "install it with `winget install EclipseAdoptium.Temurin.17.JRE`",
}


class JavaMissingError(BalancedStreamError):
    """There is no Java that Spark can run on."""


def check_java() -> Path:
    """The `java` that Spark will use: the one in JAVA_HOME, or the first on the PATH.

    Raises:
        JavaMissingError: there is none, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    hint = INSTALL_HINTS.get(platform.system(), "install a Java runtime, version 17 or newer")
    todo = f"Nothing was started. Please {hint}, or set JAVA_HOME to an installed one."
    if found is None or not Path(found).exists():
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no `java` on the PATH"
        message = f"Spark needs Java {MIN_VERSION} or newer, and {where}. {todo}"
        raise JavaMissingError(message)
    shown = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    version = parse_java_version(shown.stderr + shown.stdout)
    if version is None or version < MIN_VERSION:
        message = (
            f"Spark needs Java {MIN_VERSION} or newer, and {found} is "
            f"{f'version {version}' if version else 'of an unknown version'}. {todo}"
        )
        raise JavaMissingError(message)
    return Path(found)


def parse_java_version(text: str) -> int | None:
    """The major version in what `java -version` printed.

    >>> parse_java_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> parse_java_version('java version "1.8.0_401"')
    8
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None
