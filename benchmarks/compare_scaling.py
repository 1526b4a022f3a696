"""Compares scaling policies on few simulated runs, while a rule is being written.

    pip install -e '.[benchmarks]'
    python benchmarks/compare_scaling.py                    five traces, three seeds, driver's home
    python benchmarks/compare_scaling.py held-out --seeds 1-3
    python benchmarks/compare_scaling.py steps spikes --seeds 2 --home operator --each
    python benchmarks/compare_scaling.py --policy '{"admission": {"mode": "auto"}}'

It runs the code of this working tree, one run after the other. What does not depend on our code,
the bound and the lag threshold, is kept in `build/` for the next time.

Hours are over the least possible ones (`simulation.bounds`): the median of the runs. Late rows, the
95th percentile, actions and reversals are means, and the most actions a step is the highest. The
last columns are the hours and late rows of a lag threshold, in how many runs we are later than it,
and what the oracle has.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any

from harness.results import REPOSITORY
from scaling import MOST, count_at_start, judge, list_alternatives
from simulation.bounds import find_bound
from simulation.operated import run_operated
from simulation.running import run_ours, run_scaler
from simulation.spark import VirtualSpark
from simulation.traces import MAKERS
from simulation.workloads import HELD_OUT, KINDS, Workload, make_workload

from balancedstream.core import policy

KEPT = REPOSITORY / "build" / "scaling_baselines.jsonl"
BASELINES = ("oracle", "lag threshold")
GROUPS = {"five": tuple(MAKERS), "held-out": tuple(HELD_OUT), "all": KINDS}
COLUMNS = "hours  late%  p95 s  acts  revs  a step   lag: hours  late%  later  oracle: hours  late%"

Run = dict[str, dict[str, Any]]
"""Figures by way."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", default=["five"], help="five, held-out, all, or kinds")
    parser.add_argument("--seeds", default="1-3", help="such as 2 or 1-5")
    parser.add_argument("--home", choices=["driver", "operator"], default="driver")
    parser.add_argument("--policy", default="{}", help="as JSON; the operator heeds its admission")
    parser.add_argument("--each", action="store_true", help="show each run")
    options = parser.parse_args()
    kinds = [kind for name in options.kinds for kind in GROUPS.get(name, (name,))]
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    rules = policy.parse(json.loads(options.policy))
    kept = Baselines(KEPT)
    runs: dict[str, list[Run]] = {}
    print(f"{'':22}{COLUMNS}")
    for kind in kinds:
        for number in seeds:
            work = make_workload(kind, number)
            run = {"ours": run_home(work, options.home, rules), **kept.find(work)}
            runs.setdefault(kind, []).append(run)
            if options.each:
                print(f"{kind} {number:<21}"[:22] + sum_up([run]), flush=True)
        print(f"{kind:22}" + sum_up(runs[kind]), flush=True)
    print(f"{'all':22}" + sum_up([run for of_kind in runs.values() for run in of_kind]))


def run_home(work: Workload, home: str, rules: policy.Policy) -> dict[str, Any]:
    """The figures of our own code."""
    spark = VirtualSpark(work.job, work.trace, work.seed, count_at_start(work.job, work.trace))
    if home == "driver":
        return judge(spark, run_ours(spark, MOST, rules)).to_json()
    changes = run_operated(spark, MOST, admission=rules.admission.mode)
    return judge(spark, changes).to_json()


def sum_up(runs: Sequence[Run]) -> str:
    """A line of the table."""

    def mean(way: str, name: str) -> float:
        return fmean(run[way][name] for run in runs)

    def over_bound(way: str) -> float:
        hours: list[tuple[float, float]] = [
            (run[way]["executor_hours"], run["bound"]["executor_hours"]) for run in runs
        ]
        return median(spent / least for spent, least in hours)

    later = sum(run["ours"]["late_share"] > run["lag threshold"]["late_share"] for run in runs)
    steps = [run["ours"]["most_actions_a_step"] or 0 for run in runs]
    return (
        f"{over_bound('ours'):5.3f}  {100 * mean('ours', 'late_share'):5.2f}  "
        f"{mean('ours', 'p95_latency_s'):5.1f}  {mean('ours', 'actions'):4.0f}  "
        f"{mean('ours', 'reversals'):4.1f}  {max(steps):6.0f}   "
        f"{over_bound('lag threshold'):10.2f}  {100 * mean('lag threshold', 'late_share'):5.2f}  "
        f"{later:2} of {len(runs):2}  "
        f"{over_bound('oracle'):12.2f}  {100 * mean('oracle', 'late_share'):5.2f}"
    )


class Baselines:
    """The figures of ways that do not depend on our code, kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        sources = sorted((REPOSITORY / "benchmarks" / "simulation").glob("*.py"))
        self._code = hashlib.sha256(b"".join(f.read_bytes() for f in sources)).hexdigest()[:12]
        self._known: dict[tuple[str, str, int], Run] = {
            (entry["code"], entry["kind"], entry["seed"]): entry["run"] for entry in self._read()
        }

    def find(self, work: Workload) -> Run:
        """The figures on a workload, from the file if they are there."""
        key = (self._code, work.kind, work.seed)
        if key not in self._known:
            self._known[key] = run = run_baselines(work)
            self._path.parent.mkdir(exist_ok=True)
            entry = {"code": self._code, "kind": work.kind, "seed": work.seed, "run": run}
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        return self._known[key]

    def _read(self) -> Iterator[dict[str, Any]]:
        if self._path.exists():
            yield from map(json.loads, self._path.read_text().splitlines())


def run_baselines(work: Workload) -> Run:
    """Runs what ours is compared with."""
    ways = list_alternatives(work.job, work.trace)
    run = {}
    for way in BASELINES:
        executors, scaler = ways[way]
        spark = VirtualSpark(work.job, work.trace, work.seed, executors)
        run[way] = judge(spark, run_scaler(spark, scaler, MOST)).to_json()
    run["bound"] = asdict(find_bound(work.job, work.trace, work.seed, MOST))
    return run


if __name__ == "__main__":
    main()
