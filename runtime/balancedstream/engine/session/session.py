"""Gives an unmodified script a tuned session when it asks for a session."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any
from weakref import WeakSet

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from balancedstream.core.sizing import parse_mib
from balancedstream.engine.session.fitting import fitting
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.settings import QUERY_SETTINGS, tune
from balancedstream.engine.traits import Traits, find_traits, to_scala_list
from balancedstream.errors import InvalidInputError

EXECUTOR_MEMORY = "spark.executor.memory"
EXECUTOR_MEMORY_MIB = 1024

WORKER_VARIABLE = "spark.executorEnv."

STARTUP = Path(__file__).parents[2] / "startup"
"""Has the module with which a worker of an executor begins."""

STOP_TIMEOUT = "spark.sql.streaming.stopTimeout"
MIN_STOP_S = 0.1
"""To Spark, 0 is no limit."""

START_TIMEOUT_S = 60.0
"""Time for executor processes to start; after it, the script runs without those missing."""


@contextmanager
def tuned_sessions(
    local: LocalExecutors | None,
    on_session: Callable[[SparkSession], None],
    warn: Callable[[str], None],
    spark_log: Path | None = None,
    guard: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[None]:
    """While open, every Spark context that comes about is tuned, and its first session is told of.

    It may come about by any way: a builder, a `SparkContext` of the script's own, a stopped one
    that is built again. What the script made it of stays as the script wrote it.

    Args:
        local: executors to start on this machine; None keeps the user's master.
        on_session: called once with the first session of each context, before the script sees it.
        warn: called with each warning about the user's own settings.
        spark_log: where Spark's log goes instead of standard error.
        guard: entered while a context is tuned, which may be refused.

    Raises:
        DynamicAllocationError: the script asks for dynamic allocation.
        InvalidInputError: `local` is given, and the script names a cluster.
    """
    begin_context = SparkContext.__init__
    begin_session = SparkSession.__init__
    parameters = signature(begin_context)
    process = os.getpid()
    known: WeakSet[Any] = WeakSet()
    of_application = ExitStack()

    @wraps(begin_context)
    def begin_tuned(context: Any, *args: Any, **kwargs: Any) -> None:
        given = parameters.bind(context, *args, **kwargs)
        if os.getpid() == process and _is_new(given.arguments):
            with guard():
                conf, of_queries = _tune(given.arguments, local, warn, spark_log)
                of_application.close()
                keeps = _driver_traits().keeps_formats
                of_application.enter_context(fitting(of_queries, keeps_formats=keeps))
            given.arguments |= {"conf": conf, "master": None}
        begin_context(*given.args, **given.kwargs)

    @wraps(begin_session)
    def begin_known(session: SparkSession, *args: Any, **kwargs: Any) -> None:
        begin_session(session, *args, **kwargs)
        context = session.sparkContext
        if os.getpid() == process and context not in known:
            known.add(context)
            if local and local.least < local.most:
                _keep_executors(session, local)
            on_session(session)

    SparkContext.__init__ = begin_tuned
    SparkSession.__init__ = begin_known
    try:
        with of_application:
            yield
    finally:
        SparkContext.__init__ = begin_context
        SparkSession.__init__ = begin_session


def _is_new(given: Mapping[str, Any]) -> bool:
    """Whether a Spark application begins: there is none yet, in Java or behind Spark Connect."""
    behind_connect = "SPARK_CONNECT_MODE_ENABLED" in os.environ
    return (
        given.get("jsc") is None
        and SparkContext._active_spark_context is None
        and not (behind_connect and "SPARK_LOCAL_REMOTE" not in os.environ)
    )


def stop_queries(session: SparkSession, timeout_s: float) -> list[tuple[str, bool]]:
    """Stops every query of the application, whichever of its sessions started it.

    Args:
        session: one of them.
        timeout_s: for all; a query that Java cannot interrupt, as in a call of a Python function
            that does not return, is left behind then.

    Returns:
        The name of each query that ran, or its id, and whether it has ended.
    """
    java: Any = session._jsparkSession
    stopped: list[tuple[str, bool]] = []
    deadline_s = time.monotonic() + timeout_s
    for query in list(java.sharedState().activeStreamingQueries().values()):
        left_s = max(deadline_s - time.monotonic(), MIN_STOP_S)
        query.sparkSession().conf().set(STOP_TIMEOUT, f"{int(left_s * 1000)}ms")
        try:
            query.stop()
        except (Py4JJavaError, CapturedException):
            has_ended = not query.isActive()
        else:
            has_ended = True
        stopped.append((str(query.name() or query.id()), has_ended))
    return stopped


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


def _tune(
    given: Mapping[str, Any],
    local: LocalExecutors | None,
    warn: Callable[[str], None],
    spark_log: Path | None,
) -> tuple[SparkConf, Mapping[str, str]]:
    """The settings of a context, and those that its queries get, unless the user has set them."""
    users: SparkConf | None = given.get("conf")
    # Starts the JVM, which then also reads spark-defaults.conf and PYSPARK_SUBMIT_ARGS.
    with _standard_error_to(spark_log):
        SparkContext._ensure_initialized(gateway=given.get("gateway"), conf=users)
    own = dict(users.getAll()) if users else {}
    if given.get("master"):
        own["spark.master"] = str(given["master"])
    # As PySpark does: one that was made when Java ran already has all that is to count.
    whole = users is not None and users._jconf is not None
    conf = SparkConf(loadDefaults=not whole, _jvm=SparkContext._jvm)
    for key, value in own.items():
        conf.set(key, value)
    user = dict(conf.getAll())
    # Not set by the user: every PySpark shell and script starts with it.
    if "spark.ui.showConsoleProgress" not in own:
        user.pop("spark.ui.showConsoleProgress", None)
    added, warnings = tune(user, local.most if local else None, _driver_traits())
    for warning in warnings:
        warn(warning)
    if local is not None:
        master = user.get("spark.master", "local[*]")
        if not master.startswith("local"):
            message = (
                f"--local starts executors on this machine, but the script asks for the cluster "
                f"{master}. No Spark was started. Remove one of the two."
            )
            raise InvalidInputError(message)
        if "spark.master" in own:
            warn(f"master {master} of the script is replaced by {local.most} executor processes")
        added = added | describe_cluster(user, local)
    of_queries = {key: added.pop(key) for key in QUERY_SETTINGS if key in added}
    for key, value in added.items():
        conf.set(key, value)
    return conf, of_queries


def _driver_traits() -> Traits:
    """The traits of the driver's Spark; SPARK_HOME may name another version than PySpark's."""
    jvm: Any = SparkContext._jvm
    return find_traits(jvm.org.apache.spark.package.SPARK_VERSION())


def describe_cluster(user: Mapping[str, str], local: LocalExecutors) -> dict[str, str]:
    """The settings of a session whose executors are processes on this machine."""
    memory = user.get(EXECUTOR_MEMORY) or os.environ.get("SPARK_EXECUTOR_MEMORY")
    memory = memory or f"{EXECUTOR_MEMORY_MIB}m"
    settings = {}
    try:
        memory_mib = parse_mib(memory)
    except ValueError:
        # Spark says what is wrong with it.
        memory_mib = EXECUTOR_MEMORY_MIB
    else:
        # Spark reads a number without a unit as MiB in one place, as bytes in another.
        settings[EXECUTOR_MEMORY] = f"{memory_mib}m"
    cores = user.get("spark.executor.cores", "1").strip()
    settings["spark.master"] = f"local-cluster[{local.most},{cores},{memory_mib}]"
    if "spark.deploy.appIdPattern" not in user:
        # Spark numbers applications by the second, so two could share the work folder, which the
        # first one to end removes.
        settings["spark.deploy.appIdPattern"] = f"app-%s-%04d-{os.getpid()}"
    return settings | _place_workers(user)


def _place_workers(user: Mapping[str, str]) -> dict[str, str]:
    """Makes Python functions run in the script's folder, as they do with `local[*]`."""
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        return {}
    # A relative entry of PYTHONPATH is relative to that folder, too.
    path = [user.get(f"{WORKER_VARIABLE}PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]
    entries = [str(folder / entry) for entry in os.pathsep.join(path).split(os.pathsep) if entry]
    return {
        f"{WORKER_VARIABLE}PYTHONPATH": os.pathsep.join([str(STARTUP), *entries]),
        f"{WORKER_VARIABLE}BALANCEDSTREAM_FOLDER": str(folder),
    }


def remove_work_folder(application_id: str) -> None:
    """Removes the files that a local cluster's executors left in Spark's own folder."""
    shutil.rmtree(Path(_find_spark_home()) / "work" / application_id, ignore_errors=True)
