"""What the demo on Kubernetes tells, waits for, and leaves alone."""

from __future__ import annotations

import doctest
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "examples" / "05-kubernetes"))

import demo
import telling
from clusters import Cluster, ClusterUnavailableError
from telling import News, has_decided, has_executors, holds, is_settled, read_row

ROOT = Path(__file__).parents[3]
TABLE = """\
NAME     MODE   EXECUTORS   DESIRED   IMBALANCE     BACKLOG   PHASE      AGE
clicks   Auto   2           3         1.54 (1.00)             Starting   69s
"""
ROW = read_row(TABLE)


def condition(kind: str, status: str, reason: str = "Because") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": f"{kind} it is"}


def decision(kind: str, epoch: int, **more: str) -> dict[str, Any]:
    entry = {"time": f"2026-01-01T00:00:0{epoch}Z", "kind": kind, "epoch": epoch}
    return {**entry, "reason": f"why {kind} {epoch}", **more}


def test_the_examples_in_docstrings_hold() -> None:
    outcome = doctest.testmod(telling)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_cells_that_are_empty_or_hold_spaces_stay_under_their_headings() -> None:
    assert ROW == {
        "NAME": "clicks",
        "MODE": "Auto",
        "EXECUTORS": "2",
        "DESIRED": "3",
        "IMBALANCE": "1.54 (1.00)",
        "BACKLOG": "",
        "PHASE": "Starting",
        "AGE": "69s",
    }


def test_the_first_row_comes_with_headings_as_kubectl_prints_it() -> None:
    assert News().find(ROW, {}) == [line.rstrip() for line in TABLE.splitlines()]


@pytest.mark.parametrize(
    ("changes", "is_news"),
    [
        ({"AGE": "71s", "BACKLOG": "400"}, False),
        ({"IMBALANCE": "1.51 (1.00)"}, False),
        ({"IMBALANCE": "1.04 (1.00)"}, True),
        ({"EXECUTORS": "3"}, True),
        ({"PHASE": "Running"}, True),
    ],
)
def test_a_row_is_told_again_if_it_says_something_else(
    changes: dict[str, str], is_news: bool
) -> None:
    news = News()
    news.find(ROW, {})
    lines = news.find(ROW | changes, {})
    assert len(lines) == is_news
    assert all(cell in line for line in lines for cell in changes.values())


def test_rows_are_aligned_whatever_their_cells_hold() -> None:
    news = News()
    headings, _ = news.find(ROW, {})
    (row,) = news.find(ROW | {"IMBALANCE": "", "PHASE": "Running"}, {})
    assert [row.index(cell) for cell in ("Running", "69s")] == [
        headings.index(heading) for heading in ("PHASE", "AGE")
    ]


def test_a_decision_is_told_once_and_its_effect_when_it_is_known() -> None:
    news = News()
    news.find(ROW, {})
    decided = {"decisions": [decision("move", 1)]}
    assert news.find(ROW, decided) == ["decision: move, plan 1: why move 1"]
    assert news.find(ROW, decided) == []
    decided = {"decisions": [decision("scale", 2), decision("move", 1, effect="1.04")]}
    assert news.find(ROW, decided) == [
        "effect of move, plan 1: 1.04",
        "decision: scale, plan 2: why scale 2",
    ]
    assert news.find(ROW, decided) == []


def test_two_decisions_of_one_plan_are_both_told() -> None:
    decided = {"decisions": [decision("move", 1), decision("scale", 1)]}
    assert [line.partition(",")[0] for line in News().find({}, decided)[:2]] == [
        "decision: scale",
        "decision: move",
    ]


def test_a_condition_is_told_when_its_state_or_reason_changes() -> None:
    news = News()
    news.find(ROW, {})

    def tell(*conditions: dict[str, str]) -> list[str]:
        return news.find(ROW, {"conditions": list(conditions)})

    assert tell(condition("Ready", "False", "Applying"), condition("Fallback", "True")) == [
        "Ready is False: Applying, Ready it is"
    ]
    assert tell(condition("Ready", "False", "Applying") | {"message": "other words"}) == []
    assert tell(condition("Ready", "False", "NoBatchYet")) != []
    assert tell(condition("Ready", "True", "NoBatchYet")) != []


def test_an_even_load_that_still_moves_is_not_settled() -> None:
    even, moving = condition("Balanced", "True"), condition("Migrating", "True")
    assert is_settled({"conditions": [even]})
    assert not is_settled({"conditions": [even, moving]})
    assert not is_settled({"conditions": [condition("Balanced", "Unknown")]})
    assert not is_settled({})


def test_only_a_decision_of_that_kind_after_that_plan_counts() -> None:
    status = {"decisions": [decision("scale", 4), decision("move", 3)]}
    assert has_decided(status, "scale", since=3)
    assert not has_decided(status, "scale", since=4)
    assert not has_decided(status, "move", since=3)
    assert not has_decided({}, "move", since=0)


