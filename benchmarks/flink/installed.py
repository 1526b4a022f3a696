"""Flink as `make .venv-flink/.ready` installs it, and the Java that both engines run."""

from __future__ import annotations

import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

from harness.benchmark import MeasurementError
from harness.results import REPOSITORY
from jars import fetch_jars

HERE = Path(__file__).parent
ENVIRONMENT = REPOSITORY / ".venv-flink"
SOURCES = ("Work", "SlowCount", "Submit")


@dataclass(frozen=True)
class Flink:
    """An installed Flink.

    Attributes:
        version: of it.
        class_path: its own jars, and its connector for Kafka.
    """

    version: str
    class_path: str


def find_flink() -> Flink:
    """The installed Flink.

    Raises:
        MeasurementError: there is none.
    """
    libraries = next(ENVIRONMENT.glob("lib/python3*/site-packages/pyflink/lib"), None)
    if libraries is None:
        message = "Flink is not installed, so nothing was measured: make .venv-flink/.ready"
        raise MeasurementError(message)
    version = next(libraries.glob("flink-dist-*.jar")).stem.removeprefix("flink-dist-")
    connector = fetch_jars(HERE / "pom.xml")
    return Flink(version, f"{libraries}/*:{connector}/*")


def compile_jar(flink: Flink, folder: Path) -> Path:
    """Compiles what both engines run into one jar: Spark needs only its `Work`."""
    classes = folder / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    sources = [str(HERE / f"{name}.java") for name in SOURCES]
    command = ["javac", "--release", "17", "-proc:none", "-cp", flink.class_path]
    subprocess.run([*command, "-d", str(classes), *sources], check=True)
    jar = folder / "beside-flink.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for file in sorted(classes.glob("*.class")):
            archive.write(file, file.name)
    return jar
