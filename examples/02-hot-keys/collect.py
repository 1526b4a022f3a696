"""Writes the words of the documentation on this machine into a folder, as a streaming source.

Documentation is what installed Python packages bring (docstrings, descriptions, texts), and what
Debian keeps in /usr/share/doc where there is one. One text follows the other in an order that a
seed decides; each word has its place in all that text, and the ten words before and after it.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import random
import re
import sysconfig
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

DEBIAN = Path("/usr/share/doc")
NAMES = {"METADATA", "copyright"}
SUFFIXES = {".md", ".rst", ".txt"}
MAX_BYTES = 500_000
AROUND = 10
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="for the words; must not exist")
    parser.add_argument("--files", type=int, default=8, help="micro-batches")
    parser.add_argument("--words", type=int, default=40_000, help="words in each of them")
    parser.add_argument("--seed", type=int, default=1, help="decides the order of the texts")
    args = parser.parse_args()
    texts = sorted(find_texts())
    random.Random(args.seed).shuffle(texts)  # noqa: S311 - nothing secret
    uses = itertools.islice(read_uses(texts), args.files * args.words)
    args.folder.mkdir(parents=True)
    count = 0
    for file in range(args.files):
        unfinished = args.folder / f".words-{file:03}.unfinished"
        with unfinished.open("w") as lines:
            for use in itertools.islice(uses, args.words):
                lines.write(json.dumps(use) + "\n")
                count += 1
        # The source takes files in the order of their times of modification.
        modified_s = time.time() - args.files + file
        os.utime(unfinished, (modified_s, modified_s))
        os.replace(unfinished, args.folder / f"words-{file:03}.json")
    print(f"{count:,} words in {args.files} files in {args.folder}")


def find_texts() -> Iterator[Path]:
    """The files that hold documentation."""
    folders = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    found = set()
    for folder in folders | {DEBIAN}:
        for path in folder.rglob("*"):
            is_text = path.suffix in SUFFIXES | {".py"} or path.name in NAMES
            if is_text and path.is_file() and 0 < path.stat().st_size <= MAX_BYTES:
                found.add(path.resolve())
    yield from found


def read_uses(texts: list[Path]) -> Iterator[dict[str, str | int]]:
    """Each word in its place, with the words around it."""
    position = 0
    for path in texts:
        words = WORD.findall(read_documentation(path).lower())
        for at, word in enumerate(words):
            before, after = words[max(0, at - AROUND) : at], words[at + 1 : at + 1 + AROUND]
            yield {"position": position, "word": word, "around": " ".join(before + after)}
            position += 1


def read_documentation(path: Path) -> str:
    """The whole text of a file; of a source its docstrings."""
    text = path.read_text("utf-8", errors="replace")
    if path.suffix != ".py":
        return text
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ""  # written for another Python
    docstrings = (ast.get_docstring(n) for n in ast.walk(tree) if isinstance(n, documented))
    return "\n".join(docstring for docstring in docstrings if docstring)


if __name__ == "__main__":
    main()
