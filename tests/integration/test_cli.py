"""`balancedstream run` as a user runs it, each time in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from patience import PATIENCE_S
from processes import write_submit_arguments
from spark_versions import SPARK

from balancedstream.engine.traits import FEATURES, name_version

pytestmark = pytest.mark.integration

ENDLESS_JOB = """
    import sys
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("endless").getOrCreate()
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).load()
    counts = stream.groupBy((stream.value % 10).alias("k")).count()
    query = (
        counts.writeStream.queryName("counts")
        .outputMode("update")
        .format("noop")
        .option("checkpointLocation", sys.argv[1])
        .start()
    )
    query.awaitTermination()
"""


def write_job(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    return path


def start_run(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "balancedstream.cli", "run", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": write_submit_arguments()},
    )


def test_an_interrupted_run_stops_cleanly_and_writes_its_report(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job.py", ENDLESS_JOB)
    report = tmp_path / "report"
    checkpoint = tmp_path / "checkpoint"
    running = start_run("--local", "2:2", "--report", report, job, checkpoint)
    commits = checkpoint / "commits"
    deadline_s = time.monotonic() + PATIENCE_S
    while not (commits.exists() and len([p for p in commits.iterdir() if p.suffix == ""]) > 3):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    os.kill(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in said
    assert "query counts still ran; it is stopped" in said, said
    figures = json.loads((report / "report.json").read_text())
    assert figures["batches"] >= 1
    assert figures["rows"] == 50 * figures["batches"]
    assert figures["query_restarts"] == 0
    assert "<svg" in (report / "report.html").read_text()


def test_a_script_without_a_query_is_told_so(tmp_path: Path) -> None:
    job = write_job(
        tmp_path / "job.py",
        """
        from pyspark.sql import SparkSession

        print(SparkSession.builder.getOrCreate().range(5).count(), "rows")
        """,
    )
    running = start_run("--local", "1:1", job)
    printed, said = running.communicate(timeout=PATIENCE_S)
    assert "5 rows" in printed
    assert "no batch of a streaming query finished, so there was nothing to balance" in said
    assert running.returncode == 0


def test_a_script_that_finds_nothing_new_succeeds_as_under_python(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    job = write_job(
        tmp_path / "job.py",
        """
        import sys
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.getOrCreate()
        counts = spark.readStream.schema("k int").json(sys.argv[1]).groupBy("k").count()
        query = (
            counts.writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", sys.argv[2])
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        print("done")
        """,
    )
    running = start_run("--local", "1:1", job, tmp_path / "source", tmp_path / "checkpoint")
    printed, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0
    assert printed == "done\n"
    assert "no batch of a streaming query finished, so there was nothing to balance" in said


def test_dynamic_allocation_is_refused_with_what_to_do(tmp_path: Path) -> None:
    job = write_job(
        tmp_path / "job.py",
        """
        from pyspark.sql import SparkSession

        SparkSession.builder.config("spark.dynamicAllocation.enabled", "true").getOrCreate()
        """,
    )
    running = start_run("--local", "1:1", job)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 2
    assert "Remove the setting" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("name", "version"),
    [
        pytest.param(
            name, name_version(first), marks=pytest.mark.skipif(first <= SPARK, reason="it has it")
        )
        for name, (first, _) in FEATURES.items()
    ],
)
def test_what_this_spark_lacks_is_refused_with_the_version_that_has_it(
    name: str, version: str, tmp_path: Path
) -> None:
    job = write_job(tmp_path / "job.py", f"from balancedstream import {name}")
    running = start_run("--local", "1:1", job)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1, "as under Python itself"
    assert f"balancedstream.{name} needs" in said
    assert f"Use PySpark {version} or newer" in said
