"""Exactness under disturbance: is a stream's answer the same, whatever is done to it?

Runs seeded random schedules of moves, scaling, killed executors and killed drivers against each
kind of stateful operator and each query of NEXMark's. Compares output and final state with the
undisturbed run's, or output with the answer of another engine, and appends one JSON line a schedule
to the file of outcomes. A schedule that is in the file is not run again, so the work can be spread
over several sittings:

    python benchmarks/exactness/run.py --seeds 0-19 --out exactness.jsonl

With `--open-ms` every open of a file of the checkpoint takes that long: loads of state are late,
and executors are killed in the middle of them. With `--store` checkpoints are in an S3 server,
which may be slow, or refuse some requests and now and then all; that needs Go and Maven.

Exit status 1 if any schedule had another outcome than "equal".
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

# What the benchmarks share is beside this folder.
sys.path.append(str(Path(__file__).parents[1]))

import answers
import inputs
import kinds
import pyspark
from comparison import summarize, summarize_reassignments
from harness.storage.checkpoints import STORES, Storage, open_storage
from nexmark import events, files
from outcomes import read_commit, read_lines, write_outcome

from balancedstream.engine.session.session import remove_work_folder

HERE = Path(__file__).parent
EXECUTORS = 3
WHOLE = ".whole"
"""Marks a folder that is complete."""

PAUSE_POLL_S = 5.0
TAIL_BYTES = 2000


@dataclass(frozen=True)
class Schedule:
    """What to run."""

    kind: str
    seed: int


@dataclass(frozen=True)
class Conditions:
    """What a disturbed run has of Spark and of its storage.

    Attributes:
        open_ms: what an open of a file of the checkpoint takes; 0 for the disk alone.
        slots: tasks at a time on an executor.
        scheduler: Spark's, FAIR or FIFO.
        store: of the checkpoints, one of `checkpoints.STORES`.
    """

    open_ms: int = 0
    slots: int = 1
    scheduler: str = "FAIR"
    store: str = "disk"

    @classmethod
    def read(cls, outcome: Mapping[str, Any]) -> Conditions:
        """Those of an outcome; one that lacks a field is of a run with its default."""
        return cls(**{f.name: outcome[f.name] for f in fields(cls) if f.name in outcome})

    def describe(self) -> dict[str, str]:
        """Spark's settings."""
        return {
            "spark.executor.cores": str(self.slots),
            "spark.scheduler.mode": self.scheduler,
        }


class DriverError(Exception):
    """A driver process could not even begin."""


class Driver:
    """A Spark driver in a process of its own; iterating gives what it says, until it ends.

    Attributes:
        status: exit status, once it has ended.
    """

    def __init__(self, work: Path, name: str, job: dict[str, Any]) -> None:
        self._job = work / f"{name}.json"
        self._job.write_text(json.dumps(job))
        self._errors = work / f"{name}.log"
        self.status: int | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        command = [sys.executable, str(HERE / "driver.py"), str(self._job)]
        with (
            self._errors.open("w") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ):
            try:
                for line in process.stdout or ():
                    # Spark's JVM may print there as well.
                    if line.startswith("{"):
                        yield json.loads(line)
                self.status = process.wait()
            finally:
                process.kill()

    def read_tail(self) -> str:
        """The end of what the driver wrote to its standard error."""
        return self._errors.read_text()[-TAIL_BYTES:]


