"""Which tests, and which kinds of the exactness harness, pass with the Spark that is installed.

Not a measurement, but its result is kept like one: a line for each part, with its commit.
`make spark-4.0.5` runs it with that version; the newest line of a version and a part counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pyspark
from harness.benchmark import MeasurementError, prepare, run
from harness.results import REPOSITORY

PASSED = "passed"
ENGINE = "tests/integration/test_engine*.py"
EXACTNESS = "exactness"
TESTS: Mapping[str, Sequence[str]] = {
    "engine": sorted(map(str, REPOSITORY.glob(ENGINE))),
    "others": ["-n", "2", "--dist", "loadfile", f"--ignore-glob={ENGINE}", "tests/integration"],
}
"""Part to what pytest runs."""


def main() -> None:
    good = True
    with prepare("compatibility", __doc__ or "") as benchmark:
        parts = (*TESTS, EXACTNESS)
        for part in [part for part in parts if part in benchmark.only.get("part", parts)]:
            found = (
                run_kinds(benchmark.work)
                if part == EXACTNESS
                else run_tests(benchmark.work, TESTS[part])
            )
            case = {"spark": pyspark.__version__, "part": part}
            benchmark.record(None, case, {}, {"outcomes": found})
            good &= {*found.values()} <= {PASSED, "skipped"}
    sys.exit(0 if good else 1)


def run_tests(work: Path, arguments: Sequence[str]) -> dict[str, str]:
    """Runs tests; returns the outcome of each."""
    report = work / "tests.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *arguments]
    ended = subprocess.run(command, cwd=REPOSITORY, check=False)
    if not report.exists():
        message = f"pytest ended with status {ended.returncode} and no report"
        raise MeasurementError(message)
    return read_report(report.read_text("utf-8"))


def read_report(text: str) -> dict[str, str]:
    """The outcome of each test in a report of pytest's in JUnit's format.

    >>> read_report('''<testsuites><testsuite>
    ...     <testcase classname="tests.integration.test_a" name="test_x[1]"/>
    ...     <testcase classname="tests.integration.test_a" name="test_y"><skipped/></testcase>
    ...     <testcase classname="tests.integration.test_a" name="test_z"><error/></testcase>
    ... </testsuite></testsuites>''')
    {'test_a::test_x[1]': 'passed', 'test_a::test_y': 'skipped', 'test_a::test_z': 'failed'}
    """
    outcomes: dict[str, str] = {}
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314 - what was just written
        module = case.get("classname", "").rpartition(".")[2]
        name = f"{module}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            outcomes[name] = "failed"
        elif case.find("skipped") is not None:
            outcomes[name] = "skipped"
        else:
            # One that fails while it is taken down is there a second time.
            outcomes.setdefault(name, PASSED)
    return outcomes


def run_kinds(work: Path) -> dict[str, str]:
    """Runs one schedule of each kind; returns the outcome of each."""
    out = work / "exactness.jsonl"
    harness = REPOSITORY / "benchmarks" / "exactness" / "run.py"
    paths = ["--out", str(out), "--work", str(work / "exactness")]
    subprocess.run([sys.executable, str(harness), "--seeds", "0", *paths], check=False)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return {
        f"{EXACTNESS}::{line['kind']}": PASSED if line["outcome"] == "equal" else line["outcome"]
        for line in lines
    }


if __name__ == "__main__":
    run(main)
