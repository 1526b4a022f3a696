"""A Flink cluster of processes on this machine: a JobManager, and TaskManagers with a CPU quota."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from broker_process import find_port
from harness.benchmark import MeasurementError
from harness.quotas import find_cpu_groups, make_group, remove_group
from harness.waiting import wait_until

from flink.installed import Flink
from flink.job import Rest

JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"

OPENED = """
    java.io java.lang java.lang.reflect java.net java.nio java.text java.time java.util
    java.util.concurrent java.util.concurrent.atomic java.util.concurrent.locks sun.nio.ch
"""
"""Packages of Java that the configuration opens that Flink comes with."""

JAVA = ["java", "-Xmx1024m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
"""The memory, the compiler and the collector of Spark's executors, see `harness.quotas`."""

CHECKPOINT_S = 2
"""Spark commits with every batch, and a batch takes about so long."""

SETTINGS = {
    "jobmanager.rpc.address": "127.0.0.1",
    "jobmanager.bind-host": "127.0.0.1",
    "jobmanager.memory.process.size": "1600m",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
    "taskmanager.host": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
    "taskmanager.numberOfTaskSlots": "1",
    # What Flink's scripts, which its Python package lacks, compute from the size of a process.
    "taskmanager.cpu.cores": "1",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
    "taskmanager.memory.task.heap.size": "512m",
    "taskmanager.memory.task.off-heap.size": "0m",
    "taskmanager.memory.managed.size": "256m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.interval": f"{CHECKPOINT_S} s",
    # A job that fails is a failed run; to change its parallelism is no failure.
    "restart-strategy.type": "none",
}

LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
appender.file.name = file
appender.file.type = FILE
appender.file.fileName = ${sys:flink.log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} - %m%n
"""

PATIENCE_S = 120.0
END_S = 20.0


@dataclass
class TaskManager:
    """A TaskManager that runs.

    Attributes:
        process: its own.
        group: by which its CPU is limited.
    """

    process: subprocess.Popen[bytes]
    group: Path


@dataclass
class Cluster:
    """A cluster that runs.

    Attributes:
        flink: that it is of.
        folder: of its configuration, checkpoints and logs.
        cores: that a TaskManager may use.
        rest: its interface.
        manager: the JobManager's process.
        workers: its TaskManagers, by the id that they have there.
    """

    flink: Flink
    folder: Path
    cores: float
    rest: Rest
    manager: subprocess.Popen[bytes]
    workers: dict[str, TaskManager] = field(default_factory=dict)

    def add_workers(self, count: int) -> None:
        """Starts TaskManagers until there are so many, and waits until all have reported."""
        while len(self.workers) < count:
            name = f"taskmanager-{uuid4().hex[:8]}"
            named = f"-Dtaskmanager.resource-id={name}"
            process = start_process(self.flink, self.folder, name, [TASK_MANAGER, named])
            group = make_group(find_cpu_groups() / name, self.cores)
            (group / "cgroup.procs").write_text(str(process.pid))
            self.workers[name] = TaskManager(process, group)
        self.await_that(lambda: len(self._list_free_slots()) == count, "a TaskManager is missing")

    def remove_idle_workers(self) -> None:
        """Stops the TaskManagers that have no task, once one has."""

        def list_idle() -> list[str]:
            return [name for name, free in self._list_free_slots().items() if free]

        self.await_that(lambda: len(list_idle()) < len(self.workers), "no slot is in use")
        for name in list_idle():
            self._remove_worker(name)

    def await_that(self, holds: Callable[[], bool], complaint: str) -> None:
        """Waits until something holds, as long as all processes live.

        Raises:
            MeasurementError: a process ended, or it takes too long.
        """
        wait_until(
            holds,
            check=self.check_alive,
            patience_s=PATIENCE_S,
            complain=lambda: f"{complaint} for {PATIENCE_S:.0f} s; see {self.folder}",
        )

    def check_alive(self) -> None:
        """Raises MeasurementError if a process that should run ended."""
        for process in (self.manager, *(worker.process for worker in self.workers.values())):
            if process.poll() is not None:
                message = f"a process of Flink ended with {process.returncode}; see {self.folder}"
                raise MeasurementError(message)

    def stop(self) -> None:
        """Ends all of its processes."""
        for name in list(self.workers):
            self._remove_worker(name)
        end_process(self.manager)

    def is_up(self) -> bool:
        """Whether the JobManager answers."""
        try:
            return "flink-version" in self.rest.ask("GET", "/config")
        except OSError:
            return False

    def _list_free_slots(self) -> dict[str, int]:
        """Slots without a task, by TaskManager."""
        listed: list[dict[str, Any]] = self.rest.ask("GET", "/taskmanagers")["taskmanagers"]
        return {worker["id"]: worker["freeSlots"] for worker in listed}

    def _remove_worker(self, name: str) -> None:
        worker = self.workers.pop(name)
        end_process(worker.process)
        remove_group(worker.group, find_cpu_groups())


@contextmanager
def run_cluster(
    flink: Flink, folder: Path, cores: float, settings: Mapping[str, str]
) -> Iterator[Cluster]:
    """A cluster without TaskManagers yet.

    Args:
        flink: the installed one.
        folder: for all of its files.
        cores: that a TaskManager may use.
        settings: beside `SETTINGS`.
    """
    folder.mkdir(parents=True)
    port = find_port()
    own = {
        "rest.port": str(port),
        "jobmanager.rpc.port": str(find_port()),
        "io.tmp.dirs": str(folder / "tmp"),
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
    }
    lines = [f"{name}: {value}\n" for name, value in (SETTINGS | own | dict(settings)).items()]
    (folder / "config.yaml").write_text("".join(lines))
    (folder / "log4j.properties").write_text(LOG4J)
    manager = start_process(flink, folder, "jobmanager", [JOB_MANAGER])
    cluster = Cluster(flink, folder, cores, Rest(port), manager)
    try:
        cluster.await_that(cluster.is_up, "the JobManager did not answer")
        yield cluster
    finally:
        cluster.stop()


def start_process(
    flink: Flink, folder: Path, name: str, main: list[str]
) -> subprocess.Popen[bytes]:
    """Starts a process of Flink.

    Args:
        flink: the installed one.
        folder: of the configuration and of its logs.
        name: of its logs.
        main: the class that it runs, and arguments.
    """
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED.split()]
    # Not as Flink's scripts name it: RocksDB would make file names of it that are too long.
    log = f"-Dflink.log={folder / name}.log"
    log4j = f"-Dlog4j.configurationFile={folder / 'log4j.properties'}"
    command = [*JAVA, *opened, log, log4j, "-cp", flink.class_path]
    class_name, *arguments = main
    with (folder / f"{name}.out").open("w") as out:
        return subprocess.Popen(
            [*command, class_name, "--configDir", str(folder), *arguments], stdout=out, stderr=out
        )


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Ends a process, by force if it has to be."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
