"""Builds the plugin's jar: `python spark-plugin/build_jar.py`; the wheel's build does it, too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src"
SPARK = HERE / "spark"
PACKAGE = HERE.parent / "runtime" / "balancedstream"
JAR = PACKAGE / "spark-plugin.jar"

JAVA_VERSION = "8"
"""Spark 3.5 runs on it."""

SAME_TIME = (1980, 1, 1, 0, 0, 0)
"""Of every file in the jar, so that the same sources give the same bytes."""


class NoCompilerError(Exception):
    """There is no Java compiler."""


def build_jar() -> Path:
    """Compiles the plugin into the Python package; returns the jar.

    Raises:
        NoCompilerError: there is no `javac`.
        subprocess.CalledProcessError: the sources do not compile.
    """
    compiler = find_compiler()
    with tempfile.TemporaryDirectory() as folder:
        sources = [str(path) for path in sorted(SOURCES.rglob("*.java"))]
        options = ["--release", JAVA_VERSION, "-Xlint:all,-options", "-Werror", "-proc:none"]
        paths = ["-sourcepath", str(SPARK), "-implicit:none", "-d", folder]
        subprocess.run([compiler, *options, *paths, *sources], check=True)
        files = [(path, path.relative_to(folder)) for path in Path(folder).rglob("*.class")]
        files += [(path, path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py")]
        with zipfile.ZipFile(JAR, "w", zipfile.ZIP_DEFLATED) as archive:
            write(archive, "META-INF/MANIFEST.MF", describe())
            for path, name in sorted(files, key=lambda file: file[1]):
                write(archive, name.as_posix(), path.read_bytes())
    return JAR


def write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Adds a file to a jar."""
    archive.writestr(zipfile.ZipInfo(name, SAME_TIME), content, zipfile.ZIP_DEFLATED)


def describe() -> bytes:
    """The manifest; the plugin reads its version there, and starts no agent of another one."""
    text = (PACKAGE / "version.py").read_text("utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', text, re.M)
    return f"Manifest-Version: 1.0\r\nImplementation-Version: {version}\r\n\r\n".encode()


def find_compiler() -> str:
    """The `javac` of JAVA_HOME, or the first on the PATH.

    Raises:
        NoCompilerError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("javac", path=Path(home, "bin") if home else None)
    if found is None:
        where = f"JAVA_HOME={home}" if home else "on the PATH"
        message = f"no javac in {where}: the plugin for Spark needs a JDK, 17 or newer, to be built"
        raise NoCompilerError(message)
    return found


if __name__ == "__main__":
    try:
        print(build_jar())
    except NoCompilerError as error:
        sys.exit(str(error))
