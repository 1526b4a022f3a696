"""The example in Scala counts right with the plugin, and its agent follows it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from processes import SETTINGS
from submitted import AGENT, PLUGIN, ROOT, SPARK, build_jar, start

pytestmark = [pytest.mark.integration, pytest.mark.turn]

APPLICATION = ROOT / "examples" / "06-scala" / "Visits.scala"
VISITORS = ("ann", "bob", "ann", "cid", "ann")


def compile_scala(folder: Path) -> Path:
    """Compiles the example with the compiler that Spark's shell has; returns its jar."""
    jar = folder / "visits.jar"
    jars = f"{SPARK}/jars/*"
    compiler = ["java", "-cp", jars, "scala.tools.nsc.Main", "-usejavacp", "-d", str(jar)]
    subprocess.run([*compiler, str(APPLICATION)], check=True)
    return jar


def read_counts(folder: Path) -> Counter[str]:
    """The counts of finished batches; a later one of a user replaces the ones before."""
    counts: Counter[str] = Counter()
    batches = [file.parent for file in folder.glob("output/batch=*/_SUCCESS")]
    for batch in sorted(batches, key=lambda path: int(path.name.partition("=")[2])):
        for part in batch.glob("*.json"):
            for line in part.read_text("utf-8").splitlines():
                row = json.loads(line)
                counts[row["user_id"]] = row["count"]
    return counts


def test_the_example_counts_and_the_agent_joins_it(tmp_path: Path) -> None:
    visits = [
        json.dumps({"user_id": user, "at": f"2026-01-01T00:00:0{n}Z"})
        for n, user in enumerate(VISITORS)
    ]
    (tmp_path / "input" / "visits").mkdir(parents=True)
    (tmp_path / "input" / "visits" / "first.json").write_text("\n".join(visits), "utf-8")
    given = {
        **SETTINGS,
        "spark.master": "local-cluster[2,1,1024]",
        "spark.sql.shuffle.partitions": "4",
        "spark.jars": str(build_jar()),
        "spark.plugins": PLUGIN,
        "spark.balancedstream.python": sys.executable,
    }
    options = [word for pair in given.items() for word in ("--conf", "=".join(pair))]
    jar = compile_scala(tmp_path)
    command: list[str | Path] = [SPARK / "bin/spark-submit", *options, "--class", "Visits", jar]
    application = start(tmp_path, command, cwd=tmp_path)
    try:
        application.find(AGENT)
        application.wait(lambda: bool(read_counts(tmp_path)), "counts of a batch")
    finally:
        application.close()
    assert read_counts(tmp_path) == Counter(VISITORS)
