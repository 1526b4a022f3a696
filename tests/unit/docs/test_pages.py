"""What the pages show holds: commands are taken as typed, manifests are valid, images agree.

Python snippets run in `tests/integration/test_snippets.py`. What is not checked is listed, with the
reason, in `unchecked.toml`.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from page_commands import (
    PROJECT,
    find_faults,
    find_manifest_faults,
    find_script_faults,
    find_settings_faults,
    is_known,
    program_of,
)
from pages import PAGES, ROOT, Block, Command, read_blocks, read_commands, read_inline

from balancedstream.core.balance.hotspots import diminish
from balancedstream.core.observations import MAX_DELAY_S, MIN_DELAY_S
from balancedstream.core.sizing import PARTITIONS_PER_EXECUTOR
from balancedstream.engine.session.session import EXECUTOR_MEMORY_MIB
from balancedstream.engine.session.settings import MIN_PARTITIONS_PER_EXECUTOR
from balancedstream.launch.agent import ADVICE
from balancedstream.version import TESTED_SPARK
from balancedstream_operator.api import crd

UNCHECKED = tomllib.loads(Path(__file__).with_name("unchecked.toml").read_text("utf-8"))
BLOCKS = [block for page in PAGES for block in read_blocks(page)]
SHELL = [block for block in BLOCKS if block.is_shell]
CLICKS = ROOT / "examples" / "04-clicks"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
"""Its pictures are in blocks without a language; `test_architecture.py` checks the layers."""

MOST_UNCHECKED = 6
"""So many blocks at most are listed as not checked."""

_OF_OURS = re.compile(
    r"(balancedstream|docker|helm|kubectl|make|pip|pytest|python|run|spark-submit) \S"
)
PYTHON = PROJECT["requires-python"]
_BRIEF = re.compile(r"are required|expected one argument|(value:|from 0 on, not) '[A-Z]+'")
"""Prose names an option without what else a command needs, and with a word for its value."""


def commands_of(block: Block) -> list[Command]:
    return read_commands(block.text, prompt=block.language == "console")


def name_of(block: Block) -> str:
    """By which `unchecked.toml` knows a block: its page and its first line."""
    return f"{block.page.relative_to(ROOT)}: {block.text.splitlines()[0].strip()}"


def test_a_script_is_looked_at_as_if_no_other_test_had_imported_its_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = ModuleType("app")
    monkeypatch.setitem(sys.modules, "app", other)
    script = ROOT / "examples" / "02-hot-keys" / "check.py"
    assert list(find_script_faults(script, ["build/words", "build/counted"])) == []
    assert sys.modules["app"] is other


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_every_command_that_a_page_tells_to_type_would_be_taken(block: Block) -> None:
    commands = commands_of(block)
    assert commands, "a console without a command"
    assert [fault for command in commands for fault in find_faults(command)] == []
    unknown = {program_of(c) for c in commands if not is_known(c)} - set(UNCHECKED["programs"])
    assert unknown == set(), "check these programs, or say in unchecked.toml why not"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_ours_in_the_prose_would_be_taken(page: Path) -> None:
    faults = []
    for code in read_inline(page):
        if not _OF_OURS.match(code) or code in UNCHECKED["prose"]:
            continue
        words = code.removesuffix(" …")
        for command in read_commands(
            f"balancedstream {words}" if words.startswith("run ") else words, prompt=False
        ):
            faults += [f for f in find_faults(command) if not _BRIEF.search(f)]
    assert faults == []


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "yaml"], ids=str)
def test_every_manifest_policy_and_values_file_is_valid(block: Block) -> None:
    manifests = list(yaml.safe_load_all(block.text))
    assert manifests
    assert [fault for manifest in manifests for fault in find_manifest_faults(manifest)] == []


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "properties"], ids=str)
def test_settings_in_a_listing_are_known(block: Block) -> None:
    found = dict(re.findall(r"^(spark\.\S+)\s+(\S+)$", block.text, re.M))
    assert len(found) == len(block.text.splitlines())
    assert list(find_settings_faults(found)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_of_ours_in_the_prose_are_known(page: Path) -> None:
    named = re.findall(r"`spark\.(balancedstream\.[a-z_.]+?)(?:=(\w+))?`", page.read_text("utf-8"))
    settings = {f"spark.{name}": value for name, value in named if value}
    assert list(find_settings_faults(settings)) == []
    for name, _ in named:
        faults = list(find_settings_faults({f"spark.{name}": "0"}))
        assert [f for f in faults if "no such" in f] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_an_image_that_a_page_pushes_or_runs_was_built_before(page: Path) -> None:
    built: set[str] = set()
    for block in read_blocks(page):
        for command in commands_of(block) if block.is_shell else ():
            words = command.words
            if words[:2] == ("docker", "build"):
                built |= {v for o, v in pairwise(words) if o in {"--tag", "-t"}}
            elif words[:2] == ("docker", "push"):
                assert words[2] in built
        if block.language == "dockerfile" and built:
            assert set(re.findall(r"^FROM (\S+)", block.text, re.M)) <= built


@pytest.mark.parametrize("page", ["README.md", "docs/kubernetes.md"])
def test_the_manifest_that_is_applied_has_the_image_that_was_pushed(page: str) -> None:
    """The registry in the example's manifests is the word that a command replaces."""
    commands = [c for b in read_blocks(ROOT / page) if b.is_shell for c in commands_of(b)]
    image = yaml.safe_load((CLICKS / "clicks.yaml").read_text("utf-8"))["spec"]["image"]
    (edit,) = (c for c in commands if c.words[0] == "sed" and c.words[-1].endswith("clicks.yaml"))
    (old, new), *_ = re.findall(r"s\|([^|]+)\|([^|]+)\|", edit.words[1])
    pushes = read_commands(
        "".join(b.text for b in read_blocks(ROOT / "docs" / "kubernetes.md") if b.is_shell)
    )
    assert ("docker", "push", image.replace(old, new)) in {c.words for c in pushes}


