"""A benchmark that runs: its command line, its file of results, and what it runs on.

Every benchmark appends one JSON line a run to `results/<name>.jsonl`. A run whose line is there is
not made again, so a benchmark can be interrupted and started again; remove lines to measure them
again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from harness.results import REPOSITORY, RESULTS, Case, read_results

MEASURED_CODE = ("runtime", "operator", "benchmarks", ":!benchmarks/results")

REPETITIONS = 5


class MeasurementError(Exception):
    """A run did not get far enough; it has no result."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark being run.

    Attributes:
        name: of the benchmark and of its file of results.
        work: folder for checkpoints and Spark's own files.
        results: the file with one JSON line a run.
        smoke: only show that it works, with one short run.
        code: the commit that was measured: the one at the start, whatever is committed meanwhile.
        only: values of the cases to run, by name; a name that is missing allows every value.
    """

    name: str
    work: Path
    results: Path
    smoke: bool
    code: Mapping[str, Any]
    only: Mapping[str, set[str]] = field(default_factory=dict)

    @property
    def repetitions(self) -> range:
        """The numbers of the repetitions, from 1."""
        return range(1, 2 if self.smoke else REPETITIONS + 1)

    def find_missing(self, cases: Sequence[Case]) -> list[Case]:
        """The chosen cases that have no result yet, in their order."""
        done = [result["case"] for result in read_results(self.results)]
        return [case for case in cases if case not in done and self._is_chosen(case)]

    def _is_chosen(self, case: Case) -> bool:
        return all(str(case.get(name)) in values for name, values in self.only.items())

    def record(
        self, spark: SparkSession | None, case: Case, settings: Mapping[str, Any], measured: Any
    ) -> None:
        """Appends the result of one run, with what it was measured on."""
        line = {
            "benchmark": self.name,
            "case": case,
            "code": self.code,
            "machine": describe_machine(spark),
            "settings": settings,
            "measured": measured,
        }
        self.results.parent.mkdir(parents=True, exist_ok=True)
        with self.results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self.tell(" ".join(f"{name}={value}" for name, value in case.items()))

    def tell(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {self.name}: {text}", flush=True)


@contextmanager
def prepare(name: str, description: str) -> Iterator[Benchmark]:
    """Reads the command line and gives the benchmark a work folder.

    Smoke runs keep their results in the work folder: they are not measurements.
    """
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="for checkpoints (default: a temporary folder)"
    )
    parser.add_argument("--smoke", action="store_true", help="one short run, to see that it works")
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help="for results (default: benchmarks/results)"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="run only cases with this value, such as s=1.0; repeat it for more values or names",
    )
    options = parser.parse_args()
    only: dict[str, set[str]] = {}
    for choice in options.only:
        chosen, _, value = choice.partition("=")
        only.setdefault(chosen, set()).add(value)
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as temporary:
        work = (options.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        folder = options.results or (work / "results" if options.smoke else RESULTS)
        results = folder / f"{name}.jsonl"
        yield Benchmark(name, work, results, options.smoke, describe_code(), only)


def describe_code() -> dict[str, Any]:
    """The commit that was measured, and whether the measured code differs from it."""
    commit = _ask_git("rev-parse", "--short=12", "HEAD")
    changes = _ask_git("status", "--porcelain", "--", *MEASURED_CODE)
    return {"commit": commit or "none", "dirty": changes != ""}


def _ask_git(*arguments: str) -> str | None:
    """What git answers, or None where it refuses or there is none."""
    try:
        command = ["git", "-C", str(REPOSITORY), *arguments]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()


def describe_machine(spark: SparkSession | None) -> dict[str, Any]:
    """What the figures depend on, and nothing that names the machine.

    Args:
        spark: of the job; None where it ran in pods, or there was none.
    """
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "spark": pyspark.__version__,
        "python": platform.python_version(),
    }
    if spark:
        jvm: Any = spark._jvm
        machine |= {"java": jvm.System.getProperty("java.version"), "spark": spark.version}
    return machine


def alternate(repetition: int, *arms: str) -> tuple[str, ...]:
    """The arms in the order of this repetition: every other one the other way round."""
    return arms if repetition % 2 else arms[::-1]


def make_folder(work: Path, name: str) -> Path:
    """A new one: executors may write to a query's folder yet when the query is over."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=work))


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def run(main: Callable[[], None]) -> None:
    """Runs a benchmark; one that could not be measured ends with a sentence and status 1."""
    try:
        main()
    except MeasurementError as error:
        sys.exit(str(error))
