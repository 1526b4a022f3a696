"""What `make demo` does: one run of the flights, first without and then with balancing, checked.

Replays the flights of 2013 through `app.py` under `balancedstream run`, on the same four executors
from begin to end: one batch warms them up, some are only measured, and then balancing begins. The
results are compared with a batch recomputation, row for row, and the last screen says what
balancing gained.
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
# Each Python task of transformWithState costs some 0.2 s whatever its input: few partitions.
PARTITIONS = 16
DAYS = 105  # to the middle of April
# Each is a batch; a second plan after the first one leaves five batches on one side of it.
FILES = 20
BASELINE_BATCHES = 7


def main() -> int:
    """Runs the demo; returns 0 when the results are right."""
    parser = argparse.ArgumentParser(description="The flights, without and then with balancing.")
    parser.add_argument("--report", type=Path, default=Path("demo-report"), metavar="DIR")
    parser.add_argument(
        "--lookup-ms",
        type=float,
        default=1.5,
        help="milliseconds that each flight waits for an outside service (default: %(default)s)",
    )
    args = parser.parse_args()
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--conf spark.sql.shuffle.partitions={PARTITIONS} pyspark-shell"
    )

    with tempfile.TemporaryDirectory(prefix="flights-") as work:
        flights, output = Path(work) / "flights", Path(work) / "results"
        days = ["--days", str(DAYS)]
        say(1, f"cut the first {DAYS} days of flights into {FILES} files; each is one batch")
        run([HERE / "replay.py", flights, "--files", str(FILES), *days])

        say(
            2,
            f"the job on {EXECUTORS} executors, which start now (about 20 s): one batch to warm "
            f"up,\n   {BASELINE_BATCHES} without balancing, then with it. Watch how long a batch "
            f"takes.",
        )
        run(
            [
                *("-m", "balancedstream.cli", "run", "--local", f"{EXECUTORS}:{EXECUTORS}"),
                *("--baseline", str(BASELINE_BATCHES), "--report", args.report),
                *(HERE / "app.py", flights, output, "--lookup-ms", str(args.lookup_ms)),
            ]
        )

        say(3, "recompute all results without Spark and compare every row")
        correct = run([HERE / "check.py", output, *days], check=False)
    report = json.loads((args.report / "report.json").read_text())
    say(4, "what balancing gained")
    print_gain(report, correct=correct)
    print(
        f"\nEach flight waits {args.lookup_ms} ms for an outside service; {EXECUTORS} executors "
        f"share {report['cores']} cores."
    )
    if report["cores"] < EXECUTORS:
        print("Work that waits gains from balance; work that computes is as fast as the cores are.")
    print(f"\nSpark's log: {args.report / 'spark.log'}")
    print(f"The report:  {(args.report / 'report.html').resolve().as_uri()}")
    return 0 if correct else 1


def run(arguments: list[Any], *, check: bool = True) -> bool:
    """Runs Python with this terminal; whether it succeeded."""
    words = [sys.executable, *(str(argument) for argument in arguments)]
    done = subprocess.run(words, check=False).returncode
    if done and check:
        sys.exit(f"demo: `{' '.join(words)}` ended with status {done}")
    return done == 0


def say(part: int, text: str) -> None:
    """A headline between the parts."""
    print(f"\n== {part} of 4: {text}", flush=True)


def print_gain(report: dict[str, Any], *, correct: bool) -> None:
    """The figures before and after of the busiest query, or why there are none."""
    query = report["queries"][0]
    before_ms, after_ms = query["median_batch_ms_before"], query["median_batch_ms_after"]
    print(f"{'':36}{'without':>10}{'with':>10}")
    for name, left, right in (
        ("batches measured", query["batches_before"], query["batches_after"]),
        ("median batch", seconds(before_ms), seconds(after_ms)),
        (
            "imbalance (hottest executor / mean)",
            ratio(query["imbalance_before"]),
            ratio(query["imbalance_after"]),
        ),
        ("  least that placement can reach", "", ratio(query["bound"])),
        ("moves of state partitions", 0, report["moves"]),
        ("query restarts", 0, report["query_restarts"]),
    ):
        print(f"{name:36}{left:>10}{right:>10}")
    print(f"{'results equal to the recomputation':36}{'':>10}{'yes' if correct else 'NO':>10}\n")
    if query["moves"] == 0:
        imbalance = ratio(query["imbalance_after"])
        print(f"Nothing had to move: Spark placed the state evenly by chance ({imbalance}).")
        return
    if before_ms is None or after_ms is None:
        print("\n".join(report["notes"]))
        return
    saved = 1 - after_ms / before_ms
    print(f"The median batch takes {abs(saved):.0%} {'less' if saved > 0 else 'MORE'} time.")


def seconds(milliseconds: float | None) -> str:
    """A duration, or a dash where it was not measured."""
    return "-" if milliseconds is None else f"{milliseconds / 1000:.1f} s"


def ratio(value: float | None) -> str:
    """A ratio, or a dash where it was not measured."""
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
