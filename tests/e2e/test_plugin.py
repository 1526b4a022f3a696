"""`kubectl bst`, as kubectl itself finds and runs it, with a real operator that answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from broker import Broker
from hotkeys import find_keys_of_one_executor
from images import REPOSITORY
from kube import Kube, parse
from monitoring import Prometheus
from producing import ZipfKeys
from streaming import describe_counts, run_and_compare
from streams import Stream
from waiting import stays_true, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.turn]

Type = Callable[..., str]


@pytest.fixture
def kubectl_bst(kube: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Types `kubectl bst ARGUMENTS`, with the plugin of the working tree on the PATH."""
    plugin = tmp_path / "kubectl-bst"
    plugin.write_text(
        f"#!/bin/sh\nPYTHONPATH={REPOSITORY}/runtime:{REPOSITORY}/operator "
        f'exec {sys.executable} -m balancedstream_operator.kubectl.main "$@"\n'
    )
    plugin.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "1000")

    def run(*arguments: str, check: bool = True) -> str:
        return kube.kubectl("bst", *arguments, check=check)

    return run


@pytest.mark.usefixtures("operator", "prometheus")
def test_before_the_first_stream_prometheus_is_found_through_the_api_server(
    kubectl_bst: Type,
) -> None:
    said = kubectl_bst("doctor", "-n", "default")
    assert "answers, and scrapes" in " ".join(said.split())
    assert "problem" not in said


@pytest.mark.usefixtures("operator", "app_image")
def test_a_person_sees_approves_pauses_and_resumes_a_skewed_stream(
    kubectl_bst: Type,
    prometheus: Prometheus,
    broker: Broker,
    topic: str,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("plugin")
    manifest = describe_counts(
        stream, broker, topic, executors=(2, 2), balancing={"mode": "Advise"}
    )
    keys = ZipfKeys(count=100, exponent=0.5, seed=3)
    here = ("-n", stream.namespace)
    label = stream.label

    def kinds() -> list[str]:
        return [decision["kind"] for decision in stream.status().get("decisions", [])]

    def is_carried_out() -> bool:
        # The load changes, and so may the proposal between the two.
        said = kubectl_bst("approve", stream.name, *here, check=False)
        return "carries it out" in said

    def is_even() -> bool:
        if stream.condition("Balanced").status == "True":
            return True
        # The first plan follows the load of a few batches, and may leave some for a second one.
        is_carried_out()
        return False

    with run_and_compare(stream, manifest, broker, topic, keys, rate=160):
        stream.wait_for_executors(2)
        stream.wait_for_batches(3)
        keys.favor(find_keys_of_one_executor(prometheus, label, stream), 20)
        wait_until("a proposal", lambda: stream.status().get("proposal"), timeout_s=120)
        assert "kubectl bst approve plugin" in kubectl_bst("status", stream.name, *here)
        assert "move" not in kinds()

        said = kubectl_bst("approve", stream.name, "0-abcdef", *here, check=False)
        assert "approval of 0-abcdef is refused: it is out of date" in said
        wait_until("an approval", is_carried_out, timeout_s=120, interval_s=5.0)
        assert "balancedstream.io/approve" not in stream.read()["metadata"].get("annotations", {})
        assert stream.status()["approval"]["result"] == "CarriedOut"
        assert kinds().count("move") == 1
        wait_until("an even load", is_even, timeout_s=180, interval_s=5.0)
        explained = kubectl_bst("explain", stream.name, *here)
        assert "was approved" in explained
        assert {"Approved", "ApprovalRefused", "Moving"} <= {*stream.event_reasons()}

        moves = kinds().count("move")
        said = kubectl_bst("pause", stream.name, "--reason", "a test", *here)
        assert "somebody paused this stream (a test)" in said
        stream.change({"balancing": {"mode": "Auto", "actAbove": 1.0}})
        stays_true("no further move", lambda: kinds().count("move") == moves, for_s=15)
        assert stream.status()["mode"] == "Paused"
        stream.wait_for_condition("Ready")
        assert kubectl_bst("resume", stream.name, *here).strip().endswith("resumed")
        assert stream.condition("Paused").status == "False"

        findings = parse(f'{{"found": {kubectl_bst("doctor", stream.name, *here, "-o", "json")}}}')
        levels = {finding["sentence"]: finding["level"] for finding in findings["found"]}
        assert {*levels.values()} == {"ok"}, levels
        assert any("runs on Spark 4." in sentence for sentence in levels)
        shown = parse(f'{{"found": {kubectl_bst("status", "-A", "-o", "json")}}}')["found"]
        assert f"{stream.namespace}/{stream.name}" in [one["stream"] for one in shown]
