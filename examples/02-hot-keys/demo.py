"""The words, with keys that stay and with keys that move, on two executors; both checked.

Runs `app.py` twice under `balancedstream run`, first with a policy that only measures, then with
the default one, compares both results with a recomputation, row for row, and prints what it gained.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
EXECUTORS = 2
# Spark puts "the", "a", "to", "of", "is", "for" and "in" into one of three state partitions.
PARTITIONS = 3
ARMS = ("without", "with")
MEASURE_ONLY = "balance: {mode: 'off'}\nscaling: {mode: 'off'}\n"


def main() -> int:
    """Runs the demo; returns 0 when both results are right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--report", type=Path, default=Path("words-report"), metavar="DIR")
    parser.add_argument("--files", type=int, default=8, help="micro-batches")
    parser.add_argument("--words", type=int, default=40_000, help="words in each of them")
    args = parser.parse_args()
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--conf spark.sql.shuffle.partitions={PARTITIONS} pyspark-shell"
    )
    outputs = []
    with tempfile.TemporaryDirectory(prefix="words-") as work:
        words = Path(work) / "words"
        command = [sys.executable, HERE / "collect.py", words]
        run([*command, "--files", args.files, "--words", args.words])
        policy = Path(work) / "measure-only.yaml"
        policy.write_text(MEASURE_ONLY)
        for arm, options in zip(ARMS, (["--policy", policy], []), strict=True):
            say(f"the job {arm} balancing, on {EXECUTORS} executors")
            run(
                [
                    *(sys.executable, "-m", "balancedstream.cli", "run"),
                    *("--local", EXECUTORS, "--report", args.report / arm, *options),
                    *(HERE / "app.py", words, Path(work) / arm),
                ]
            )
            outputs.append(Path(work) / arm)
        say("both results, compared with a recomputation")
        is_correct = run([sys.executable, HERE / "check.py", words, *outputs], check=False)
    print_gain(args.report)
    print(f"\nLook at it: {(args.report / 'with' / 'report.html').resolve().as_uri()}")
    return 0 if is_correct else 1


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


def read_batches(report: Path) -> dict[int, dict[str, Any]]:
    """Every batch of a run, by its number."""
    records = map(json.loads, (report / "history.jsonl").read_text().splitlines())
    return {record["batch"]: record for record in records if record["record"] == "batch"}


def print_gain(reports: Path) -> None:
    """The batches since the keys have moved, beside the same batches where they stayed."""
    say("what it gained")
    run_with = json.loads((reports / "with" / "report.json").read_text())
    for move in run_with["key_move_list"]:
        if move["settled_batch"] is not None:
            way = f"from partition {move['source']} to {move['target']}"
            print(f"{move['key']} went {way} with batch {move['settled_batch']}")
    window = run_with["queries"][0]["after"]
    if window is None or not run_with["key_moves_settled"]:
        print("Nothing to compare: no key moved early enough. Try more --files.")
        return
    # Later batches compare each word with more: only the same ones can be set side by side.
    without, balanced = (read_batches(reports / arm) for arm in ARMS)
    numbers = range(window["first_batch"], window["last_batch"] + 1)
    same = [(without[n], balanced[n]) for n in numbers if n in without and n in balanced]
    print(f"\nmedians of batches {numbers[0]} to {numbers[-1]:<11}{'without':>12}{'with':>12}")
    seconds = [[batch["duration_ms"] / 1000 for batch in pair] for pair in same]
    skews = [[batch["loads"][0]["imbalance"] for batch in pair] for pair in same]
    for name, pairs in (("batch, s", seconds), ("imbalance (hottest / mean)", skews)):
        print(f"{name:34}" + "".join(f"{median(arm):>12.2f}" for arm in zip(*pairs, strict=True)))
    ratios = [ours / theirs for theirs, ours in seconds]
    print(f"with / without: {median(ratios):.2f} [{min(ratios):.2f} to {max(ratios):.2f}]")


if __name__ == "__main__":
    sys.exit(main())
