"""Compiles and starts the listener in the driver's JVM, where no event costs a round trip."""

from __future__ import annotations

import io
import re
import threading
import time
import weakref
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from py4j.protocol import Py4JError

from balancedstream.engine.driver import DriverSession

PACKAGE = "io.balancedstream"
SHIPPED = ("StoreChanges", "Rehearsal", "PreloadTask")
"""The classes that executors run, too."""

QUEUE = "balancedstream"
"""Of events, on Spark's listener bus. In the queue that listeners share, a slow one delays all, and
makes Spark drop events (`LiveListenerBus`)."""

_NO_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"', re.DOTALL)
"""Comments and texts of Java."""

LISTED_WITHIN_S = 10.0
"""After it, the loop begins without the executors that Spark does not list; batches look again."""


@dataclass(frozen=True)
class _Compiled:
    """A class of this folder.

    Attributes:
        loader: has it, and all that were compiled before it.
        bytecodes: names of it and its inner classes to their code; empty if no executor runs it.
    """

    loader: Any
    bytecodes: Mapping[str, bytes]


_compiled: weakref.WeakKeyDictionary[Any, dict[str, _Compiled]] = weakref.WeakKeyDictionary()
"""By JVM: the classes by name, the oldest first; each loader has the one before as its parent.

A class is compiled once: py4j remembers methods by the name of their class, and would call those of
the first one on an object of a second one, as after a second `attach`."""

_compiling = threading.Lock()
"""Executors that join at the same time are warmed up by a thread each, which may need a class."""


@dataclass(frozen=True)
class Listener:
    """The listener in the driver's JVM.

    Attributes:
        java: the `BatchListener`.
        rows: the `PinnedRows`.
        waiting: the `WaitingTasks`.
        reading: the `ReadingStages`.
        unprepared: what failed when executors were to load state ahead; "" if nothing did.
    """

    java: Any
    rows: Any
    waiting: Any
    reading: Any
    unprepared: str


def start_listener(spark: DriverSession, *, loads_ahead: bool) -> Listener:
    """Compiles `BatchListener.java`, creates an object and registers it.

    Raises:
        py4j.protocol.Py4JError: this version of Spark has no such class or method.
    """
    context = spark.sparkContext._jsc.sc()
    session: Any = spark._jsparkSession
    jvm: Any = spark._jvm
    queries = session.sharedState().activeStreamingQueries()
    hosts = jvm.java.util.concurrent.ConcurrentHashMap()
    slots = compile_class(
        spark,
        "HeldSlots",
        context.schedulerBackend(),
        context.resourceProfileManager().defaultResourceProfile(),
        queries,
    )
    preparing, unprepared = None, ""
    if loads_ahead:
        try:
            preparing = _start_preparing(spark, queries, hosts, slots)
        except Py4JError as error:
            unprepared = str(error).strip().splitlines()[0]
    waiting = compile_class(spark, "WaitingTasks", context.taskScheduler(), context.conf())
    reading = compile_class(spark, "ReadingStages")
    listener = compile_class(
        spark,
        "BatchListener",
        find_coordinator(spark),
        context.schedulerBackend(),
        queries,
        hosts,
        slots,
        preparing,
        waiting,
        reading,
    )
    rows = compile_class(spark, "PinnedRows", context, hosts)
    context.listenerBus().addToQueue(listener, QUEUE)
    introduce_executors(spark, listener)
    return Listener(listener, rows, waiting, reading, unprepared)


def introduce_executors(spark: DriverSession, listener: Any) -> None:
    """Tells the listener of executors whose joining it did not hear of.

    Spark knows at once which executors there are, and where they run only when its own listener,
    which has a queue of its own, comes to it (`AppStatusListener`). This waits for that.
    """
    context = spark.sparkContext._jsc.sc()
    deadline_s = time.monotonic() + LISTED_WITHIN_S
    while True:
        live = context.getExecutorIds()
        unlisted = {live.apply(i) for i in range(live.size())}
        summaries = context.statusStore().executorList(True)
        for summary in (summaries.apply(i) for i in range(summaries.size())):
            if summary.id() in unlisted:
                unlisted.discard(summary.id())
                host = summary.hostPort().rsplit(":", 1)[0]
                listener.addExecutor(summary.id(), host, summary.totalCores())
        if not unlisted or time.monotonic() >= deadline_s:
            return
        time.sleep(0.05)


