"""Applications that nobody touches, started as their users do: PySpark, Java, Scala, Connect."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pyspark

from balancedstream.cli import PLUGIN_CLASS, PLUGIN_JAR
from harness.benchmark import MeasurementError
from harness.waiting import wait_until

APPLICATIONS = Path(__file__).parents[1] / "applications"
KINDS = ("PySpark", "Java", "Scala", "Connect")
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SHELL = "org.apache.spark.repl.Main"
"""Of `spark-shell`, where the application in Scala is typed."""

EXECUTORS = 3

SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.master": f"local-cluster[{EXECUTORS},1,1024]",
    # Spark searches an interrupted batch's error by a regular expression that recurses.
    "spark.driver.extraJavaOptions": f"{SHORT_LIVED_JVM} -Xss8m",
    "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
    "spark.log.level": "WARN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "12",
    "spark.plugins": PLUGIN_CLASS,
    "spark.balancedstream.mode": "auto",
    "spark.balancedstream.python": sys.executable,
    "spark.balancedstream.metrics.port": "0",
}

JAVA_VERSION = "17"
"""The oldest that Spark 4 runs on, which images have."""

TERMINATED = 143
"""Of a JVM, after its hooks."""

CONNECT_3_5 = "3.5.7"
"""Spark 3.5 brings no server of Connect, and not every one of its releases is in each mirror."""

PATIENCE_S = 180.0
END_PATIENCE_S = 60.0
TAIL_CHARS = 4000


@dataclass(frozen=True)
class Spark:
    """An installed Spark.

    Attributes:
        version: of it.
        python: of its environment.
        home: its folder.
    """

    version: str
    python: Path
    home: Path


@dataclass
class Application:
    """One life of an application.

    Attributes:
        spark: what it runs on.
        driver: its driver's process; of Spark Connect, the server.
        client: of Spark Connect, the client's process.
        folder: where its result goes.
        log: what the driver says.
    """

    spark: Spark
    driver: subprocess.Popen[bytes]
    client: subprocess.Popen[bytes] | None
    folder: Path
    log: Path

    def find(self, pattern: str, count: int = 1) -> list[str]:
        """Awaits a pattern in the log, so often; returns what its group, or all of it, matched.

        Raises:
            MeasurementError: it did not come.
        """
        await_that(lambda: len(self._match(pattern)) >= count, pattern, self)
        return self._match(pattern)

    def _match(self, pattern: str) -> list[str]:
        return re.findall(pattern, self.log.read_text("utf-8", "replace"))

    def count_batches(self) -> int:
        """The batches that the present agent's metrics count."""
        url = self.find(r"metrics: (\S+/metrics)")[-1]
        with urlopen(url, timeout=10) as page:  # noqa: S310 - the agent's own
            text = page.read().decode()
        found = re.search(r'^balancedstream_batches_total\{query="counts"\} (\S+)', text, re.M)
        return int(float(found[1])) if found else 0

    def check_alive(self) -> None:
        """Raises MeasurementError if it ended."""
        for process in (self.driver, self.client):
            if process is not None and process.poll() is not None:
                message = f"a process ended with status {process.returncode}\n{self.read_tail()}"
                raise MeasurementError(message)

    def read_tail(self) -> str:
        """The end of what its processes said."""
        logs = [log for log in (self.log, name_client_log(self.log)) if log.exists()]
        return "\n".join(log.read_text("utf-8", "replace")[-TAIL_CHARS:] for log in logs)

    def await_end(self) -> float:
        """Awaits the end of an application that was asked to stop; a server is told to end.

        Returns:
            Seconds from its result, or from the server being told, to the driver's end.

        Raises:
            MeasurementError: it does not end, or not well.
        """
        try:
            if self.client is None:
                self._check_status(self.driver.wait(PATIENCE_S), 0)
                return time.time() - (self.folder / "result").stat().st_mtime
            self._check_status(self.client.wait(PATIENCE_S), 0)
            told_s = time.time()
            self.driver.terminate()
            self._check_status(self.driver.wait(END_PATIENCE_S), TERMINATED)
            return time.time() - told_s
        except (subprocess.TimeoutExpired, OSError) as error:
            message = f"it does not end: {error}\n{self.read_tail()}"
            raise MeasurementError(message) from error

    def _check_status(self, status: int, wanted: int) -> None:
        if status != wanted:
            message = f"a process ended with status {status}\n{self.read_tail()}"
            raise MeasurementError(message)

    def kill(self) -> None:
        """Ends its processes."""
        for process in (self.driver, self.client):
            if process is not None:
                process.kill()
                process.wait()

    def remove_work_folders(self, executors: Iterable[Path]) -> None:
        """Removes what its executors left in Spark's own folder."""
        for folder in {executor.parent for executor in executors}:
            shutil.rmtree(folder, ignore_errors=True)


def find_sparks(repository: Path) -> dict[str, Spark]:
    """The Sparks to run on, by version: this environment's, then those of `make plugin-apps`."""
    pythons = {pyspark.__version__: Path(sys.executable)}
    for folder in sorted(repository.glob(".venv-spark-*")):
        pythons[folder.name.removeprefix(".venv-spark-")] = folder / "bin" / "python"
    return {version: find_spark(version, python) for version, python in pythons.items()}


