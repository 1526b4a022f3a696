"""`kubectl bst status` and `explain`: what a real operator's status says, on one screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import supervised
from apiserver import path_of
from loopback import Request, Response
from supervised import POD, SETTINGS, Scene, TargetScene, conditions

from balancedstream.core.money import Price
from balancedstream_operator.api.resource import Manifest
from balancedstream_operator.api.status import Cost, Status, read_status, write_status
from balancedstream_operator.errors import RefusedError
from balancedstream_operator.kubectl.diagnosis import diagnose
from balancedstream_operator.kubectl.screens import show_diagnosis
from balancedstream_operator.report.report import report_deletion

Run = Callable[..., tuple[int, str, str]]


def test_a_stream_that_runs_well_says_nothing_is_wrong(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = make_site()
    site.scene.placement = {0: "1", 1: "2", 2: "1", 3: "2"}
    site.scene.run_pass()
    site.scene.start_driver()
    site.scene.finish_batches(dict.fromkeys(range(4), 1.0))
    site.scene.run_pass()
    site.publish()
    status, output, _ = kubectl_bst(site, "status", "clicks", "-n", "shop")
    assert status == 0
    lines = output.splitlines()
    assert lines[0].startswith("shop/clicks  Running, mode Auto, 2 of 2 executors")
    assert "wrong    nothing" in lines
    assert "to do    nothing" in lines
    assert any(line.startswith("doing    query q, operator 0: no change") for line in lines)


def test_the_price_of_the_installation_reaches_the_status(
    monkeypatch: pytest.MonkeyPatch, make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    monkeypatch.setattr(supervised, "SETTINGS", replace(SETTINGS, price=Price(0.5, "EUR")))
    site = make_site()
    site.scene.run_until_running()
    site.publish()
    _, output, _ = kubectl_bst(site, "status", "clicks", "-n", "shop")
    assert "24.00 EUR a day (" in " ".join(output.split())


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        (48.0, ", 24.00 EUR a day (48.00 EUR less than a fixed size of 6 executors)"),
        (None, ", 24.00 EUR a day"),
    ],
)
def test_a_stream_with_a_price_says_what_it_costs_and_beside_what(
    saved: float | None, said: str
) -> None:
    cost = Cost(spent_per_day=24.0, saved_per_day=saved, max_executors=6, currency="EUR")
    status = write_status(Status(phase="Running", observed_generation=1, cost=cost))
    found = diagnose({"metadata": {"namespace": "shop", "name": "clicks"}, "status": status}, 0.0)
    assert found.state.endswith(said)


def test_missing_metrics_say_what_is_wrong_and_what_to_do(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = make_site()
    site.scene.run_until_running()
    site.scene.measured = "Prometheus at http://prometheus cannot be queried: refused"
    for _ in range(3):
        site.scene.run_pass()
    site.publish()
    _, output, _ = kubectl_bst(site, "-n", "shop", "status")
    assert "wrong    MetricsAvailable is False (Missing), for " in output
    assert "cannot be queried: refused" in output
    assert "Fallback is True (MetricsMissing)" in output
    assert "to do    Check the URL that the message names" in output
    assert "the driver takes over plan 1" in output


def test_a_stream_that_starts_is_not_wrong(make_site: Callable[..., Any]) -> None:
    site = make_site()
    site.scene.run_pass()
    found = diagnose(site.scene.resource, site.scene.now_s)
    assert found.wrong == ()
    assert found.doing == ("the driver's pod does not exist yet",)
    assert found.to_do == ()


def test_a_script_that_crashes_is_wrong_and_its_log_is_named(make_site: Callable[..., Any]) -> None:
    site = make_site()
    site.scene.run_pass()
    site.scene.start_driver()
    site.scene.cluster.objects["Pod", POD]["status"] = {
        "containerStatuses": [
            {"name": "driver", "state": {"terminated": {"exitCode": 1, "message": "no such file"}}}
        ]
    }
    site.scene.run_pass()
    found = diagnose(site.scene.resource, site.scene.now_s + 600.0)
    assert len(found.wrong) == 1
    assert "Running is False (ApplicationFailed), for 10 min: the script ended" in found.wrong[0]
    assert found.to_do == (
        "Read its last words in the message, then kubectl logs clicks-driver-0 --previous.",
    )


def test_a_refused_object_of_a_stream_that_runs_is_wrong(make_site: Callable[..., Any]) -> None:
    site = make_site()
    site.scene.run_until_running()
    site.scene.cluster.refuses = "PodDisruptionBudget"
    site.scene.resource["spec"]["driver"] = {"evictable": False}
    site.scene.run_pass()
    found = diagnose(site.scene.resource, site.scene.now_s)
    (wrong,) = found.wrong
    assert wrong.startswith("Stalled is True (Refused), for ")
    assert found.to_do[0].startswith("Do what the message says")


def test_a_driver_that_nobody_may_look_for_is_wrong() -> None:
    scene = TargetScene()
    scene.run_pass()

    def refuse(namespace: str, selector: str) -> list[Manifest]:
        message = "pods is forbidden"
        raise RefusedError(message)

    scene.cluster.list_pods = refuse  # type: ignore[method-assign]
    done = scene.run_pass()
    assert conditions(done)["Running"] == ("Unknown", "Refused")
    found = diagnose(scene.resource, scene.now_s)
    (wrong,) = found.wrong
    assert wrong.startswith("Stalled is True (Refused), for ")
    assert "pods is forbidden" in wrong
    assert found.to_do[0].startswith("Do what the message says")


def test_a_stream_that_finalizers_hold_says_whom_to_ask() -> None:
    scene = Scene()
    scene.run_until_running()
    made = report_deletion("finalizer a/b holds it", read_status(scene.resource), scene.now_s)
    scene.resource["status"] = write_status(made.status)
    found = diagnose(scene.resource, scene.now_s)
    assert found.to_do == ("If it stays: ask who set the finalizers that the message names.",)
    assert any("finalizer a/b holds it" in said for said in (*found.wrong, *found.doing))


def test_a_stream_without_an_operator_says_so(make_site: Callable[..., Any]) -> None:
    site = make_site()
    found = diagnose(site.scene.resource, 0.0)
    assert found.wrong == ("no operator has looked at this stream yet",)
    assert found.to_do == ("If it stays: kubectl bst doctor clicks.",)
    site.scene.run_pass()
    site.scene.resource["metadata"]["generation"] = 2
    found = diagnose(site.scene.resource, 0.0)
    assert "the operator has not acted on the newest spec yet" in found.wrong


def test_a_proposal_names_the_command_that_approves_it(make_site: Callable[..., Any]) -> None:
    site = make_site(balancing={"mode": "Advise"}, scaling={"mode": "Advise"})
    proposal = site.scene.run_until_running().status["proposal"]
    found = diagnose(site.scene.resource, site.scene.now_s)
    assert found.to_do[-1].endswith(f"kubectl bst approve clicks {proposal['id']}")
    assert "would move" in found.to_do[-1]


def test_long_sentences_go_on_below_their_words(make_site: Callable[..., Any]) -> None:
    site = make_site()
    site.scene.run_pass()
    site.scene.resource["status"]["reason"] = "word " * 40
    screen = show_diagnosis(diagnose(site.scene.resource, 0.0), 60)
    assert all(len(line) <= 60 for line in screen.splitlines())
    assert "\n         word" in screen


def test_all_streams_of_all_namespaces_and_json(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = make_site()
    site.scene.run_until_running()
    site.publish()
    other = {**site.scene.resource, "metadata": {"name": "other", "namespace": "bank", "uid": "2"}}
    site.server.put(path_of("BalancedStream", "other", "bank"), other)
    _, output, _ = kubectl_bst(site, "status", "-A", "-o", "json")
    assert [found["stream"] for found in json.loads(output)] == ["bank/other", "shop/clicks"]
    assert {*json.loads(output)[0]} == {"stream", "state", "wrong", "doing", "to_do"}
    _, output, errors = kubectl_bst(site, "status")
    assert (output.strip(), errors) == ("", "There is no BalancedStream in this namespace.\n")


def test_decisions_are_explained_with_their_effect(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = make_site()
    site.scene.run_until_running()
    site.publish()
    _, output, _ = kubectl_bst(site, "explain", "clicks", "-n", "shop")
    assert "move, plan 1\nwhy      1 move: imbalance 2.00 → 1.00" in output
    assert "effect   not measured yet" in output
    site.scene.finish_batches()
    site.scene.run_pass()
    site.publish()
    _, output, _ = kubectl_bst(site, "explain", "clicks", "-n", "shop")
    assert "effect   imbalance 1.0" in output
    _, output, _ = kubectl_bst(site, "explain", "clicks", "-n", "shop", "-o", "json")
    assert json.loads(output) == site.scene.resource["status"]["decisions"]


def test_nothing_to_explain_is_said(make_site: Callable[..., Any], kubectl_bst: Run) -> None:
    site = make_site()
    site.scene.run_pass()
    site.publish()
    _, output, _ = kubectl_bst(site, "explain", "clicks", "-n", "shop")
    assert "Nothing was moved, scaled or advised yet." in output


@pytest.mark.parametrize("command", ["status", "explain", "approve", "pause", "resume", "doctor"])
def test_a_stream_that_does_not_exist_is_one_sentence(
    make_site: Callable[..., Any], kubectl_bst: Run, command: str
) -> None:
    status, output, errors = kubectl_bst(make_site(), command, "nobody", "-n", "shop")
    assert (status, output) == (2, "")
    assert errors.startswith("error: there is no BalancedStream nobody in namespace shop")


def test_a_context_that_does_not_exist_is_one_sentence(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    status, _, errors = kubectl_bst(make_site(), "status", "--context", "nowhere")
    assert status == 2
    assert errors.startswith("error: there is no cluster to talk to")
    assert "Check KUBECONFIG and --context" in errors


def test_a_server_that_does_not_answer_is_one_sentence(
    make_site: Callable[..., Any], kubectl_bst: Run
) -> None:
    site = make_site()
    site.answer = fail
    status, output, errors = kubectl_bst(site, "status", "-n", "shop")
    assert (status, output) == (2, "")
    assert errors.startswith("error: the API server")
    assert "Traceback" not in errors


def fail(_: Request) -> Response:
    return Response({"kind": "Status", "message": "etcd is gone"}, 500)
