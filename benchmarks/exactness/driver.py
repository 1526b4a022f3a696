"""One Spark driver process: runs queries undisturbed, or schedule after schedule.

`run.py` starts it with the path of a JSON file: `runs` is a list of {kind, folder, inputs, seed};
with `executors` they are disturbed, each by the schedule of its seed, and without undisturbed;
the folder `local` has their checkpoints, and `location` is that folder as Spark is told it. As soon
as there is a file `pause_file` it begins no further run and ends. It prints JSON lines that say
"started" once there is a session, and "begun" and "finished" for each run. A run that a SIGKILLed
driver left behind is taken up where it stopped.

In the folder of a run, each query has `<query>/batches/<batch>.jsonl`, `<query>/state.txt` and
`<query>/checkpoint`; a disturbed run has `happened.jsonl` as well.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What the benchmarks share is beside this folder.
sys.path.append(str(Path(__file__).parents[1]))

import inputs
import kinds
import nexmark.processors
import processors
from answers import count_batches, find_timer_fault
from disturbing import Disturber, Keyed
from nexmark.streams import read_files
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery
from schedules import Action, draw_schedule
from sessions import open_disturbed, open_plain

import balancedstream
from balancedstream.engine.engine import SparkEngine

PARTITIONS = 4
QUERY_TIMEOUT_S = 480.0
END_FIELD = "ttlExpirationMs"
"""Spark's field with the end of a time to live."""

IDLE_S = 4
"""A query that never ends by itself is stopped when it has had nothing to do for this long."""

START_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Root:
    """A folder of this machine, and what Spark is told instead."""

    local: str
    location: str

    def locate(self, path: Path) -> str:
        """A path below it, as Spark is told it."""
        return f"{self.location}{str(path).removeprefix(self.local)}"


HERE = Root("", "")
"""Spark is told every path as it is."""


class HungError(Exception):
    """A query did not end in time."""


def main(path: Path) -> None:
    job = json.loads(path.read_text())
    executors = job.get("executors")
    if executors:
        spark, engine = open_disturbed(PARTITIONS, executors, job["settings"])
    else:
        spark, engine = open_plain(PARTITIONS), None
    # Spark's Python workers cannot import them.
    cloudpickle.register_pickle_by_value(processors)
    cloudpickle.register_pickle_by_value(nexmark.processors)
    _say("started", application=spark.sparkContext.applicationId)
    for run in job["runs"]:
        if Path(job.get("pause_file", "")).is_file():
            break
        _say("begun")
        error = None
        try:
            if engine:
                root = Root(job["local"], job["location"])
                _run_disturbed(spark, engine, executors, root, run)
            else:
                _run(spark, run)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"[:2000]
            for query in spark.streams.active:
                query.stop()
        _say("finished", error=error)
    spark.stop()


