"""Writes the tables of the pages from the results of the benchmarks.

Each figure is the median over the repetitions with the least and greatest value in brackets. What
stands between the markers of a benchmark is replaced, the rest of the pages stays.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from harness.results import REPOSITORY, RESULTS, read_results
from tables.beside_flink import tabulate_beside_flink
from tables.commit import tabulate_commit
from tables.compatibility import tabulate_compatibility
from tables.computing import tabulate_computing
from tables.handoff import tabulate_handoff
from tables.headlines import find_commits, tabulate_headlines, tabulate_targets
from tables.hot_keys import tabulate_hot_keys, tabulate_split_key
from tables.idle import tabulate_idle
from tables.loop_cost import tabulate_loop_cost
from tables.markdown import Result
from tables.migration import tabulate_migration
from tables.nexmark_on_off import tabulate_nexmark_on_off
from tables.operator_load import tabulate_operator_load
from tables.placement import tabulate_placement
from tables.plugin_apps import tabulate_plugin_apps
from tables.reaction import tabulate_reaction
from tables.real_time_latency import tabulate_real_time_latency
from tables.repartitioning import tabulate_repartitioning
from tables.scale import tabulate_scale
from tables.scaling_real import tabulate_scaling_real
from tables.scaling_simulated import tabulate_scaling_simulated
from tables.settling import tabulate_settling
from tables.shuffle import tabulate_shuffle, tabulate_shuffle_overhead
from tables.shuffle_simulated import tabulate_shuffle_simulated
from tables.soak import tabulate_soak
from tables.watching import tabulate_watching

TABLES: dict[str, Callable[[Sequence[Result]], Iterator[str]]] = {
    "placement": tabulate_placement,
    "settling": tabulate_settling,
    "idle": tabulate_idle,
    "loop_cost": tabulate_loop_cost,
    "watching": tabulate_watching,
    "computing": tabulate_computing,
    "migration": tabulate_migration,
    "scale": tabulate_scale,
    "scaling_simulated": tabulate_scaling_simulated,
    "scaling_real": tabulate_scaling_real,
    "scaling_cluster": tabulate_scaling_real,
    "commit": tabulate_commit,
    "reaction": tabulate_reaction,
    "operator_load": tabulate_operator_load,
    "shuffle_simulated": tabulate_shuffle_simulated,
    "shuffle": tabulate_shuffle,
    "shuffle_overhead": tabulate_shuffle_overhead,
    "handoff": tabulate_handoff,
    "hot_keys": tabulate_hot_keys,
    "split_key": tabulate_split_key,
    "nexmark_on_off": tabulate_nexmark_on_off,
    "compatibility": tabulate_compatibility,
    "plugin_apps": tabulate_plugin_apps,
    "beside_flink": tabulate_beside_flink,
    "repartitioning": tabulate_repartitioning,
    "real_time_latency": tabulate_real_time_latency,
    "soak": tabulate_soak,
    "soak_cluster": tabulate_soak,
}


WORDS = {"frequent dear": "frequent and expensive", "frequent cheap": "frequent and cheap"}
"""Names of cases in the results, and what the pages call them."""

BENCHMARKS = REPOSITORY / "docs" / "benchmarks"
"""One page a benchmark, by its name."""

README = REPOSITORY / "README.md"
PAGES = [
    README,
    *(
        REPOSITORY / "docs" / f"{name}.md"
        for name in ("performance", "spark-versions", "attach-by-settings")
    ),
    *sorted(BENCHMARKS.glob("*.md")),
]

DAYS = RESULTS / "commits.json"
"""The day of each commit that something was measured at, for a reader without the history."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    pages = {file: file.read_text() for file in PAGES}
    tables: dict[str, str] = {}
    commits: set[str] = set()
    for name, tabulate in TABLES.items():
        results = read_results(options.results / f"{name}.jsonl")
        if not results:
            continue
        text = "\n".join([describe_origin(results), "", *tabulate(results)])
        for word, said in WORDS.items():
            text = text.replace(word, said)
        print(f"\n{name}: {text}")
        tables[name] = text
        commits |= set(find_commits(text))
        pages = {file: replace_between(page, name, text) for file, page in pages.items()}
    days = date_commits(commits)
    titles = {file.stem: read_title(page) for file, page in pages.items() if file.stem in tables}
    targets = "\n".join(tabulate_targets(tables, titles))
    for file, page in pages.items():
        is_readme = file.name == README.name
        folder = "docs/benchmarks" if is_readme else "benchmarks"
        headlines = "\n".join(tabulate_headlines(tables, days, folder, only_first=is_readme))
        answered = replace_between(page, "headlines", headlines)
        file.write_text(replace_between(answered, "targets", targets))


def date_commits(commits: Iterable[str]) -> dict[str, str]:
    """The day of each commit; days that are not known yet come from git, and are kept."""
    days: dict[str, str] = json.loads(DAYS.read_text())
    unknown = sorted(set(commits) - days.keys())
    if unknown:
        for commit in unknown:
            show = ["git", "-C", str(REPOSITORY), "show", "--no-patch", "--format=%cs", commit]
            days[commit] = subprocess.run(
                show, check=True, capture_output=True, text=True
            ).stdout.strip()
        DAYS.write_text(json.dumps(days, indent=1, sort_keys=True) + "\n")
    return days


def read_title(page: str) -> str:
    r"""The first heading of a page.

    >>> read_title("# One page\n\ntext")
    'One page'
    """
    return page.partition("\n")[0].removeprefix("# ")


def replace_between(page: str, name: str, text: str) -> str:
    """Puts a text between the two markers of a benchmark.

    >>> replace_between("a <!-- x: begin -->old<!-- x: end --> b", "x", "new").split()
    ['a', '<!--', 'x:', 'begin', '-->', 'new', '<!--', 'x:', 'end', '-->', 'b']
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    pattern = re.compile(re.escape(begin) + ".*" + re.escape(end), re.DOTALL)
    return pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page)


def describe_origin(results: Sequence[Result]) -> str:
    """A sentence on what was measured where."""
    commits = sorted(
        {r["code"]["commit"] + (" with changes" if r["code"]["dirty"] else "") for r in results}
    )
    machines = sorted(
        {
            "{cores} cores, {memory_gib} GiB, Spark {spark}".format(**r["machine"])
            + (f", Java {r['machine']['java']}" if "java" in r["machine"] else "")
            for r in results
        }
    )
    return f"{len(results)} results; {'; '.join(machines)}; commit {', '.join(commits)}."


if __name__ == "__main__":
    main()