def test_what_a_page_shows_of_a_file_is_in_the_file() -> None:
    """A manifest with the name of one of `examples/` is that one."""
    examples = {}
    for path in (ROOT / "examples").glob("*/*.yaml"):
        for manifest in yaml.safe_load_all(path.read_text("utf-8")):
            examples[manifest["kind"], manifest["metadata"]["name"]] = manifest
    shown = 0
    for page in (ROOT / "README.md", ROOT / "docs" / "kubernetes.md"):
        for block in read_blocks(page):
            for manifest in yaml.safe_load_all(block.text) if block.language == "yaml" else ():
                if "kind" in manifest:
                    shown += 1
                    assert manifest == examples[manifest["kind"], manifest["metadata"]["name"]]
    assert shown >= 3


def test_scala_on_a_page_is_an_example_that_a_test_runs() -> None:
    """`tests/integration/test_scala.py` compiles and submits it."""
    shown = [block.text for block in BLOCKS if block.language == "scala"]
    assert shown == [path.read_text("utf-8") for path in (ROOT / "examples").glob("*/*.scala")]


def test_the_columns_of_a_stream_are_those_of_the_definition() -> None:
    columns = [[name.upper() for name, *_, depth in crd._COLUMNS if depth <= d] for d in (0, 1)]
    shown = list(_read_columns())
    assert shown
    for names in shown:
        assert names in columns


def _read_columns() -> Iterator[list[str]]:
    for block in BLOCKS:
        for line in block.text.splitlines():
            if "IMBALANCE" in line and "PHASE" in line:
                yield line[line.index("NAME") :].split()[1:]


LANGUAGES = {"console", "sh", "yaml", "python", "scala", "promql", "properties", "dockerfile"}
"""Checked by their language: here, in `tests/integration/test_snippets.py`, and PromQL in
`tests/unit/metrics/test_catalogue.py`."""


def test_files_in_a_picture_of_the_architecture_exist() -> None:
    pictures = "".join(b.text for b in read_blocks(ARCHITECTURE) if not b.language)
    named = re.findall(r"[\w/]+\.(?:py|java)\b", pictures)
    assert len(named) > 10
    for name in named:
        places = [*ROOT.glob(f"runtime/**/{name}"), *ROOT.glob(f"operator/**/{name}")]
        assert places, name


def test_the_log_of_the_plugin_says_what_the_page_shows() -> None:
    assert ADVICE in (ROOT / "docs" / "attach-by-settings.md").read_text("utf-8")


def _join(page: Path) -> str:
    return " ".join(page.read_text("utf-8").split())


DECISION = re.compile(r"\d+ moves?: imbalance [\d.]+ → [\d.]+ \([^)]*\)")


def test_decisions_that_pages_show_read_as_those_that_are_made() -> None:
    held, slots = {0: "a", 1: "a", 2: "b"}, {"a": 1, "b": 1}
    made = diminish({0: 4.0, 1: 3.0, 2: 1.0}, held, slots).reason
    form = re.escape(DECISION.findall(made)[0])
    form = re.sub(r"\d+\\\.\d\d", r"\\d+\\.\\d\\d", form)
    form = re.sub(r"^\d+\\ moves?", r"(?:1\\ move|\\d+\\ moves)", form)
    shown = [line for page in PAGES for line in DECISION.findall(_join(page))]
    assert len(shown) > 10
    assert [line for line in shown if not re.fullmatch(form, line)] == []


