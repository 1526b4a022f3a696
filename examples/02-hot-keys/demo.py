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
from typing import Any

HERE = Path(__file__).parent
EXECUTORS = 2
# Spark puts seven of the nine most frequent words into one of three state partitions.
PARTITIONS = 3
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
    reports = {}
    with tempfile.TemporaryDirectory(prefix="words-") as work:
        words = Path(work) / "words"
        command = [sys.executable, HERE / "collect.py", words]
        run([*command, "--files", args.files, "--words", args.words])
        policy = Path(work) / "measure-only.yaml"
        policy.write_text(MEASURE_ONLY)
        for arm, options in (("without", ["--policy", policy]), ("with", [])):
            say(f"the job {arm} balancing, on {EXECUTORS} executors")
            run(
                [
                    *(sys.executable, "-m", "balancedstream.cli", "run"),
                    *("--local", EXECUTORS, "--report", args.report / arm, *options),
                    *(HERE / "app.py", words, Path(work) / arm),
                ]
            )
            reports[arm] = json.loads((args.report / arm / "report.json").read_text())
        say("both results, compared with a recomputation")
        outputs = [Path(work) / arm for arm in reports]
        is_correct = run([sys.executable, HERE / "check.py", words, *outputs], check=False)
    print_gain(reports["without"], reports["with"])
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


def print_gain(without: dict[str, Any], balanced: dict[str, Any]) -> None:
    """The figures of both runs side by side, and which keys went where."""
    say("what it gained")
    print(f"{'':34}{'without':>12}{'with':>12}")
    rows = [
        ("imbalance (hottest / mean)", "imbalance_after", ".2f"),
        ("  least that placement can reach", "bound", ".2f"),
        ("median batch, ms", "median_batch_ms_after", ",.0f"),
        ("moves of state partitions", "moves", ","),
        ("moves of keys", "key_moves_settled", ","),
    ]
    for name, field, form in rows:
        figures = (without[field], balanced[field])
        told = ("-" if figure is None else format(figure, form) for figure in figures)
        print(f"{name:34}" + "".join(f"{figure:>12}" for figure in told))
    for move in balanced["key_move_list"]:
        if move["settled_batch"] is not None:
            way = f"from partition {move['source']} to {move['target']}"
            print(f"{move['key']} went {way} with batch {move['settled_batch']}")


if __name__ == "__main__":
    sys.exit(main())
