"""What `make demo` does: the same job without and with balancing, on four executors, checked.

Replays the flights of a year, runs `app.py` twice under `balancedstream run` (first with a policy
that only measures, then with the default one), compares both results with a batch recomputation,
row for row, and prints what balancing gained.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXECUTORS = 4
# Each Python task of transformWithState starts a worker; more tasks than this is mostly that.
PARTITIONS = 16
MEASURE_ONLY = "balance: {mode: 'off'}\nscaling: {mode: 'off'}\n"


def main() -> int:
    """Runs the demo; returns 0 when both results are right."""
    parser = argparse.ArgumentParser(description="The flights, without and with balancing.")
    parser.add_argument("--report", type=Path, default=Path("demo-report"), metavar="DIR")
    parser.add_argument("--files", type=int, default=20, help="micro-batches to cut them into")
    parser.add_argument("--days", type=int, help="only the first days of the year")
    parser.add_argument(
        "--lookup-ms",
        type=float,
        default=1.0,
        help="milliseconds that each flight waits for an outside service (default: 1)",
    )
    args = parser.parse_args()
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--conf spark.sql.shuffle.partitions={PARTITIONS} pyspark-shell"
    )

    with tempfile.TemporaryDirectory(prefix="flights-") as work:
        flights = Path(work) / "flights"
        days = ["--days", str(args.days)] if args.days else []
        say(f"replaying the flights of 2013 as {args.files} files")
        run([sys.executable, HERE / "replay.py", flights, "--files", str(args.files), *days])
        policy = Path(work) / "measure-only.yaml"
        policy.write_text(MEASURE_ONLY)
        reports = {}
        correct = True
        for arm, options in (("without", ["--policy", policy]), ("with", [])):
            say(f"the job {arm} balancing: {EXECUTORS} executors, one terminal")
            output = Path(work) / arm
            report = args.report / arm
            run(
                [
                    *(sys.executable, "-m", "balancedstream.cli", "run"),
                    *("--local", f"{EXECUTORS}:{EXECUTORS}", "--report", report, *options),
                    *(HERE / "app.py", flights, output, "--lookup-ms", str(args.lookup_ms)),
                ]
            )
            correct &= run([sys.executable, HERE / "check.py", output, *days], check=False)
            reports[arm] = json.loads((report / "report.json").read_text())
    print_gain(reports["without"], reports["with"], args)
    return 0 if correct else 1


def run(command: list[Any], *, check: bool = True) -> bool:
    """Runs a command with this one's output; whether it succeeded."""
    words = [str(word) for word in command]
    done = subprocess.run(words, check=False).returncode
    if done and check:
        sys.exit(f"demo: `{' '.join(words)}` ended with status {done}")
    return done == 0


def say(text: str) -> None:
    """A headline between the parts."""
    print(f"\n== {text}", flush=True)


def print_gain(without: dict[str, Any], balanced: dict[str, Any], args: argparse.Namespace) -> None:
    """The figures of both runs side by side."""
    say("what it gained")
    print(f"{'':34}{'without':>12}{'with':>12}")
    before, after = without["imbalance_after"], balanced["imbalance_after"]
    rows = [
        ("rows", f"{without['rows']:,}", f"{balanced['rows']:,}"),
        ("imbalance (hottest / mean)", ratio(before), ratio(after)),
        ("  least that placement can reach", ratio(without["bound"]), ratio(balanced["bound"])),
        (
            "median batch",
            f"{without['median_batch_ms_after']:,.0f} ms",
            f"{balanced['median_batch_ms_after']:,.0f} ms",
        ),
        ("moves of state partitions", without["moves"], balanced["moves"]),
        ("query restarts", without["query_restarts"], balanced["query_restarts"]),
    ]
    for name, left, right in rows:
        print(f"{name:34}{left:>12}{right:>12}")
    saved = 1 - balanced["median_batch_ms_after"] / without["median_batch_ms_after"]
    print(f"\nThe median batch takes {abs(saved):.0%} {'less' if saved > 0 else 'MORE'} time.")
    print(
        f"Each flight waits {args.lookup_ms} ms for an outside service; {EXECUTORS} executors "
        f"share {balanced['cores']} cores."
    )
    if balanced["cores"] < EXECUTORS:
        print("Work that waits gains from balance; work that computes is as fast as the cores are.")
    print(f"\nLook at it: {(args.report / 'with' / 'report.html').resolve().as_uri()}")


def ratio(value: float | None) -> str:
    """A ratio, or a dash where it was not measured."""
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
