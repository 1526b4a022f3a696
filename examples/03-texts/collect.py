"""Writes the texts that a Python installation holds into a folder, as a streaming source.

Sources, documentation and package descriptions of the standard library and of installed packages:
texts from one line to 200,000 bytes.
"""

from __future__ import annotations

import argparse
import json
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = {".md", ".py", ".pyi", ".rst", ".txt"}
DESCRIPTION = "METADATA"
MAX_BYTES = 200_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="for the texts; must not exist")
    parser.add_argument("--files", type=int, default=8, help="micro-batches")
    parser.add_argument("--texts", type=int, default=200, help="texts in each of them")
    parser.add_argument("--seed", type=int, default=1, help="which of the texts, in which order")
    args = parser.parse_args()
    names = sorted(find_texts())
    count = min(args.files * args.texts, len(names))
    chosen = random.Random(args.seed).sample(names, count)  # noqa: S311 - nothing secret
    args.folder.mkdir(parents=True)
    lengths = []
    for file in range(args.files):
        with (args.folder / f"texts-{file:03}.json").open("w") as lines:
            for path in chosen[file :: args.files]:
                text = path.read_text("utf-8", errors="replace")
                lengths.append(len(text))
                lines.write(json.dumps({"name": str(path), "text": text}) + "\n")
    print(
        f"{len(lengths):,} texts of {min(lengths):,} to {max(lengths):,} characters in "
        f"{args.files} files in {args.folder}"
    )


def find_texts() -> Iterator[Path]:
    """The files of this Python's libraries that hold text."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    found = set()
    for folder in folders:
        for path in Path(folder).rglob("*"):
            is_text = path.suffix in SUFFIXES or path.name == DESCRIPTION
            if is_text and path.is_file() and 0 < path.stat().st_size <= MAX_BYTES:
                found.add(path.resolve())
    yield from found


if __name__ == "__main__":
    main()
