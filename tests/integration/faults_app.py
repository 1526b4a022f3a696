"""An application that moves partitions, while each step of loading and handing over fails once.

faults_app.py FOLDER prints, as JSON: how often steps failed, which steps were never come to, what
the preparations said, and rows of each key, beside the number that there should be.

The steps are the calls of the Java code, which is compiled here with one more before each: it fails
if there is a file, which it removes. So nothing in the product is made for this test.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished
from balancedstream.engine.jvm import listener
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.session import remove_work_folder, tuned_sessions

STEPS = {
    "PreloadTask": ("void load", "Held take", "void drop", "void handOver", "boolean register"),
    "StoreChanges": ("StoreChanges(", "void release", "boolean replay(long"),
    "Preparations": ("void observe", "void handOver"),
    "Placements": ("void report", "void giveBack"),
}
"""Methods between the first and the last of which Spark, or an owner, may see a store."""

UNDOING = re.compile(r"withdraw\(|known\.remove|\.close\(\)|else |catch |case |finally|\breturn\b")
KEYS, PARTITIONS, ROWS = 40, 6, 200
MAX_BATCHES, MAX_ROUNDS = 12, 40


class Faults:
    """Steps that fail once, in one process or another.

    Attributes:
        folder: a file for each step that has not failed yet.
        steps: number of a step to the statement before which it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: dict[int, str] = {}
        folder.mkdir()

    def arm(self) -> None:
        for step in self.steps:
            (self.folder / str(step)).touch()

    def find_left(self) -> list[str]:
        return [self.steps[int(path.name)] for path in sorted(self.folder.iterdir())]

    def joinpath(self, name: str) -> Any:
        """The Java file, as `importlib.resources` gives it, with faults."""
        self._file = Path(listener.__file__).with_name(name)
        return self

    def iterdir(self) -> Iterator[Path]:
        """What else is there, without faults."""
        return Path(listener.__file__).parent.iterdir()

    def read_text(self, encoding: str) -> str:
        lines: list[str] = []
        inside = False
        ended = ""
        for line in self._file.read_text(encoding).splitlines():
            text = line.strip()
            if re.match(r"  (  )?\S.*\(.*\{?$", line) and not text.startswith(("*", "/", "//")):
                methods = STEPS.get(self._file.stem, ())
                begins = any(name in line for name in methods)
                inside, ended = begins or (inside and not line.endswith("{")), "("
            begins_statement = ended.endswith((";", "{", "}")) and text.endswith((";", "{"))
            calls = re.search(r"\w\(", text)
            if inside and begins_statement and calls and not UNDOING.search(line):
                step = len(self.steps)
                self.steps[step] = f"{self._file.stem}: {text}"
                path = json.dumps(str(self.folder / str(step)))
                lines.append(
                    f"if (new java.io.File({path}).delete())"
                    f' throw new IllegalStateException("fault {step}");'
                )
            lines.append(line)
            if text and not text.startswith(("//", "*", "/*")):
                ended = text.split(" // ")[0].rstrip()
        return "\n".join(lines)


def next_batch(engine: SparkEngine) -> BatchFinished:
    # A task may wait for a store whose owner has failed, until it fails and is tried again.
    while not isinstance(event := engine.wait(300.0), BatchFinished):
        assert event is not None, "no batch in five minutes"
    return event


def main(folder: Path) -> None:
    with tuned_sessions(LocalExecutors(3, 3), lambda session: None, lambda warning: None):
        partitions = {"spark.sql.shuffle.partitions": str(PARTITIONS)}
        spark = SparkSession.builder.config(map=partitions).getOrCreate()
        application = spark.sparkContext.applicationId
        try:
            said = run(spark, folder)
        finally:
            spark.stop()
            remove_work_folder(application)
    print(json.dumps(said))


def run(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Moves partitions until no step is left that fails, or comes to none that is left."""
    faults = Faults(folder / "faults")
    vars(listener)["resources"] = SimpleNamespace(files=lambda package: faults)
    spark.sparkContext.setLogLevel("OFF")
    engine = SparkEngine(spark)
    while len(engine.executors()) < 3:
        engine.wait(1.0)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    checkpoint = str(folder / "checkpoint")
    query = (
        rows.groupBy((F.col("value") % KEYS).alias("k"))
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .queryName("q")
        .start()
    )
    next_batch(engine)
    faults.arm()
    failures: set[str] = set()
    arrived: list[bool] = []
    for number in range(MAX_ROUNDS):
        left = faults.find_left()
        live = sorted(engine.executors())
        targets = {p: live[(p + number) % len(live)] for p in range(PARTITIONS)}
        engine.prepare("q", 0, targets)
        engine.place("q", 0, targets)
        arrived.append(False)
        for _ in range(MAX_BATCHES):
            seen = next_batch(engine)
            failures |= {report.failure for report in seen.preparations}
            if {task.partition: task.executor for task in seen.tasks} == targets:
                arrived[-1] = True
                break
        if faults.find_left() == left:
            break
    query.stop()
    error = query.exception()
    state = spark.read.format("statestore").load(checkpoint)
    counts = {row.key[0]: row.value[0] for row in state.collect()}
    commits = Path(checkpoint, "commits").glob("[0-9]*")
    batches = 1 + max(int(path.name) for path in commits)
    return {
        "steps": len(faults.steps),
        "left": left,
        "failures": sorted(failures),
        "arrived": arrived,
        "error": error and str(error),
        "counts": {str(key): count for key, count in counts.items()},
        "expected": batches * ROWS // KEYS,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
