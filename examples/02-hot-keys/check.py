"""Recompute the results from the words in plain Python, and compare every row.

Every word has one row, its newest. The recomputation goes through the words one by one and shares
nothing with the streaming job but its constants. One line, and exit status 0 (equal) or 1.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from app import ALIKE, FUNCTION_WORDS, KEPT_USES

ResultRow = tuple[str, int, int]


def read_words(folder: Path) -> dict[str, list[str]]:
    """For each word the words around its uses, in the order of the texts."""
    around: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        for line in path.read_text().splitlines():
            use = json.loads(line)
            if use["word"] in FUNCTION_WORDS:
                around[use["word"]].append(use["around"])
    return around


def recompute(word: str, around: list[str]) -> ResultRow:
    uses = [set(each.split()) for each in around]
    repeated = 0
    for at, use in enumerate(uses):
        earlier = uses[max(0, at - KEPT_USES) : at]
        repeated += any(len(use & other) >= ALIKE for other in earlier)
    return word, len(uses), repeated


def streamed(folder: Path) -> Counter[ResultRow]:
    """What the stream left: the newest line of each word."""
    newest: dict[str, ResultRow] = {}
    for path in sorted(folder.glob("batch-*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            newest[row["word"]] = (row["word"], row["uses"], row["repeated"])
    return Counter(newest.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("input", type=Path, help="the folder that collect.py wrote")
    parser.add_argument("outputs", type=Path, nargs="+", help="folders that app.py wrote")
    args = parser.parse_args()

    words = read_words(args.input)
    with ProcessPoolExecutor() as pool:
        expected = Counter(pool.map(recompute, words.keys(), words.values(), chunksize=5))
    is_equal = True
    for output in args.outputs:
        found = streamed(output / "words")
        missing, unexpected = expected - found, found - expected
        if missing or unexpected:
            is_equal = False
            examples = [f"missing {row}" for row in missing][:1]
            examples += [f"unexpected {row}" for row in unexpected][:1]
            print(
                f"DIFFERENT: of {expected.total():,} rows {missing.total():,} are missing and "
                f"{unexpected.total():,} are unexpected; {'; '.join(examples)}"
            )
        else:
            uses = sum(row[1] for row in expected)
            repeated = sum(row[2] for row in expected)
            print(
                f"EQUAL: {expected.total():,} words, {uses:,} uses, {repeated:,} of them repeated"
            )
    sys.exit(not is_equal)


if __name__ == "__main__":
    main()