def _start_preparing(spark: DriverSession, queries: Any, hosts: Any, slots: Any) -> Any:
    """Compiles what loads state ahead, and offers executors the class that they run."""
    compiled = _compile(spark, *SHIPPED)
    jvm: Any = spark._jvm
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w") as archive:
        for each in SHIPPED:
            for name, code in compiled[each].bytecodes.items():
                archive.writestr(f"{name.replace('.', '/')}.class", code)
    path = f"{jvm.org.apache.spark.SparkFiles.getRootDirectory()}/balancedstream.jar"
    # By the driver: the agent may be in a container with other files.
    file = jvm.java.io.FileOutputStream(path)
    file.write(jar.getvalue())
    file.close()
    context = spark.sparkContext._jsc.sc()
    context.addJar(path)
    jobs = compile_class(spark, "SideJobs", context, slots)
    coordinator = find_coordinator(spark)
    return compile_class(spark, "Preparations", queries, jobs, hosts, coordinator)


def find_coordinator(spark: DriverSession) -> Any:
    """The driver's `StateStoreCoordinatorRef`, shared by all sessions of the application."""
    session: Any = spark._jsparkSession
    return session.sessionState().streamingQueryManager().stateStoreCoordinator()


def compile_class(spark: DriverSession, name: str, *arguments: Any) -> Any:
    """Compiles a Java class of this folder with Spark's Janino; returns a new object of it.

    Args:
        spark: a running session.
        name: of the class, and of its file.
        arguments: of its only constructor.

    Raises:
        py4j.protocol.Py4JError: this version of Spark has no such class or method.
    """
    gateway: Any = spark.sparkContext._gateway
    jvm: Any = spark._jvm
    loader = _compile(spark, name)[name].loader
    values = gateway.new_array(jvm.java.lang.Object, len(arguments))
    for position, argument in enumerate(arguments):
        values[position] = argument
    java_class = loader.loadClass(f"{PACKAGE}.{name}")
    return java_class.getDeclaredConstructors()[0].newInstance(values)


def _compile(spark: DriverSession, *names: str) -> Mapping[str, _Compiled]:
    """Compiles classes of this folder that were not compiled yet; returns all that were."""
    with _compiling:
        known = _compiled.setdefault(spark.sparkContext._gateway, {})
        for name in list_needed(name for name in names if name not in known):
            if name not in known:
                newest = next(reversed(known.values()), None)
                known[name] = _compile_one(spark._jvm, name, newest)
    return known


def list_needed(names: Iterable[str]) -> list[str]:
    """Classes of this folder, each after those that its code names: the order to compile them in.

    >>> list_needed(["WaitingTasks"])
    ['ScalaCollections', 'WaitingTasks']
    """
    files = {file.name: file for file in resources.files(__package__).iterdir()}
    found: dict[str, None] = {}
    begun: set[str] = set()

    def add(name: str) -> None:
        file = files.get(f"{name}.java")
        if file is None or name in begun:
            return
        begun.add(name)
        for used in re.findall(r"\b[A-Z]\w*", _NO_CODE.sub("", file.read_text("utf-8"))):
            add(used)
        found[name] = None

    for name in names:
        add(name)
    return [*found]


def _compile_one(jvm: Any, name: str, newest: _Compiled | None) -> _Compiled:
    """Compiles a class that may use all that were compiled before, `newest` as the last one."""
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(newest.loader if newest else parent)
    compiler.cook(resources.files(__package__).joinpath(f"{name}.java").read_text("utf-8"))
    bytecodes = compiler.getBytecodes().items() if name in SHIPPED else ()
    return _Compiled(compiler.getClassLoader(), {each: bytes(code) for each, code in bytecodes})