class Harness:
    """Runs schedules and writes their outcomes down.

    Args:
        work: folder for inputs, undisturbed runs (kept for the next sitting) and schedules.
        out: file of outcomes.
        pause_file: while it exists, no schedule starts and no Spark runs.
        conditions: of disturbed runs.
        storage: of their checkpoints, as the conditions say.
    """

    def __init__(
        self,
        work: Path,
        out: Path,
        pause_file: Path | None,
        conditions: Conditions,
        storage: Storage,
    ) -> None:
        self._conditions = conditions
        self._storage = storage
        self._work = work
        self._out = out
        self._pause_file = pause_file
        self._commit = ""
        self._applications: set[str] = set()
        self._began_s: dict[Schedule, float] = {}
        self._killed: set[Schedule] = set()

    def run(self, schedules: Sequence[Schedule]) -> bool:
        """Runs those that have no outcome yet; returns whether all of these were equal."""
        here = pyspark.__version__
        lines = [line for line in read_lines(self._out) if line.get("spark", here) == here]
        done = {
            (line["kind"], line["seed"])
            for line in lines
            if Conditions.read(line) == self._conditions
        }
        waiting = deque(s for s in schedules if (s.kind, s.seed) not in done)
        print(f"{len(schedules)} schedules, {len(waiting)} of them still to run", flush=True)
        good = True
        self._pause()
        try:
            self._run_undisturbed({s.kind: whole_cuts(s.kind) for s in waiting})
            for schedule in waiting:
                shutil.rmtree(self._folder(schedule), ignore_errors=True)
            while waiting:
                self._pause()
                good &= self._run_driver(waiting)
        finally:
            for application in self._applications:
                remove_work_folder(application)
        return good

    def _run_driver(self, waiting: deque[Schedule]) -> bool:
        """Runs schedules in one driver, until it has run all or one of them has killed it."""
        runs = [
            {
                "kind": s.kind,
                "seed": s.seed,
                "folder": str(self._folder(s)),
                "inputs": str(self._write_inputs(whole_cuts(s.kind))),
            }
            for s in waiting
        ]
        job: dict[str, Any] = {
            "executors": EXECUTORS,
            "settings": self._conditions.describe() | dict(self._storage.settings),
            "local": str(self._storage.folder),
            "location": self._storage.location,
            "runs": runs,
        }
        if self._pause_file:
            job["pause_file"] = str(self._pause_file)
        self._commit = read_commit()
        driver = Driver(self._work, "disturbed", job)
        good = True
        begun = False
        for line in driver:
            if line["says"] == "started":
                self._applications.add(line["application"])
            elif line["says"] == "begun":
                self._began_s.setdefault(waiting[0], time.monotonic())
                begun = True
            else:
                good &= self._judge(waiting.popleft(), line["error"])
                begun = False
        if driver.status == 0:
            return good
        if not begun:
            message = f"the driver ended with status {driver.status}: {driver.read_tail()}"
            raise DriverError(message)
        schedule = waiting[0]
        if driver.status == -signal.SIGKILL and schedule not in self._killed:
            self._killed.add(schedule)
            return good
        error = f"the driver ended by itself with status {driver.status}: {driver.read_tail()}"
        return good & self._judge(waiting.popleft(), error)

    def _pause(self) -> None:
        while self._pause_file and self._pause_file.exists():
            time.sleep(PAUSE_POLL_S)

    def _judge(self, schedule: Schedule, error: str | None) -> bool:
        """Compares a schedule's answer with the undisturbed one and writes its outcome down."""
        folder = self._folder(schedule)
        log = read_lines(folder / "happened.jsonl")
        happened: dict[str, Any] = {**summarize(log)}
        reassigns = any(query.reassigned for query in kinds.KINDS[schedule.kind].values())
        if reassigns:
            happened["keys_moved"] = answers.count_moved_keys(schedule.kind, folder)
            happened |= summarize_reassignments(log)
        merged = False
        difference = error
        outcome = "failed"
        if not error:
            cuts = answers.read_cuts(schedule.kind, folder)
            merged = schedule.kind in kinds.UNDISTURBED and cuts != whole_cuts(schedule.kind)
            difference = self._find_difference(schedule.kind, cuts, folder)
            outcome = "different" if difference else "equal"
            if not difference and not happened["settled"]:
                outcome, difference = "unmoved", "no partition ran where it was wanted"
            if not difference and reassigns and not happened["keys_moved"]:
                outcome, difference = "unmoved", "no key changed its state partition"
        line = {
            "kind": schedule.kind,
            "seed": schedule.seed,
            **asdict(self._conditions),
            "outcome": outcome,
            "difference": difference,
            **happened,
            "files_merged": merged,
            "seconds": round(time.monotonic() - self._began_s[schedule], 1),
            "spark": pyspark.__version__,
            "commit": self._commit,
        }
        write_outcome(self._out, line)
        if outcome == "equal":
            # An executor may just be uploading a snapshot.
            shutil.rmtree(folder, ignore_errors=True)
        return outcome == "equal"

    def _find_difference(self, kind: str, cuts: answers.Cuts, folder: Path) -> str | None:
        if kind in kinds.TIMERS:
            return answers.find_timer_fault_at_end(kind, folder)
        if kind in kinds.NEXMARK:
            return answers.compare_with_engine(kind, self._write_inputs(whole_cuts(kind)), folder)
        # A driver that died between the source's log and the offset log takes two files in one
        # batch after its restart: the undisturbed run then gets these two as one file.
        self._run_undisturbed({kind: cuts})
        return answers.compare(kind, self._undisturbed(kind, cuts), folder)

    def _run_undisturbed(self, wanted: dict[str, answers.Cuts]) -> None:
        """Has the undisturbed runs of these kinds and batches, from before or by running them."""
        runs = [
            {
                "kind": kind,
                "folder": str(self._undisturbed(kind, cuts)),
                "inputs": str(self._write_inputs(cuts)),
            }
            for kind, cuts in wanted.items()
            if kind in kinds.UNDISTURBED and not (self._undisturbed(kind, cuts) / WHOLE).exists()
        ]
        if not runs:
            return
        for run in runs:
            shutil.rmtree(run["folder"], ignore_errors=True)
        driver = Driver(self._work, "undisturbed", {"runs": runs})
        errors = [line["error"] for line in driver if line["says"] == "finished"]
        for run, error in zip(runs, errors, strict=False):
            lack = error or answers.find_emptiness(run["kind"], Path(run["folder"]))
            if lack:
                message = f"an undisturbed run failed: {lack}"
                raise DriverError(message)
            (Path(run["folder"]) / WHOLE).touch()
        if len(errors) < len(runs):
            message = f"an undisturbed run died: {driver.read_tail()}"
            raise DriverError(message)

    def _write_inputs(self, cuts: answers.Cuts) -> Path:
        """The folder that holds `<query>/<table>/` with these batches."""
        folder = self._work / "inputs" / digest(cuts)
        if not (folder / WHOLE).exists():
            for query, tables in cuts.items():
                for table, batches in tables.items():
                    inputs.write_table(folder / query / table, table, batches)
            (folder / WHOLE).touch()
        return folder

    def _undisturbed(self, kind: str, cuts: answers.Cuts) -> Path:
        return self._work / "undisturbed" / f"{kind}-{digest(cuts)}"

    def _folder(self, schedule: Schedule) -> Path:
        return self._storage.folder / f"{schedule.kind}-{schedule.seed}"


