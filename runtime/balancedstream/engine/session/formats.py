"""Finds the format that a checkpoint has, in which its query must go on.

A balanced query asks for format 2, and a checkpoint from before has Spark's default, 1; so
has a new one with Spark 4.0. Before Spark 4.3, a session reads and writes the one format that it
asks for: up to 4.1 `CommitLog` refuses the other one, and in 4.2 the tasks fail. From 4.3 on, Spark
looks itself (`CheckpointVersionManager`).
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from balancedstream.core.logs import FORMATS


def find_format(spark: SparkSession, checkpoint: str) -> str | None:
    """The format of a checkpoint, by its newest commit.

    Returns:
        "1" or "2"; None if nothing was committed there, or it cannot be read: then Spark says so.
    """
    if not checkpoint:
        return None
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    commits = jvm.org.apache.hadoop.fs.Path(checkpoint, "commits")
    try:
        files = commits.getFileSystem(session.sessionState().newHadoopConf())
        if not files.exists(commits):
            return None
        names = [str(status.getPath().getName()) for status in files.listStatus(commits)]
        newest = max((name for name in names if name.isdecimal()), key=int, default=None)
        if newest is None:
            return None
        opened = files.open(jvm.org.apache.hadoop.fs.Path(commits, newest))
        try:
            line = jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(opened)).readLine()
        finally:
            opened.close()
    except (Py4JJavaError, CapturedException):
        return None
    return FORMATS.get(line)