def test_no_message_tells_to_install_from_an_index_on_which_nothing_is() -> None:
    """Whoever owned the name there would be run."""
    folders = ("runtime", "operator", "spark-plugin/src", "charts", "krew", "docker")
    files = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".java", ".yaml", ".txt", ".sh", ".tpl", ".md"}
    ]
    told = re.compile(r"(?<!helm )install '?balancedstream\b(?!-)")
    assert [path.name for path in files if told.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("page", "says", "holds"),
    [
        ("sizing", "executors of one core and 1 GiB each", EXECUTOR_MEMORY_MIB == 1024),
        ("sizing", "Eight for each executor of the largest size", PARTITIONS_PER_EXECUTOR == 8),
        ("your-job", "Eight for each executor of the largest size", PARTITIONS_PER_EXECUTOR == 8),
        ("your-job", "with fewer than four", MIN_PARTITIONS_PER_EXECUTOR == 4),
        ("faq", "one to five minutes", (MIN_DELAY_S, MAX_DELAY_S) == (60, 300)),
        ("requirements", "3.5 to 4.3", (TESTED_SPARK[0], TESTED_SPARK[-1]) == ("3.5", "4.3")),
        ("requirements", "3.11 or newer", PYTHON == ">=3.11"),
    ],
)
def test_numbers_that_pages_give_are_those_of_the_code(page: str, says: str, holds: bool) -> None:
    assert says in _join(ROOT / "docs" / f"{page}.md")
    assert holds


def test_packages_of_spark_have_the_version_that_is_installed() -> None:
    installed = re.findall(r"^pyspark==(.+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    named = {
        version
        for page in PAGES
        for version in re.findall(r"org\.apache\.spark:[\w.-]+:([\d.]+)", page.read_text("utf-8"))
    }
    assert named == set(installed)


def test_reasons_that_the_questions_page_explains_are_those_that_the_code_gives() -> None:
    page = (ROOT / "docs" / "faq.md").read_text("utf-8")
    table = page.partition("| the reason says |")[2].partition("\n\n")[0]
    reasons = re.findall(r"^\| `([^`]+)` \|", table, re.M)
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "runtime").rglob("*.py"))
    joined = re.sub(r'"\s*f?"', "", sources)
    assert len(reasons) >= 5
    assert [reason for reason in reasons if reason not in joined] == []


def test_a_block_is_checked_or_listed_with_the_reason() -> None:
    listed = UNCHECKED["blocks"]
    others = {
        name_of(block)
        for block in BLOCKS
        if block.language not in LANGUAGES and (block.language or block.page != ARCHITECTURE)
    }
    assert others == set(listed), "each block of no language, and none that is gone"
    assert all(len(why) > 10 for why in listed.values())
    assert len(listed) <= MOST_UNCHECKED


def test_a_program_or_command_that_is_listed_as_unchecked_is_still_shown() -> None:
    programs = {program_of(command) for block in SHELL for command in commands_of(block)}
    assert set(UNCHECKED["programs"]) <= programs
    assert set(UNCHECKED["prose"]) <= {code for page in PAGES for code in read_inline(page)}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("balancedstream run --lokal 2:4 job.py", "unrecognized arguments"),
        ("balancedstream explian x", "invalid choice"),
        ("kubectl bst pause clicks --why x", "unrecognized arguments"),
        ("kubectl apply -f examples/04-clicks/click.yaml", "no such file"),
        ("kubectl annotate bst clicks balancedstream.io/hold=1", "no such annotation"),
        ("helm install x charts/balancedstream --set prometheus.uri=http://x", "no such value"),
        ("make demos", "no such target"),
        ("pip install 'balancedstream[spark]'", "nothing is published"),
        ("pip install '.[sparc]'", "no extra sparc"),
        ("python examples/01-flights/replay.py build --days-of 3", "unrecognized arguments"),
        ("python benchmarks/shuffle.py --simulated", "unrecognized arguments"),
        ("pytest tests/simulation --seeds 3", "no test has this option"),
        ("docker build --target sparc .", "no such stage"),
        ("docker build --build-arg SPARC=3 .", "no such argument"),
        ("spark-submit --conf spark.balancedstream.mod=auto x.jar", "no such setting"),
        ("export A='--conf spark.balancedstream.balance.act=2 pyspark-shell'", "no such knob"),
    ],
)
def test_a_command_that_would_be_refused_is_found(typed: str, said: str) -> None:
    (command,) = read_commands(f"$ {typed}\n")
    assert any(said in fault for fault in find_faults(command)), list(find_faults(command))
    assert is_known(command)


@pytest.mark.parametrize(
    "manifest",
    [
        "{spec: {executor: {min: 2}}}",
        "{balance: {act_abov: 1.2}}",
        "{prometheus: {uri: http://x}}",
        "{kind: Pod, args: [balancedstream, sidecars, /x]}",
        "{kind: SparkApplication, sparkConf: {spark.balancedstream.mode: on-demand}}",
        "{apiVersion: balancedstream.io/v1alpha1, kind: BalancedStream, spec: {image: x}}",
    ],
)
def test_a_manifest_that_would_be_refused_is_found(manifest: str) -> None:
    assert list(find_manifest_faults(yaml.safe_load(manifest)))
