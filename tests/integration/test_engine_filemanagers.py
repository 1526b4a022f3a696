"""Where real Spark's writers keep the locations that decide on the file manager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from balancedstream.engine.filemanagers import FILE_MANAGER, renaming_on_posix_only
from balancedstream.engine.traits import find_traits

pytestmark = pytest.mark.integration


@pytest.fixture
def renaming(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that has the file manager that renames, and loses it where it must not be used."""
    before = spark.conf.get(FILE_MANAGER)
    manager = find_traits(spark.version).renaming_file_manager
    spark.conf.set(FILE_MANAGER, manager)
    with renaming_on_posix_only(manager):
        yield spark
    spark.conf.set(FILE_MANAGER, str(before))


def test_a_query_on_this_machine_starts_with_it(
    renaming: SparkSession, stream: Callable[[int], DataFrame], tmp_path: Path
) -> None:
    writer = stream(10).writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    writer.start().stop()
    manager = find_traits(renaming.version).renaming_file_manager
    assert renaming.conf.get(FILE_MANAGER) == manager


def test_a_query_elsewhere_starts_without_it(
    renaming: SparkSession, stream: Callable[[int], DataFrame]
) -> None:
    writer = stream(10).writeStream.format("noop").option("CheckpointLocation", "hdfs://no.host/q")
    with pytest.raises(Exception, match=r"no\.host"):
        writer.start()
    assert renaming.conf.get(FILE_MANAGER, None) is None