def _run_disturbed(
    spark: SparkSession,
    engine: SparkEngine,
    executors: int,
    root: Root,
    run: Mapping[str, Any],
) -> None:
    folder = Path(run["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "happened.jsonl"
    reassigned = any(query.reassigned for query in kinds.KINDS[run["kind"]].values())
    actions = draw_schedule(run["kind"], run["seed"], PARTITIONS, inputs.KEYS if reassigned else 0)
    if log.exists():
        actions = _drop_done(actions)
    _wait_for_executors(engine, executors)
    keyed: list[Keyed] = []
    queries = _start(spark, run, keyed, root)
    disturber = Disturber(spark, engine, actions, executors, log, keyed=keyed)
    disturber.start()
    try:
        _await(queries, run)
    finally:
        disturber.stop()
    _read_state(spark, run, root)


def _drop_done(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """What is left to do after the driver was killed."""
    killed = [action.what for action in actions].index("kill-driver")
    return actions[killed + 1 :]


def _run(spark: SparkSession, run: Mapping[str, Any]) -> None:
    _await(_start(spark, run), run)
    _read_state(spark, run)


def _wait_for_executors(engine: SparkEngine, count: int) -> None:
    """Has all executors back that the schedule before has cost."""
    engine.set_executor_count(count)
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while len(engine.executors()) < count or engine.wait(0.0):
        engine.wait(0.2)
        if time.monotonic() > deadline_s:
            message = f"{len(engine.executors())} of {count} executors after {START_TIMEOUT_S} s"
            raise HungError(message)


def _start(
    spark: SparkSession,
    run: Mapping[str, Any],
    keyed: list[Keyed] | None = None,
    root: Root = HERE,
) -> dict[str, StreamingQuery]:
    """Starts the queries; `keyed`, where given, gets the operators whose keys are reassigned."""
    started = {}
    for name, query in kinds.KINDS[run["kind"]].items():
        folder = Path(run["folder"]) / name
        group = _group_by(query, folder / "checkpoint", keyed)
        rows = query.build(_reader(spark, Path(run["inputs"]) / name), group)
        writer = (
            rows.writeStream.queryName(name)
            .outputMode(query.output_mode)
            .option("checkpointLocation", root.locate(folder / "checkpoint"))
            .foreachBatch(write_batches(folder / "batches"))
        )
        if query.trigger != "available-now":
            writer = writer.trigger(processingTime="200 milliseconds")
        elif query.reassigned and keyed is not None:
            # What is wanted after its start is not for a run that ends with what is there now.
            writer = writer.trigger(processingTime="0 seconds")
        else:
            writer = writer.trigger(availableNow=True)
        started[name] = writer.start()
    return started


def _group_by(query: kinds.Query, checkpoint: Path, keyed: list[Keyed] | None) -> kinds.Group:
    def group(rows: DataFrame, *columns: str) -> Any:
        if keyed is None or not query.reassigned:
            return rows.groupBy(*columns)
        frame = balancedstream.balanced(rows, *columns)
        control = frame.control
        # Initial state has none: it comes where Spark's hash says.
        if control is not None:
            keyed.append(
                Keyed(
                    control,
                    checkpoint,
                    lambda number: control.encoding.write(query.name_key(number)),
                )
            )
        return frame

    return group


def _reader(spark: SparkSession, folder: Path) -> kinds.Read:
    def read(table: str) -> DataFrame:
        if table not in inputs.TABLES:
            return read_files(spark, folder, table, maxFilesPerTrigger=1)
        rows = spark.readStream.schema(inputs.SCHEMA).option("maxFilesPerTrigger", 1)
        return rows.json(str(folder / table)).withWatermark("at", inputs.WATERMARK_DELAY)

    return read


def write_batches(folder: Path) -> Callable[[DataFrame, int], None]:
    """A sink in which batch N is always, and only, the file of batch N, written whole."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(batch: DataFrame, number: int) -> None:
        lines = [line for (line,) in batch.select(F.to_json(F.struct("*"))).collect()]
        seen_ms = int(time.time() * 1000)
        unfinished = folder / f".{number:06}.unfinished"
        unfinished.write_text("".join(f"{seen_ms} {line}\n" for line in lines))
        unfinished.replace(folder / f"{number:06}.jsonl")

    return write


def _await(queries: Mapping[str, StreamingQuery], run: Mapping[str, Any]) -> None:
    """Waits until the queries have ended, or all timers have fired."""
    deadline_s = time.monotonic() + QUERY_TIMEOUT_S
    for name, query in queries.items():
        folder = Path(run["folder"]) / name
        definition = kinds.KINDS[run["kind"]][name]
        endless = definition.trigger == "processing-time"
        stop_after: int | None = None
        idle_s = 0
        while not query.awaitTermination(1):
            if time.monotonic() > deadline_s:
                message = f"query {name} did not end within {QUERY_TIMEOUT_S} s: {query.status}"
                raise HungError(message)
            if definition.trigger == "until-read" or (definition.reassigned and not endless):
                idle_s = idle_s + 1 if _is_idle(definition, run, name) else 0
                if idle_s == IDLE_S:
                    query.stop()
            if not endless:
                continue
            finished = count_batches(folder)
            if stop_after is None and find_timer_fault(folder) is None:
                # A timer that fires twice has two more batches to show it.
                stop_after = finished + 2
            if stop_after is not None and finished >= stop_after:
                query.stop()


def _is_idle(query: kinds.Query, run: Mapping[str, Any], name: str) -> bool:
    """Whether all files were read, and no batch is under way that has still something to do."""
    checkpoint = Path(run["folder"]) / name / "checkpoint"
    batches = {
        kind: max((int(p.name) for p in (checkpoint / kind).glob("[0-9]*")), default=-1)
        for kind in ("offsets", "commits")
    }
    # One in processing time is always under way, to clean up what is over.
    last = batches["commits" if query.trigger == "until-read" else "offsets"]
    if batches["commits"] < max(0, last):
        return False
    _, _, read, *_ = (checkpoint / "offsets" / str(last)).read_text().splitlines()
    # Fewer where files were made one.
    files = sum(1 for _ in (Path(run["inputs"]) / name / query.tables[0]).glob("part-*"))
    return bool(json.loads(read)["logOffset"] == files - 1)


def _read_state(spark: SparkSession, run: Mapping[str, Any], root: Root = HERE) -> None:
    """Writes down the final state of every stateful operator, as Spark's own reader gives it."""
    for name, query in kinds.KINDS[run["kind"]].items():
        folder = Path(run["folder"]) / name
        lines = []
        for options in query.states:
            checkpoint = root.locate(folder / "checkpoint")
            if query.reassigned:
                read = balancedstream.read_state(spark, checkpoint, **options)
                rows = read.drop("partition_id")
            else:
                rows = spark.read.format("statestore").options(**options).load(checkpoint)
            rows = _drop_ends(rows)
            # Not as JSON: Spark's writer trips over the hidden column of a join's rows.
            columns = rows.select([rows[c].cast("string") for c in rows.columns])
            label = json.dumps(options)
            lines += [f"{label} {row.asDict()}\n" for row in columns.collect()]
        (folder / "state.txt").write_text("".join(lines))


def _drop_ends(rows: DataFrame) -> DataFrame:
    """State without the ends of times to live, which follow the wall clock."""
    for field in rows.schema:
        if END_FIELD in field.dataType.simpleString():
            rows = rows.withColumn(field.name, F.col(field.name).dropFields(END_FIELD))
    return rows


def _say(says: str, **values: Any) -> None:
    print(json.dumps({"says": says, **values}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
