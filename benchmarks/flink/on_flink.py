"""The query on Flink: rescaled in place by the adaptive scheduler, or by a savepoint."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from nexmark.streams import describe_schema

from flink.arms import Arm, Setting
from flink.cluster import Cluster, run_cluster
from flink.job import Job

ADAPTIVE = {
    "jobmanager.scheduler": "adaptive",
    # The default of 30 s would only delay a change that comes soon after another one.
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "1 s",
}


class _OnFlink(Arm):
    def __init__(self, cluster: Cluster, setting: Setting, workers: int) -> None:
        self._cluster = cluster
        cluster.add_workers(workers)
        statements = write_statements(setting)
        self._job = Job(cluster.rest, setting.jar, statements, cluster.folder / "savepoints")
        self._job.start(workers)

    def rescale(self, workers: int) -> None:
        """New TaskManagers are there before the job changes, and old ones leave after that."""
        if workers > len(self._cluster.workers):
            self._cluster.add_workers(workers)
            self._change(workers)
        else:
            self._change(workers)
            self._cluster.remove_idle_workers()

    @abstractmethod
    def _change(self, workers: int) -> None: ...

    def check_alive(self) -> None:
        """Raises MeasurementError if a process of Flink ended, or the job failed."""
        self._cluster.check_alive()
        self._job.check_alive()


class InPlace(_OnFlink):
    """Flink's adaptive scheduler: other resources are declared for the job that runs."""

    def _change(self, workers: int) -> None:
        self._job.rescale(workers)


class BySavepoint(_OnFlink):
    """The job is stopped with a savepoint and started from it with another parallelism."""

    def _change(self, workers: int) -> None:
        self._job.start(workers, self._job.stop_with_savepoint())


@contextmanager
def open_in_place(setting: Setting, workers: int) -> Iterator[Arm]:
    """A job of the adaptive scheduler."""
    with run_cluster(setting.flink, setting.folder / "flink", setting.cores, ADAPTIVE) as cluster:
        yield InPlace(cluster, setting, workers)


@contextmanager
def open_by_savepoint(setting: Setting, workers: int) -> Iterator[Arm]:
    """A job of the default scheduler."""
    with run_cluster(setting.flink, setting.folder / "flink", setting.cores, {}) as cluster:
        yield BySavepoint(cluster, setting, workers)


def write_statements(setting: Setting) -> list[str]:
    """The query in Flink's SQL."""
    address = {"properties.bootstrap.servers": setting.topics.address}
    bids = address | {
        "connector": "kafka",
        "topic": setting.topics.bids,
        "properties.group.id": setting.topics.bids,
        "scan.startup.mode": "earliest-offset",
        "format": "json",
    }
    best = address | {
        "connector": "upsert-kafka",
        "topic": setting.topics.best,
        "key.format": "json",
        "value.format": "json",
    }
    # Points in time are text in the rows, and of no use to the query.
    columns = describe_schema("bid").replace("TIMESTAMP", "STRING")
    return [
        "CREATE TEMPORARY SYSTEM FUNCTION slow_count AS 'SlowCount'",
        f"CREATE TABLE bid ({columns}) WITH ({_write_options(bids)})",
        "CREATE TABLE best (bidder BIGINT, bids BIGINT, price BIGINT, "
        f"PRIMARY KEY (bidder) NOT ENFORCED) WITH ({_write_options(best)})",
        f"INSERT INTO best SELECT bidder, slow_count(price, {setting.rounds}), MAX(price) "  # noqa: S608
        "FROM bid GROUP BY bidder",
    ]


def _write_options(options: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
