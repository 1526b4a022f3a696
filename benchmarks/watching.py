"""An agent that only watches, beside the same query without the plugin, and what the agent takes.

Uniform keys on four executors. The query runs in alternating blocks, each from its beginning, with
the plugin's agent, which only advises, and without any listener; with short batches, where a fixed
cost shows most, and with long ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.benchmark import MeasurementError, alternate, prepare, run
from harness.sessions import open_session
from idle import choose_workloads, find_missing
from placement import EXECUTORS, WARM_UP_BATCHES, PlacementRunner, take_batches

from balancedstream.cli import PLUGIN_JAR
from balancedstream.engine.session.local import LocalExecutors

ATTACHING_BATCHES = 8
"""Batches of each block before it is measured; the agent starts with the query, and takes 2 s."""


def main() -> None:
    with prepare("watching", __doc__ or "") as benchmark:
        workloads = choose_workloads(benchmark)
        missing = find_missing(benchmark)
        if not missing:
            return
        executors = LocalExecutors(EXECUTORS, EXECUTORS)
        settings = {
            "spark.driver.extraClassPath": str(PLUGIN_JAR),
            "spark.balancedstream.python": sys.executable,
        }
        with open_session(benchmark, executors, settings) as spark:
            runner = WatchingRunner(benchmark.work, spark, workloads["short"])
            runner.warm_up(runner.count_rows(0.0, 0), WARM_UP_BATCHES)
            for case in missing:
                workload = workloads[str(case["batches"])]
                measured = runner.under(workload).measure_watched(int(case["repetition"]))
                benchmark.record(spark, case, asdict(workload), measured)


class WatchingRunner(PlacementRunner):
    """Measures what the plugin costs a query, in a session that was started without it."""

    def measure_watched(self, repetition: int) -> dict[str, Any]:
        """Seconds of the batches with and without the agent, and what each agent took.

        Returns:
            `watched` and `alone`: batch times as Spark measures them. `agent_mib`: the most memory
            that each agent held. `agent_cpu_s`: its processor time over the measured batches.
        """
        measured: dict[str, list[float]] = {
            "watched": [], "alone": [], "agent_mib": [], "agent_cpu_s": []
        }  # fmt: skip
        context: Any = self._spark.sparkContext._jsc.sc()
        driver = int(self._spark._jvm.java.lang.ProcessHandle.current().pid())
        listener = self._engine.capabilities.listener
        context.removeSparkListener(listener)
        there_and_back = alternate(repetition, "watched", "alone")
        try:
            for block in there_and_back + there_and_back[::-1]:
                is_watched = block == "watched"
                with self._load_plugin() if is_watched else nullcontext():
                    query = self.start(self.count_rows(0.0, repetition), f"{block}-{repetition}")
                    try:
                        take_batches(query, ATTACHING_BATCHES)
                        agent = find_agent(driver) if is_watched else None
                        before_s = read_cpu_s(agent) if agent else 0.0
                        measured[block] += take_batches(query, self._workload.idle_batches)
                        if agent:
                            measured["agent_cpu_s"].append(round(read_cpu_s(agent) - before_s, 2))
                            measured["agent_mib"].append(read_peak_mib(agent))
                    finally:
                        query.stop()
        finally:
            context.addSparkListener(listener)
        return measured

    @contextmanager
    def _load_plugin(self) -> Iterator[None]:
        """Does what Spark does with `spark.plugins`: the agent starts with the next query."""
        jvm: Any = self._spark._jvm
        plugin = jvm.io.balancedstream.Plugin()
        plugin.init(self._spark.sparkContext._jsc.sc(), None)
        try:
            yield
        finally:
            plugin.shutdown()


def find_agent(driver: int) -> Path:
    """The folder in /proc of the agent of a driver.

    Raises:
        MeasurementError: it has none.
    """
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_child = int((path / "stat").read_text().rpartition(")")[2].split()[1]) == driver
            if is_child and b"BALANCEDSTREAM_PLUGIN_VERSION=" in (path / "environ").read_bytes():
                return path
        except OSError:
            continue
    message = "the plugin's agent does not run"
    raise MeasurementError(message)


def read_cpu_s(process: Path) -> float:
    """Processor seconds of a process so far."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_peak_mib(process: Path) -> float:
    """The most memory of its own that a process held."""
    for line in (process / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


if __name__ == "__main__":
    run(main)
