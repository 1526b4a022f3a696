"""What a session tells Hadoop's file systems."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


def read_hadoop_settings(
    spark: SparkSession, names: Iterable[str], prefixes: Iterable[str]
) -> dict[str, str]:
    """The settings of these names, and all whose names begin so, as a new query has them.

    A name's value may also come from a credential provider of Hadoop's, if it can be read.
    """
    session: Any = spark._jsparkSession
    hadoop = session.sessionState().newHadoopConf()
    found: dict[str, str] = {}
    for prefix in prefixes:
        rest = hadoop.getPropsWithPrefix(prefix)
        found |= {f"{prefix}{name}": value for name, value in dict(rest).items()}
    for name in names:
        value = _find(hadoop, name)
        if value is not None:
            found[name] = value
    return found


def _find(hadoop: Any, name: str) -> str | None:
    try:
        characters = hadoop.getPassword(name)
    except Py4JJavaError:
        # Not every session that has a provider has its checkpoint where it is needed.
        value: str | None = hadoop.get(name)
        return value
    return None if characters is None else "".join(characters)
