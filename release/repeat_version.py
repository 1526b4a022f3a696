"""Writes the version of `runtime/balancedstream/version.py` wherever it is repeated.

python release/repeat_version.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from balancedstream.version import __version__

ROOT = Path(__file__).parents[1]
IMAGE_TAG = r"\bbalancedstream-(?:operator|spark):"
PLACES = (
    (r"^(?:appV|v)ersion: ", ("charts/balancedstream/Chart.yaml",)),
    (r"^ARG VERSION=", ("Dockerfile",)),
    (IMAGE_TAG, ("Dockerfile", "docs/*.md", "examples/**/Dockerfile", "examples/**/run.sh")),
    (r"--set image\.tag=", ("docs/upgrade.md",)),
    (r"\brelease ", ("docs/kubectl.md",)),
    (r"\bbalancedstream ", (".github/ISSUE_TEMPLATE/bug.yml",)),
)
"""What stands before the version, and in which files."""


def find_outdated() -> Iterator[tuple[Path, str]]:
    """Files that say another version, with the text that says this one."""
    texts: dict[Path, str] = {}
    for before, patterns in PLACES:
        for path in (path for pattern in patterns for path in ROOT.glob(pattern)):
            text = texts.get(path) or path.read_text("utf-8")
            texts[path] = re.sub(
                rf"({before})\d+\.\d+\.\d+(?![\w.])", rf"\g<1>{__version__}", text, flags=re.M
            )
    yield from ((path, text) for path, text in texts.items() if text != path.read_text("utf-8"))


if __name__ == "__main__":
    for path, text in find_outdated():
        path.write_text(text, "utf-8")
        print(path.relative_to(ROOT))
