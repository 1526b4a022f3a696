"""`kubectl bst approve`, `pause` and `resume`, with an operator that answers, or with none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from apiserver import path_of

from balancedstream_operator.api.annotations import APPROVE_ANNOTATION, PAUSED_ANNOTATION

Run = Callable[..., tuple[int, str, str]]
STREAM = path_of("BalancedStream", "clicks")


def running(make_site: Callable[..., Any], **spec: Any) -> Any:
    site = make_site(**spec)
    site.scene.run_until_running()
    site.publish()
    return site


def advised(make_site: Callable[..., Any]) -> Any:
    return running(make_site, balancing={"mode": "Advise"}, scaling={"mode": "Advise"})


def read_annotations(site: Any) -> dict[str, str]:
    found: dict[str, str] = site.server.objects[STREAM]["metadata"].get("annotations") or {}
    return found


@pytest.mark.parametrize("named", [True, False])
def test_an_approval_is_answered_with_the_plan_that_carries_it_out(
    make_site: Callable[..., Any], kubectl_bst: Run, named: bool
) -> None:
    site = advised(make_site)
    proposal = site.scene.resource["status"]["proposal"]["id"]
    arguments = (proposal,) if named else ()
    status, output, _ = kubectl_bst(site, "approve", "clicks", *arguments, "-n", "shop")
    assert status == 0
    assert output == f"proposal {proposal} was approved; plan 1 carries it out\n"
    assert site.scene.cluster.plan() is not None
    assert read_annotations(site) == {}


def test_a_refused_approval_says_why_and_fails(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = advised(make_site)
    status, output, _ = kubectl_bst(site, "approve", "clicks", "0-abcdef", "-n", "shop")
    assert status == 1
    assert output.startswith(
        "approval of 0-abcdef is refused: it is out of date; the present proposal is"
    )
    arguments = ("approve", "clicks", "0-abcdef", "-n", "shop", "-o", "json")
    status, output, _ = kubectl_bst(site, *arguments)
    assert (status, json.loads(output)["result"]) == (1, "Refused")


def test_an_approval_that_was_carried_out_before_is_answered_as_then(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = advised(make_site)
    proposal = site.scene.resource["status"]["proposal"]["id"]
    for _ in range(2):
        status, output, _ = kubectl_bst(site, "approve", "clicks", proposal, "-n", "shop")
        assert (status, output[:8]) == (0, "proposal")
    assert site.scene.cluster.plan().epoch == 1


def test_where_nothing_is_proposed_there_is_nothing_to_approve(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = running(make_site)
    status, _, errors = kubectl_bst(site, "approve", "clicks", "-n", "shop")
    assert status == 2
    assert "nothing is proposed for clicks (its mode is Auto)" in errors
    assert read_annotations(site) == {}


def test_a_stream_is_paused_with_a_reason_and_resumed(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = running(make_site)
    arguments = ("pause", "clicks", "-n", "shop", "--reason", "load test")
    status, output, _ = kubectl_bst(site, *arguments)
    assert status == 0
    assert output.startswith("shop/clicks: somebody paused this stream (load test): its pods run")
    assert read_annotations(site) == {PAUSED_ANNOTATION: "load test"}
    _, output, _ = kubectl_bst(site, "status", "clicks", "-n", "shop")
    assert "mode Paused" in output
    assert "to do    Resume it: kubectl bst resume clicks." in output
    status, output, _ = kubectl_bst(site, "resume", "clicks", "-n", "shop", "-o", "json")
    assert (status, json.loads(output)["paused"]) == (0, False)
    assert read_annotations(site) == {}


@pytest.mark.parametrize("reason", ["True", "a\tb", "a\u200db", "why " * 300])
def test_a_stream_is_paused_with_whatever_words(
    make_site: Callable[..., Any], kubectl_bst: Run, reason: str
) -> None:
    site = running(make_site)
    status, output, _ = kubectl_bst(site, "pause", "clicks", "-n", "shop", "--reason", reason)
    assert status == 0
    assert output.startswith("shop/clicks: somebody paused this stream")


@pytest.mark.parametrize("reason", ["", " ", "false"])
def test_what_would_not_pause_a_stream_is_no_reason(
    make_site: Callable[..., Any], kubectl_bst: Run, reason: str
) -> None:
    site = running(make_site)
    status, output, errors = kubectl_bst(site, "pause", "clicks", "-n", "shop", "--reason", reason)
    assert (status, output) == (2, "")
    assert errors.startswith("error: --reason: ")
    assert read_annotations(site) == {}


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (("approve", "clicks"), APPROVE_ANNOTATION),
        (("pause", "clicks"), PAUSED_ANNOTATION),
    ],
)
def test_without_an_operator_the_wait_ends_and_the_annotation_stays(
    make_site: Callable[..., Any], kubectl_bst: Run, arguments: tuple[str, ...], left: str
) -> None:
    site = advised(make_site)
    site.operated = False
    status, output, errors = kubectl_bst(site, *arguments, "-n", "shop", "--timeout", "0")
    assert (status, output) == (2, "")
    assert "has not answered" in errors
    assert "See kubectl bst doctor clicks" in errors
    assert left in read_annotations(site)


def test_somebody_who_may_not_change_streams_is_told_so(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = advised(make_site)
    site.server.refusals[STREAM] = 403, "forbidden: you cannot patch"
    status, _, errors = kubectl_bst(site, "pause", "clicks", "-n", "shop")
    assert status == 2
    assert errors == "error: the API server did not annotate clicks: forbidden: you cannot patch\n"