@pytest.mark.parametrize(("executors", "desired"), [(2, 3), (3, 2), (None, None)])
def test_executors_that_come_or_go_are_not_there(executors: int | None, desired: int) -> None:
    assert has_executors({"executors": 3, "desiredExecutors": 3}, 3)
    assert not has_executors({"executors": executors, "desiredExecutors": desired}, 3)


class Showing:
    """A cluster on which one stream has one status."""

    def __init__(self, status: telling.Status, found: Sequence[str] = ()) -> None:
        self._status = status
        self._found = found
        self.typed: list[str] = []

    def kubectl(self, *words: str, namespace: str = "") -> str:
        self.typed.append(" ".join(["kubectl", *words]))
        return TABLE

    def helm(self, *words: str) -> str:
        self.typed.append(" ".join(["helm", *words]))
        return ""

    def find(self, api_version: str, kind: str, name: str) -> dict[str, Any] | None:
        return {"kind": kind} if kind in self._found else None

    def status(self) -> telling.Status:
        return self._status


def watch(status: telling.Status) -> demo.Watched:
    cluster: Any = Showing(status)
    return demo.Watched(cluster, cluster, cluster, demo.Screen(), images_s=time.monotonic())


def test_what_is_waited_for_is_shown_and_found(capsys: pytest.CaptureFixture[str]) -> None:
    watched = watch({"planEpoch": 7, "conditions": [condition("Ready", "True")]})
    watched.wait_for("Ready", lambda status: holds(status, "Ready"), by_s=60.0)
    assert watched.epoch == 7
    shown = capsys.readouterr().out
    assert re.search(r"^ 0:00  Ready is True: Because", shown, re.M)
    assert re.search(r"^ 0:00  clicks   Auto   2 ", shown, re.M)


def test_what_does_not_come_in_time_is_named_with_the_operators_last_words() -> None:
    watched = watch({"reason": "no executor is hot"})
    with pytest.raises(
        AssertionError, match="in vain for two moons; last seen: no executor is hot"
    ):
        watched.wait_for("two moons", lambda status: False, by_s=0.0)


def test_the_last_of_the_waits_leaves_time_to_take_all_down_within_eight_minutes() -> None:
    waits = [demo.READY_BY_S, demo.BALANCED_BY_S, demo.LARGER_BY_S, demo.SMALLER_BY_S]
    assert waits == sorted(waits)
    assert waits[-1] <= 8 * 60 - 30


def make_site(folder: Path, *found: str) -> tuple[Any, Showing]:
    kube = Showing({}, found)
    return SimpleNamespace(kube=kube, cluster=SimpleNamespace(shared_folder=folder)), kube


def test_an_installation_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    site, kube = make_site(tmp_path, "CustomResourceDefinition")
    with pytest.raises(ClusterUnavailableError, match="installed on this cluster"):
        demo.make_room(site, demo.Screen())
    assert kube.typed == []


def test_what_an_earlier_demo_left_is_taken_down_first(tmp_path: Path) -> None:
    checkpoint = tmp_path / demo.NAMESPACE / "clicks"
    checkpoint.mkdir(parents=True)
    site, kube = make_site(tmp_path, "CustomResourceDefinition", "Namespace")
    demo.make_room(site, demo.Screen())
    assert kube.typed == list(demo.REMOVAL)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_cluster_is_used_as_it_is(tmp_path: Path) -> None:
    site, kube = make_site(tmp_path)
    demo.make_room(site, demo.Screen())
    assert kube.typed == []


def test_who_keeps_the_cluster_is_told_how_to_reach_and_how_to_remove_all_of_it() -> None:
    node: Any = None
    kept = Cluster(Path("/k/config"), Path("/b/kubectl"), Path("/b/helm"), node, "the-cluster down")
    steps = demo.list_next_steps(kept)
    assert steps[0] == "export KUBECONFIG=/k/config PATH=/b:$PATH"
    removal = [*demo.REMOVAL, f"rm -r {kept.shared_folder / demo.NAMESPACE}", "the-cluster down"]
    assert steps[-len(removal) :] == removal
    foreign = Cluster(Path("/k/config"), Path("/b/kubectl"), Path("/b/helm"), node)
    assert demo.list_next_steps(foreign) == steps[:-1]


def test_who_does_not_keep_it_is_told_of_files_and_targets_that_exist() -> None:
    said = "\n".join(demo.list_next_steps(None))
    paths = re.findall(r"\S+\.(?:yaml|md)", said)
    assert len(paths) == 2
    assert all((ROOT / path).exists() for path in paths)
    (target,) = re.findall(r"make (\S+)", said)
    assert f"\n{target}: " in (ROOT / "Makefile").read_text("utf-8")
