"""What a session tells Hadoop's file systems."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession


def read_hadoop_settings(
    spark: SparkSession, names: Iterable[str], prefixes: Iterable[str]
) -> dict[str, str]:
    """The settings of these names, and all whose names begin so, as a new query has them.

    A name's value may also come from a credential provider of Hadoop's.

    Raises:
        py4j.protocol.Py4JError: a credential provider cannot be read.
    """
    session: Any = spark._jsparkSession
    hadoop = session.sessionState().newHadoopConf()
    found: dict[str, str] = {}
    for prefix in prefixes:
        rest = hadoop.getPropsWithPrefix(prefix)
        found |= {f"{prefix}{name}": value for name, value in dict(rest).items()}
    for name in names:
        characters = hadoop.getPassword(name)
        if characters is not None:
            found[name] = "".join(characters)
    return found
