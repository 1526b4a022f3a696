"""Attach by settings: each kind of application, on each Spark, through all that may happen to it.

An application that knows nothing of balancing counts numbers on three executors, one of which is
slow. It gets the plugin, and is seen and its partitions are moved. Then its agent is killed, and
its driver. It goes on from its checkpoint, is scaled from three executors to two, and ends by
itself. Its result is compared with the numbers. No times are compared here: a run in which one of
these did not happen has no result.

The agent is of this Python, whatever the application's Spark. `make plugin-apps` makes the
environments of the other Sparks, with what a client of Spark Connect needs.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from harness.applications import (
    EXECUTORS,
    KINDS,
    Application,
    Spark,
    await_that,
    find_executors,
    find_sparks,
    is_alive,
    start,
)
from harness.benchmark import Benchmark, MeasurementError, make_folder, prepare, run
from harness.results import REPOSITORY

KEYS = 120
ROWS_PER_BATCH = 2 * KEYS
SLEEP_MS = 50
"""For each key, on the slow executor."""

FEWER = EXECUTORS - 1

IS_SLOW = "java_method('java.lang.System', 'getProperty', 'user.dir') LIKE '%/0'"
"""Each executor of a local cluster has a folder of its own, which is named by its number."""

WAIT = f"java_method('java.lang.Thread', 'sleep', {SLEEP_MS}L)"
WORK = f"if({IS_SLOW}, {WAIT}, NULL)"

AGENT = r"agent in process (\d+)"
MOVED = r"counts, operator 0: (\d+) moves? .*settled"
MORE_BATCHES = 2


def main() -> None:
    with prepare("plugin_apps", __doc__ or "") as benchmark:
        sparks = find_sparks(REPOSITORY)
        newest = next(iter(sparks))
        cases = [{"application": kind, "spark": version} for version in sparks for kind in KINDS]
        failures = 0
        for case in benchmark.find_missing(cases[:1] if benchmark.smoke else cases):
            kind, spark = str(case["application"]), sparks[str(case["spark"])]
            try:
                measured = show(benchmark, kind, spark)
            except (MeasurementError, CalledProcessError) as error:
                failures += 1
                benchmark.tell(f"{kind}, Spark {spark.version}: {error}")
                continue
            settings = {"agent": newest, "executors": EXECUTORS, "keys": KEYS}
            benchmark.record(None, case, settings, measured)
        if failures:
            message = f"{failures} of the applications failed; what was said above has their logs"
            raise MeasurementError(message)


def show(benchmark: Benchmark, kind: str, spark: Spark) -> dict[str, Any]:
    """Takes one application through both of its lives.

    Returns:
        `moves` of the first life, `batches` of both, and `end_s` from the result to the driver's
        end.

    Raises:
        MeasurementError: something did not happen, or the result is not exact.
    """
    folder = make_folder(benchmark.work, f"{kind}-{spark.version}".lower())
    arguments = (str(folder), str(ROWS_PER_BATCH), str(KEYS), WORK)
    with living(start(kind, spark, folder, "first", arguments, {})) as first:
        moves = kill_agent(first)
        agent = int(first.find(AGENT, 2)[-1])
        first.driver.kill()
        await_that(lambda: not is_alive(agent), "the agent ends with its driver")
    limits = {"spark.balancedstream.scaling.max_executors": str(FEWER)}
    with living(start(kind, spark, folder, "second", arguments, limits)) as second:
        second.find(f"scale from {EXECUTORS} to {FEWER} executors")
        second.find(r"executor \d+ left")
        agent = int(second.find(AGENT)[-1])
        wanted = second.count_batches() + MORE_BATCHES
        await_that(lambda: second.count_batches() >= wanted, "batches on fewer", second)
        (folder / "stop").touch()
        end_s = second.await_end()
        await_that(lambda: not is_alive(agent), "the agent ends with its driver")
    batches = check_result((folder / "result").read_text())
    return {"moves": moves, "batches": batches, "end_s": round(end_s, 1)}


def kill_agent(application: Application) -> int:
    """Kills the agent once it has moved partitions, and awaits the next one; returns the moves."""
    agent = int(application.find(AGENT)[0])
    moves = sum(map(int, application.find(MOVED)))
    if not application.count_batches():
        message = "no batch is in the metrics"
        raise MeasurementError(message)
    os.kill(agent, signal.SIGKILL)
    application.find(r"the agent ended with status 137 and starts again")
    application.find("counts: first batch on", 2)
    return moves


@contextmanager
def living(application: Application) -> Iterator[Application]:
    """Ends an application, and awaits the end of its executors, whatever happened."""
    executors: dict[int, Path] = {}
    try:
        await_that(lambda: len(find_executors(application)) == EXECUTORS, "executors", application)
        executors = find_executors(application)
        yield application
    finally:
        application.kill()
        await_that(lambda: not any(map(is_alive, executors)), "the executors end")
        application.remove_work_folders(executors.values())


def check_result(text: str) -> int:
    r"""The batches of which a result is, if each key has each of its numbers once.

    Key k has the numbers k, k + KEYS, k + 2 KEYS and so on. Each line has a key, how many numbers
    it has, the greatest of them, and their sum.

    Raises:
        MeasurementError: a key or a number is missing, or was counted twice.

    >>> lines = [f"{k} 4 {k + 3 * KEYS} {2 * (2 * k + 3 * KEYS)}" for k in range(KEYS)]
    >>> check_result("\n".join(lines))
    2
    """
    rows = sorted([int(word) for word in line.split()] for line in text.splitlines())
    counts = {n for _, n, _, _ in rows}
    for k, n, greatest, total in rows:
        if greatest != k + (n - 1) * KEYS or 2 * total != n * (k + greatest):
            message = f"key {k}: {n} numbers up to {greatest} with the sum {total}"
            raise MeasurementError(message)
    if [row[0] for row in rows] != [*range(KEYS)] or len(counts) != 1:
        message = f"{len(rows)} keys, with {sorted(counts)} numbers each"
        raise MeasurementError(message)
    return counts.pop() * KEYS // ROWS_PER_BATCH


if __name__ == "__main__":
    run(main)
