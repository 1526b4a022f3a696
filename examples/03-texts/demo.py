"""The texts, shuffled round robin and by cost, on two executors; the results are compared.

Runs `app.py` under `balancedstream run`, which shuffles the same texts both ways, one after the
other and every other time the other way round; prints the batch times side by side, and leaves a
report that has both.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
EXECUTORS = 2
WARM_UP_BATCHES = 3
"""The first batch starts Python workers, and after the second one costs are trusted."""
ARMS = ("round-robin", "by-cost")


def main() -> int:
    """Runs the demo; returns 0 when all results are the same."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--report", type=Path, default=Path("texts-report"), metavar="DIR")
    parser.add_argument("--files", type=int, default=8, help="micro-batches")
    parser.add_argument("--texts", type=int, default=200, help="texts in each of them")
    parser.add_argument("--repetitions", type=int, default=4, help="an even number is fair")
    args = parser.parse_args()
    batch_s: dict[str, list[float]] = {arm: [] for arm in ARMS}
    results: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="texts-") as work:
        texts = Path(work) / "texts"
        command = [sys.executable, HERE / "collect.py", texts]
        run([*command, "--files", str(args.files), "--texts", str(args.texts)])
        for repetition in range(args.repetitions):
            print(f"\n== run {repetition + 1} of {args.repetitions}", flush=True)
            output = Path(work) / str(repetition)
            order = ARMS if repetition % 2 else ARMS[::-1]
            told = run(
                [
                    *(sys.executable, "-m", "balancedstream.cli", "run"),
                    *("--local", f"{EXECUTORS}:{EXECUTORS}", "--report", args.report),
                    *(HERE / "app.py", texts, output, "--warm-up", "--shuffle", *order),
                ]
            )
            for arm in ARMS:
                took = re.findall(rf"{arm}, batch \d+: \d+ texts in ([\d.]+) s", told)
                batch_s[arm].append(median(map(float, took[WARM_UP_BATCHES:])))
                results.append(read_results(output / arm / "results"))
    print_gain(batch_s, json.loads((args.report / "report.json").read_text()))
    print(f"\nLook at it: {(args.report / 'report.html').resolve().as_uri()}")
    is_same = all(result == results[0] for result in results)
    print(f"{'EQUAL' if is_same else 'DIFFERENT'}: {len(results[0]):,} rows in each run")
    return 0 if is_same else 1


def run(command: list[Any]) -> str:
    """Runs a command and gives what it printed, which is printed too."""
    words = [str(word) for word in command]
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    if done.returncode:
        sys.exit(f"demo: `{' '.join(words)}` ended with status {done.returncode}")
    return done.stdout


def read_results(folder: Path) -> list[str]:
    """All rows, in an order that does not depend on where they were made."""
    return sorted(line for file in folder.glob("*.json") for line in file.open())


def print_gain(batch_s: dict[str, list[float]], report: dict[str, Any]) -> None:
    """Both ways side by side: medians over the runs, with the least and the greatest."""
    print("\n== what it gained: the median batch, after the first three")
    for arm, seconds in batch_s.items():
        middle, least, most = median(seconds), min(seconds), max(seconds)
        print(f"{arm:12} {middle:.2f} s [{least:.2f} to {most:.2f}]")
    ratios = [ours / theirs for theirs, ours in zip(*batch_s.values(), strict=True)]
    print(f"by cost / round robin {median(ratios):.2f} [{min(ratios):.2f} to {max(ratios):.2f}]")
    last = report["shuffle_list"][-1]
    print(f"after batch {last['batch']}: {last['reason']}")


if __name__ == "__main__":
    sys.exit(main())
