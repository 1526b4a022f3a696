"""Where real Spark's writers keep the locations that decide on the file manager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from balancedstream.engine.session.filemanagers import FILE_MANAGER
from balancedstream.engine.session.fitting import fitting

pytestmark = pytest.mark.integration


def test_real_writers_say_where_a_query_keeps_its_files(
    spark: SparkSession, stream: Callable[[int], DataFrame], tmp_path: Path
) -> None:
    manager = "com.example.NoSuchManager"  # Spark says so if it is to use it
    with fitting({FILE_MANAGER: manager}, keeps_formats=True):
        writer = stream(10).writeStream.format("noop")
        with pytest.raises(Exception, match="NoSuchManager"):
            writer.option("checkpointLocation", str(tmp_path)).start()
        with pytest.raises(Exception, match=r"no\.host"):
            writer.option("CheckpointLocation", "hdfs://no.host/q").start()
        with pytest.raises(Exception, match=r"no\.host"):
            writer.start(checkpointLocation="hdfs://no.host/q")
    assert spark.conf.get(FILE_MANAGER, None) is None
