"""Has a session's settings fit each query that starts in it, since they hold for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from balancedstream.workers.names import CHECKPOINT_LOCATION

METHODS = ("start", "toTable")

STATE_SOURCES = ("statestore", "state-metadata")
"""Spark's sources that read the state of a checkpoint."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where a query that is about to start keeps its files; a path as Hadoop reads it.

    Attributes:
        checkpoint: of the query; "" if Spark makes a temporary one.
        output: of a file sink, which keeps a log beside its files; "" if there is none.
    """

    checkpoint: str
    output: str


Fit = Callable[[SparkSession, Places], AbstractContextManager[None]]
"""Is entered before a query of a session starts, and left once Spark has started it."""


@contextmanager
def around_starts(fit: Fit) -> Iterator[None]:
    """While open, every query of this process starts inside of what `fit` gives for it."""
    usual = {name: getattr(DataStreamWriter, name) for name in METHODS}
    for name, start in usual.items():
        setattr(DataStreamWriter, name, _wrap(start, fit))
    try:
        yield
    finally:
        for name, start in usual.items():
            setattr(DataStreamWriter, name, start)


@contextmanager
def around_state_reads(fit: Fit) -> Iterator[None]:
    """While open, the state of a checkpoint is loaded inside of what `fit` gives for it."""
    usual = DataFrameReader.load

    @wraps(usual)
    def wrapped(reader: DataFrameReader, *args: Any, **options: Any) -> Any:
        java = reader._jreader
        source = str(options.get("format") or (args[1:] or (None,))[0] or _read(java, "source"))
        path = options.get("path") or (args[0] if args else None)
        if path is None and source in STATE_SOURCES:
            given = _read(java, "extraOptions")
            path = given.get("path").get() if given.contains("path") else None
        if source not in STATE_SOURCES or not isinstance(path, str):
            return usual(reader, *args, **options)
        with fit(reader._spark, Places(path, "")):
            return usual(reader, *args, **options)

    setattr(DataFrameReader, "load", wrapped)  # noqa: B010 - mypy
    try:
        yield
    finally:
        setattr(DataFrameReader, "load", usual)  # noqa: B010 - mypy


def _read(java: Any, field: str) -> Any:
    """What was set on a reader or writer; Spark has no method for it."""
    owner = java.getClass()
    while owner is not None:
        try:
            found = owner.getDeclaredField(field)
        except Py4JJavaError:
            owner = owner.getSuperclass()
            continue
        found.setAccessible(True)
        return found.get(java)
    return None


def _wrap(start: Callable[..., Any], fit: Fit) -> Callable[..., Any]:
    @wraps(start)
    def wrapped(writer: DataStreamWriter, *args: Any, **options: Any) -> Any:
        given = _read_options(writer)
        given |= {name.lower(): str(v) for name, v in options.items() if v is not None}
        checkpoint = given.get("checkpointlocation", "")
        if not checkpoint:
            root = writer._spark.conf.get(CHECKPOINT_LOCATION, "")
            name = given.get("queryname")
            checkpoint = f"{root}/{name}" if root and name else str(root or "")
        output = str(args[0] or "") if args else given.get("path", "")
        with fit(writer._spark, Places(checkpoint, output)):
            return start(writer, *args, **options)

    return wrapped


def _read_options(writer: DataStreamWriter) -> dict[str, str]:
    """The options of a writer that name places, by lower-case name."""
    found = _read(writer._jwrite, "extraOptions")
    names = ("checkpointlocation", "path", "queryname")
    return {name: found.get(name).get() for name in names if found.contains(name)}
