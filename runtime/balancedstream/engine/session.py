"""Gives an unmodified script a tuned session when it asks for a session."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from balancedstream.core.sizing import parse_mib
from balancedstream.engine.filemanagers import FILE_MANAGER, renaming_on_posix_only
from balancedstream.engine.formats import keeping_formats
from balancedstream.engine.settings import tune
from balancedstream.engine.traits import find_traits, to_scala_list
from balancedstream.errors import InvalidInputError

EXECUTOR_MEMORY_MIB = 1024

START_TIMEOUT_S = 60.0
"""Time for executor processes to start; after it, the script runs without those missing."""


@dataclass(frozen=True, slots=True)
class LocalExecutors:
    """Executor processes on this machine: `least` at the start, `most` at most."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> LocalExecutors:
        """Reads `MIN:MAX`, or `N` for a fixed number.

        Raises:
            InvalidInputError: not two whole numbers, or not 1 <= MIN <= MAX.

        >>> LocalExecutors.parse("2:4")
        LocalExecutors(least=2, most=4)
        """
        least, colon, most = text.partition(":")
        try:
            found = cls(int(least), int(most if colon else least))
        except ValueError:
            found = cls(0, 0)
        if not 1 <= found.least <= found.most:
            message = f"--local: must be MIN:MAX with 1 <= MIN <= MAX, such as 2:4, not {text!r}"
            raise InvalidInputError(message)
        return found


@contextmanager
def tuned_sessions(
    local: LocalExecutors | None,
    on_session: Callable[[SparkSession], None],
    warn: Callable[[str], None],
    spark_log: Path | None = None,
) -> Iterator[None]:
    """While open, the first `SparkSession.builder.getOrCreate()` returns a tuned session.

    Args:
        local: executors to start on this machine; None keeps the user's master.
        on_session: called once with the new session, before the script sees it.
        warn: called with each warning about the user's own settings.
        spark_log: where Spark's log goes instead of standard error.

    Raises:
        DynamicAllocationError: the script asks for dynamic allocation.
        InvalidInputError: `local` is given, and the script names a cluster.
    """
    builder: Any = SparkSession.Builder
    get_or_create = builder.getOrCreate
    known: set[int] = set()
    while_open = ExitStack()

    def get_or_create_tuned(self: Any) -> SparkSession:
        conf: dict[str, str] = {}
        if SparkContext._active_spark_context is None:
            conf = _tuned_conf(self._options, local, warn, spark_log)
            for key, value in conf.items():
                self.config(key, value)
            if FILE_MANAGER in conf:
                while_open.enter_context(renaming_on_posix_only(conf[FILE_MANAGER]))
        session: SparkSession = get_or_create(self)
        if conf and not find_traits(session.version).keeps_formats:
            while_open.enter_context(keeping_formats())
        context = id(session.sparkContext)
        if context not in known:
            known.add(context)
            if local and local.least < local.most:
                _keep_executors(session, local)
            on_session(session)
        return session

    builder.getOrCreate = get_or_create_tuned
    try:
        with while_open:
            yield
    finally:
        builder.getOrCreate = get_or_create


def _keep_executors(session: SparkSession, local: LocalExecutors) -> None:
    """Stops the executors beyond `local.least`: a local cluster starts one on each worker."""
    context = session.sparkContext._jsc.sc()
    deadline_s = time.monotonic() + START_TIMEOUT_S
    started: list[str] = []
    while len(started) < local.most and time.monotonic() < deadline_s:
        time.sleep(0.1)
        started = _list_executors(context)
    context.requestTotalExecutors(local.least, 0, session._jvm.scala.Predef.Map().empty())
    surplus = sorted(started, key=int)[local.least :]
    context.killExecutors(to_scala_list(session._jvm, surplus))
    while len(_list_executors(context)) > local.least and time.monotonic() < deadline_s:
        time.sleep(0.1)


def _list_executors(context: Any) -> list[str]:
    summaries = context.statusStore().executorList(True)
    ids = [summaries.apply(i).id() for i in range(summaries.size())]
    return [i for i in ids if i != "driver"]


@contextmanager
def _standard_error_to(path: Path | None) -> Iterator[None]:
    """Processes that start meanwhile write their standard error to the file."""
    if path is None:
        yield
        return
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _tuned_conf(
    options: Mapping[str, Any],
    local: LocalExecutors | None,
    warn: Callable[[str], None],
    spark_log: Path | None,
) -> dict[str, str]:
    own = {key: str(value) for key, value in options.items()}
    given = SparkConf()
    for key, value in own.items():
        given.set(key, value)
    # Starts the JVM, which then also reads spark-defaults.conf and PYSPARK_SUBMIT_ARGS.
    with _standard_error_to(spark_log):
        SparkContext._ensure_initialized(conf=given)
    user = dict(SparkConf().getAll())
    # Not set by the user: every PySpark shell and script starts with it.
    user.pop("spark.ui.showConsoleProgress", None)
    user |= own
    # The driver's version, which need not be PySpark's: SPARK_HOME may name another Spark.
    version = SparkContext._jvm.org.apache.spark.package.SPARK_VERSION()
    added, warnings = tune(user, local.most if local else None, find_traits(version))
    for warning in warnings:
        warn(warning)
    if local is None:
        return added
    master = user.get("spark.master", "local[*]")
    if not master.startswith("local"):
        message = (
            f"--local starts executors on this machine, but the script asks for the cluster "
            f"{master}. Nothing was started. Remove one of the two."
        )
        raise InvalidInputError(message)
    if "spark.master" in own:
        warn(f"master {master} of the script is replaced by {local.most} executor processes")
    return added | describe_cluster(user, local)


def describe_cluster(user: Mapping[str, str], local: LocalExecutors) -> dict[str, str]:
    """The settings of a session whose executors are processes on this machine.

    Args:
        user: the user's settings.
        local: number of executors.
    """
    memory_mib = parse_mib(user.get("spark.executor.memory", f"{EXECUTOR_MEMORY_MIB}m"))
    cores = user.get("spark.executor.cores", "1")
    settings = {
        "spark.master": f"local-cluster[{local.most},{cores},{memory_mib}]",
        "spark.executor.memory": f"{memory_mib}m",
    }
    if "spark.deploy.appIdPattern" not in user:
        # Spark numbers applications by the second, so two could share the work folder, which the
        # first one to end removes.
        settings["spark.deploy.appIdPattern"] = f"app-%s-%04d-{os.getpid()}"
    return settings


def remove_work_folder(application_id: str) -> None:
    """Removes the files that a local cluster's executors left in Spark's own folder."""
    shutil.rmtree(Path(_find_spark_home()) / "work" / application_id, ignore_errors=True)
