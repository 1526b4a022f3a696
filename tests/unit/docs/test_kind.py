"""What `docs/kind.md` tells to type is what CI runs on kind, and its parts fit together."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any

import pytest
import yaml
from page_commands import CRD
from pages import ROOT, read_blocks, read_commands

from balancedstream_operator.api.conditions import KINDS
from balancedstream_operator.api.resource import KIND

PAGE = ROOT / "docs" / "kind.md"
FOLDER = ROOT / "examples" / "04-clicks" / "kind"
SCRIPT = FOLDER / "run.sh"
CHART = ROOT / "charts" / "balancedstream"
TYPED = [
    command.words
    for block in read_blocks(PAGE)
    if block.is_shell
    for command in read_commands(block.text)
]
OWN_IMAGES = {"balancedstream-operator", "balancedstream-spark"}
IMAGE = re.compile(
    r"\b(balancedstream-\w+)(?=:[\d$])|repository[=:]\s*(?:\S*/)?(balancedstream-\w+)"
)


def option(command: tuple[str, ...], name: str) -> str:
    return command[command.index(name) + 1]


def words_after(*start: str) -> list[tuple[str, ...]]:
    return [words for words in TYPED if words[: len(start)] == start]


def manifests() -> dict[str, Any]:
    """What is applied, by kind."""
    ((*_, file),) = words_after("kubectl", "apply")
    return {m["kind"]: m for m in yaml.safe_load_all((ROOT / file).read_text("utf-8"))}


def test_the_script_types_what_the_page_says_and_nothing_else() -> None:
    preparations = {"set", "cd", "dirname"}
    commands = read_commands(SCRIPT.read_text("utf-8").partition("\n")[2], prompt=False)
    assert [c.words for c in commands if c.words[0] not in preparations] == TYPED
    assert SCRIPT.stat().st_mode & 0o111, "CI and readers run it"


def test_a_job_of_the_workflow_runs_the_script() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    run = [step["run"] for step in workflow["jobs"]["kind"]["steps"] if "run" in step]
    assert run[0] == str(SCRIPT.relative_to(ROOT))


def test_four_programs_are_enough() -> None:
    assert {words[0] for words in TYPED} == {"docker", "kind", "helm", "kubectl"}


def test_all_of_it_is_in_the_cluster_that_is_made_and_deleted() -> None:
    first, last = TYPED[0], TYPED[-1]
    assert (first[:3], last[:3]) == (("kind", "create", "cluster"), ("kind", "delete", "cluster"))
    assert {option(words, "--name") for words in TYPED if words[0] == "kind"} == {first[-1]}


def test_images_that_pods_need_are_built_and_loaded() -> None:
    built = [option(words, "--tag") for words in words_after("docker", "build")]
    (load,) = words_after("kind", "load")
    loaded = set(load[5:])
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    image = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))["image"]
    operator = f"{image['repository']}:{image['tag'] or chart['appVersion']}"
    assert loaded == {operator, manifests()[KIND]["spec"]["image"]}
    assert loaded < set(built)
    # The base of the job's image is built before it.
    dockerfile = (ROOT / words_after("docker", "build")[-1][-1] / "Dockerfile").read_text("utf-8")
    base = re.search(r"^ARG SPARK=(\S+)$", dockerfile, re.M)
    assert base
    assert base[1] in takewhile(lambda tag: tag != "clicks:1", built)


def test_the_claim_of_the_stream_is_applied_with_it() -> None:
    """Kind's class of storage refuses any other mode, and its default class needs no name."""
    claim = manifests()["PersistentVolumeClaim"]
    assert claim["metadata"]["name"] == manifests()[KIND]["spec"]["checkpoints"]["claim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert "storageClassName" not in claim["spec"]


def test_the_page_scales_within_the_limits_of_the_stream() -> None:
    executors = manifests()[KIND]["spec"]["executors"]
    numbers = [int(option(words, "--replicas")) for words in words_after("kubectl", "scale")]
    assert numbers == [executors["max"], 0]


def test_the_operator_asks_the_prometheus_that_is_installed() -> None:
    prometheus, operator = words_after("helm", "install")
    name, namespace = prometheus[2], option(prometheus, "--namespace")
    assert option(operator, "--set") == f"prometheus.url=http://{name}-server.{namespace}.svc"


@pytest.mark.parametrize("words", words_after("kubectl", "wait"), ids=lambda words: words[3])
def test_what_is_waited_for_can_come(words: tuple[str, ...]) -> None:
    awaited = words[3].removeprefix("--for=")
    field = re.match(r"jsonpath=\{\.status\.(\w+)\}=\d+$", awaited)
    if field:
        schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        assert field[1] in schema["status"]["properties"]
    else:
        assert awaited.removeprefix("condition=") in {kind.name for kind in KINDS}


def test_our_images_have_the_same_names_everywhere() -> None:
    places = [
        *(ROOT / name for name in ("README.md", "Dockerfile", "charts/balancedstream/values.yaml")),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("charts/*/*.md"),
        *ROOT.glob("charts/*/templates/*"),
        *ROOT.glob(".github/workflows/*.yml"),
        *(p for p in ROOT.glob("examples/0*/**/*") if p.suffix in {".md", ".yaml", ".sh", ""}),
    ]
    files = [path for path in places if path.is_file()]
    named = {
        name
        for path in files
        for found in IMAGE.findall(path.read_text("utf-8"))
        for name in found
        if name
    }
    assert named == OWN_IMAGES