def find_spark(version: str, python: Path) -> Spark:
    """The Spark of an environment with PySpark."""
    command = [str(python), "-c", "import pyspark; print(pyspark.__path__[0])"]
    home = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return Spark(version, python, Path(home))


def start(  # noqa: PLR0917
    kind: str,
    spark: Spark,
    folder: Path,
    name: str,
    arguments: Sequence[str],
    settings: Mapping[str, str],
) -> Application:
    """Starts an application as its users do, with `spark-submit`; `spark-shell` starts that, too.

    Args:
        kind: one of `KINDS`.
        spark: what it runs on.
        folder: for its log and its result.
        name: of this life of it.
        arguments: of the application.
        settings: of Spark, besides those of each application here.
    """
    log = folder / f"{name}.log"
    environment = os.environ | {"SPARK_HOME": str(spark.home), "PYSPARK_PYTHON": str(spark.python)}
    python_application = str(APPLICATIONS / "counts.py")
    port = find_free_port()
    jars = [PLUGIN_JAR]
    words = [python_application, *arguments]
    typed = Path(os.devnull)
    if kind == "Java":
        words = ["--class", "Counts", str(compile_java(spark, folder)), *arguments]
    elif kind == "Scala":
        words = ["--class", SHELL]
        environment["SPARK_SUBMIT_OPTS"] = "-Dscala.usejavacp=true"
        environment["COUNTS"] = "\n".join(arguments)
        typed = APPLICATIONS / "Counts.scala"
    elif kind == "Connect":
        words = ["--conf", f"spark.connect.grpc.binding.port={port}", "--class", SERVER]
        words.append("spark-internal")
        jars += find_connect_jars(spark, folder)
    given = SETTINGS | {"spark.jars": ",".join(map(str, jars))} | dict(settings)
    options = [word for pair in given.items() for word in ("--conf", "=".join(pair))]
    with log.open("wb") as file, typed.open("rb") as keyboard:
        driver = subprocess.Popen(
            [str(spark.home / "bin" / "spark-submit"), *options, *words],
            cwd=folder,
            env=environment,
            stdin=keyboard,
            stdout=file,
            stderr=file,
        )
    application = Application(spark, driver, None, folder, log)
    if kind == "Connect":
        try:
            await_that(lambda: listens(port), "the server listens", application)
        except MeasurementError:
            application.kill()
            raise
        environment["SPARK_REMOTE"] = f"sc://127.0.0.1:{port}"
        with name_client_log(log).open("wb") as file:
            application.client = subprocess.Popen(
                [str(spark.python), python_application, *arguments],
                env=environment,
                stdout=file,
                stderr=file,
            )
    return application


def name_client_log(log: Path) -> Path:
    """What a client of Spark Connect says, beside what its server says."""
    return log.with_suffix(".client.log")


def find_connect_jars(spark: Spark, folder: Path) -> list[Path]:
    """What a Spark does not bring of Connect's server: before Spark 4.0, all of it."""
    if any((spark.home / "jars").glob("spark-connect_*.jar")):
        return []
    jars = folder / "connect"
    if not jars.exists():
        artifact = f"org.apache.spark:spark-connect_2.12:{CONNECT_3_5}"
        command = ["mvn", "--quiet", "--batch-mode", "dependency:copy"]
        arguments = [f"-Dartifact={artifact}", f"-DoutputDirectory={jars}"]
        subprocess.run([*command, *arguments], cwd=folder, check=True)
    return [*jars.glob("*.jar")]


def compile_java(spark: Spark, folder: Path) -> Path:
    """The jar of the application in Java, compiled against the Spark that it runs on."""
    jar = folder / "counts.jar"
    if jar.exists():
        return jar
    classes = folder / "classes"
    command = ["javac", "--release", JAVA_VERSION, "-cp", str(spark.home / "jars" / "*")]
    subprocess.run([*command, "-d", str(classes), str(APPLICATIONS / "Counts.java")], check=True)
    with zipfile.ZipFile(jar, "w") as archive:
        for file in classes.rglob("*.class"):
            archive.write(file, file.relative_to(classes))
    return jar


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def listens(port: int) -> bool:
    """Whether somebody listens on a port of this machine."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def find_executors(application: Application) -> dict[int, Path]:
    """The executors' processes, children of a local cluster's driver, to their folders."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            command = (process / "cmdline").read_bytes()
            if parent == application.driver.pid and b"--executor-id" in command:
                found[int(process.name)] = (process / "cwd").readlink()
        except OSError:
            continue
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def await_that(holds: Callable[[], bool], what: str, of: Application | None = None) -> None:
    """Waits until something holds, while an application lives.

    Raises:
        MeasurementError: it ended, or it takes too long.
    """
    wait_until(
        holds,
        check=lambda: of.check_alive() if of else None,
        patience_s=PATIENCE_S,
        complain=lambda: f"not within {PATIENCE_S:.0f} s: {what}\n{of.read_tail() if of else ''}",
    )
