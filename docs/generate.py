"""Writes the reference pages that are made from the code; a test keeps them in step.

python docs/generate.py
"""

from __future__ import annotations

from pathlib import Path

from balancedstream.core.policy import knobs
from balancedstream.engine.settings import PARTITIONS_PER_EXECUTOR, SETTINGS, SHUFFLE_PARTITIONS

REFERENCE = Path(__file__).parent / "reference"
MADE = "<!-- Made by docs/generate.py; change the code instead. -->\n"


def render_policy() -> str:
    """The page of all knobs."""
    lines = [
        "# Policy\n",
        MADE,
        "`balancedstream policy` prints these as a file; `run --policy FILE` reads one. What a",
        "file leaves out keeps its default.\n",
        "| knob | default | allowed | unit | what it does |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{k.path}` | {k.default} | {k.allowed} | {k.unit} | {k.sentence} |" for k in knobs()
    ]
    return "\n".join(lines) + "\n"


def render_settings() -> str:
    """The page of Spark settings."""
    lines = [
        "# Spark settings of a balanced job\n",
        MADE,
        "`balancedstream run` sets these where the script, `spark-defaults.conf` or",
        "`PYSPARK_SUBMIT_ARGS` do not; your own settings win, with a warning where they defeat",
        "balancing. `spark.dynamicAllocation.enabled=true` is refused: two parties would set the",
        "number of executors. What the storage settings bring is measured in",
        "[performance.md](../performance.md).\n",
        "| setting | value | why |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{s.key}` | `{s.value}` | {s.reason} |" for s in SETTINGS]
    lines.append(
        f"| `{SHUFFLE_PARTITIONS}` | {PARTITIONS_PER_EXECUTOR} x the most executors of `--local` | "
        "fewer state partitions cannot be spread evenly; fixed in a checkpoint once it exists |"
    )
    return "\n".join(lines) + "\n"


def write_pages() -> None:
    """Writes both pages."""
    (REFERENCE / "policy.md").write_text(render_policy(), "utf-8")
    (REFERENCE / "settings.md").write_text(render_settings(), "utf-8")


if __name__ == "__main__":
    write_pages()