def digest(cuts: answers.Cuts) -> str:
    """Names a division of the input into batches, and the queries and rows as they are now."""
    sha = hashlib.sha256(json.dumps(cuts, sort_keys=True).encode())
    for module in (events, files, inputs, kinds):
        sha.update(Path(str(module.__file__)).read_bytes())
    return sha.hexdigest()[:16]


def whole_cuts(kind: str) -> answers.Cuts:
    """One file a batch."""
    return {
        name: {table: inputs.list_batches(table) for table in query.tables}
        for name, query in kinds.KINDS[kind].items()
    }


def parse_seeds(text: str) -> list[int]:
    """Seeds from `FIRST-LAST`, or a single one.

    >>> parse_seeds("3-5"), parse_seeds("7")
    ([3, 4, 5], [7])
    """
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--kind",
        action="append",
        choices=["all", *kinds.KINDS],
        help="may be given several times (default: all)",
    )
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("0-19"), metavar="A-B")
    parser.add_argument("--out", type=Path, required=True, help="file of outcomes, appended to")
    parser.add_argument("--work", type=Path, help="folder to work in, kept (default: temporary)")
    parser.add_argument("--pause-file", type=Path, help="while it exists, no schedule starts")
    parser.add_argument("--open-ms", type=int, default=0, help="what an open of a file takes")
    parser.add_argument("--slots", type=int, default=1, help="tasks at a time on an executor")
    parser.add_argument("--scheduler", choices=["FAIR", "FIFO"], default="FAIR")
    parser.add_argument("--store", choices=STORES, default="disk", help="of the checkpoints")
    args = parser.parse_args()
    # A sitting that is ended takes its driver with it.
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(128 + signum))
    chosen = args.kind or ["all"]
    names = list(kinds.KINDS) if "all" in chosen else chosen
    schedules = [Schedule(kind, seed) for seed in args.seeds for kind in names]
    with tempfile.TemporaryDirectory(prefix="exactness-", ignore_cleanup_errors=True) as temporary:
        work = (args.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        conditions = Conditions(args.open_ms, args.slots, args.scheduler, args.store)
        with open_storage(args.store, args.open_ms, work) as storage:
            good = Harness(work, args.out, args.pause_file, conditions, storage).run(schedules)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
