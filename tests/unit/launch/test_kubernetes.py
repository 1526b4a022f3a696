"""A driver learns its plans from the API server and answers there, whatever goes wrong between."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from plan_server import CUT, PlanServer

from balancedstream.core.wire.objects import (
    ANSWER_KEY,
    APPLICATION_KEY,
    PLAN_KEY,
    STOP_KEY,
    STOPPED_KEY,
)
from balancedstream.core.wire.plan import Answer, parse_answer
from balancedstream.core.wire.stopping import Stop, Stopped
from balancedstream.errors import InvalidInputError
from balancedstream.launch import kubernetes as incluster
from balancedstream.launch.kubernetes import (
    ClusterPlanChannel,
    StreamName,
    connect,
    remove_leftover_executors,
)

STREAM = StreamName("shop", "clicks")
CONFIG_MAPS = "/api/v1/namespaces/shop/configmaps"
PODS = "/api/v1/namespaces/shop/pods"
PATIENCE_S = 20.0


def wait_until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def wait_plan(channel: ClusterPlanChannel) -> str:
    """The next plan that comes."""
    plans: list[str] = []

    def came() -> bool:
        plan = channel.take_plan()
        plans.extend([plan] if plan else [])
        return bool(plans)

    wait_until(came)
    return plans[0]


@pytest.fixture
def server() -> Iterator[PlanServer]:
    server = PlanServer()
    yield server
    server.close()


@pytest.fixture
def api(server: PlanServer) -> Iterator[Any]:
    configuration = client.Configuration(host=server.url)
    configuration.retries = False
    api = client.CoreV1Api(client.ApiClient(configuration))
    yield api
    api.api_client.rest_client.pool_manager.clear()


@pytest.fixture
def channel(
    server: PlanServer,
    api: Any,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[ClusterPlanChannel]:
    """Started, with shorter pauses than a real one makes; the parameter holds more arguments."""
    assert incluster.ANSWER_PAUSE_S == 1.0
    monkeypatch.setattr(incluster, "ANSWER_PAUSE_S", 0.2)
    monkeypatch.setattr(incluster, "RETRY_S", (0.01, 0.02))
    channel = ClusterPlanChannel(api, STREAM, **getattr(request, "param", {}))
    channel.start()
    yield channel
    channel.close()
    server.cut_all()
    for thread in channel._threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


# --- the name ---


def test_a_stream_is_named_by_namespace_and_name() -> None:
    assert StreamName.parse("shop/clicks") == STREAM
    assert str(STREAM) == "shop/clicks"


@pytest.mark.parametrize("text", ["", "clicks", "/clicks", "shop/", "/", "shop/clicks/2"])
def test_what_is_no_name_of_a_stream_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^--stream: .*default/clicks") as refusal:
        StreamName.parse(text)
    assert repr(text) in str(refusal.value)


# --- the API server ---


def test_where_no_plan_server_is_known_nothing_is_started_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    absent = str(tmp_path / "absent")
    monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", absent)
    with pytest.raises(InvalidInputError, match=r"^--stream: no Kubernetes API server .*operator"):
        connect()


def test_outside_of_a_pod_the_current_context_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: here, users: [{name: me, user: {}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}],"
        " contexts: [{name: here, context: {cluster: c, user: me}}]}"
    )
    monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
    assert connect().api_client.configuration.host == "http://127.0.0.1:9"


def test_the_executors_of_a_driver_that_was_restarted_are_removed(
    server: PlanServer, api: Any
) -> None:
    server.pods = ["clicks-exec-1", "clicks-exec-2"]
    remove_leftover_executors(api, STREAM)
    assert server.pods == []
    listed, *deleted = server.requests
    assert listed.path == PODS
    selector = "spark-role=executor,balancedstream.io/stream=clicks"
    assert listed.query == {"labelSelector": selector}
    assert [request.method for request in deleted] == ["DELETE", "DELETE"]


@pytest.mark.parametrize("status", [404, 403])
def test_an_executor_that_is_gone_already_is_no_trouble_and_one_that_must_stay_is(
    server: PlanServer, api: Any, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    server.pods = ["clicks-exec-1", "clicks-exec-2"]
    list_pods = api.list_namespaced_pod

    def list_then_fail(*args: Any, **options: Any) -> Any:
        listed = list_pods(*args, **options)
        server.failures.append(status)
        return listed

    monkeypatch.setattr(api, "list_namespaced_pod", list_then_fail)
    if status == 404:
        remove_leftover_executors(api, STREAM)
        assert server.pods == ["clicks-exec-1"]
    else:
        with pytest.raises(client.ApiException) as refusal:
            remove_leftover_executors(api, STREAM)
        assert refusal.value.status == status


# --- plans ---


def test_a_plan_that_is_there_at_the_start_is_taken_once(
    server: PlanServer, api: Any, request: pytest.FixtureRequest
) -> None:
    server.data = {PLAN_KEY: "first"}
    channel: ClusterPlanChannel = request.getfixturevalue("channel")
    assert wait_plan(channel) == "first"
    assert channel.take_plan() is None
    (listed,) = server.lists()
    assert listed.path == CONFIG_MAPS
    assert listed.query == {"fieldSelector": "metadata.name=clicks-plan"}


def test_a_plan_that_comes_later_is_taken_from_a_watch_that_goes_on_from_the_list(
    server: PlanServer, request: pytest.FixtureRequest
) -> None:
    server.version = 42
    channel: ClusterPlanChannel = request.getfixturevalue("channel")
    server.say("ADDED", server.config_map({PLAN_KEY: "first"}))
    assert wait_plan(channel) == "first"
    server.say("MODIFIED", server.config_map({PLAN_KEY: "second"}))
    assert wait_plan(channel) == "second"
    (watch,) = server.watches()
    assert watch.query == {
        "fieldSelector": "metadata.name=clicks-plan",
        "resourceVersion": "42",
        "timeoutSeconds": str(incluster.WATCH_S),
        "watch": "true",
    }


def test_of_plans_that_nobody_took_the_newest_counts(
    server: PlanServer, channel: ClusterPlanChannel
) -> None:
    for plan in ("first", "second", "third"):
        server.say("MODIFIED", server.config_map({PLAN_KEY: plan}))
    wait_until(lambda: channel._plan == "third")
    assert channel.take_plan() == "third"


def test_a_plan_that_is_deleted_or_empty_is_no_plan(
    server: PlanServer, channel: ClusterPlanChannel
) -> None:
    server.say("DELETED", server.config_map({PLAN_KEY: "gone"}))
    server.say("MODIFIED", server.config_map(None))
    server.say("MODIFIED", server.config_map({"other.json": "no plan"}))
    server.say("MODIFIED", server.config_map({PLAN_KEY: "after"}))
    assert wait_plan(channel) == "after"


GONE = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "old"}


@pytest.mark.parametrize("how", ["said in the watch", "as the watch's status"])
def test_after_a_410_the_plan_is_listed_anew(
    server: PlanServer, channel: ClusterPlanChannel, how: str
) -> None:
    wait_until(server.watches)
    server.data, server.version = {PLAN_KEY: "newer"}, 99
    if how == "said in the watch":
        server.say("ERROR", GONE)
    else:
        server.failures.extend([500, 410])
        server.say_bytes(CUT)
    assert wait_plan(channel) == "newer"
    wait_until(lambda: server.watches()[-1].query["resourceVersion"] == "99")


@pytest.mark.parametrize("rest", [b"", b'{"type": "MODIFIED", "obj'])
def test_after_a_cut_connection_the_plan_is_listed_anew(
    server: PlanServer, channel: ClusterPlanChannel, rest: bytes
) -> None:
    wait_until(server.watches)
    server.data = {PLAN_KEY: "meanwhile"}
    if rest:
        server.say_bytes(rest)
    server.say_bytes(CUT)
    assert wait_plan(channel) == "meanwhile"


def test_an_plan_server_that_cannot_be_reached_is_asked_again_and_that_is_logged(
    server: PlanServer, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    server.data = {PLAN_KEY: "first"}
    server.failures.extend([503, 401])
    channel: ClusterPlanChannel = request.getfixturevalue("channel")
    assert wait_plan(channel) == "first"
    assert len(server.lists()) == 3
    said = [record.getMessage() for record in caplog.records if record.name == incluster.__name__]
    assert len(said) == 2
    assert all("cannot be reached, trying again" in text for text in said)
    assert all("\n" not in text for text in said)


# --- applications ---

of_application = pytest.mark.parametrize(
    "channel", [{"application": "spark-2", "scales": False}], indirect=True
)


@of_application
def test_a_plan_for_an_application_that_is_gone_is_left_alone(
    server: PlanServer, channel: ClusterPlanChannel
) -> None:
    for application, plan, taken in (
        ("spark-1", "old", None),
        ("spark-2", "new", "new"),
        ("", "for all", "for all"),
    ):
        server.data = {PLAN_KEY: plan, APPLICATION_KEY: application}
        wait_until(server.watches)
        seen = len(server.watches())
        server.say_bytes(CUT)
        wait_until(server.watches_after(seen))
        assert channel.take_plan() == taken


@of_application
def test_an_answer_says_of_which_application_it_is_and_whether_that_scales(
    server: PlanServer, channel: ClusterPlanChannel
) -> None:
    channel.send_answer(Answer(1))
    wait_until(server.patches)
    data = server.patches()[0].body["data"]
    assert data[APPLICATION_KEY] == "spark-2"
    assert parse_answer(data[ANSWER_KEY]) == Answer(1, scales=False)


# --- answers ---


def test_an_answer_is_patched_into_the_streams_own_config_map(
    server: PlanServer, channel: ClusterPlanChannel
) -> None:
    channel.send_answer(Answer(7, "epoch 7 is older than 8"))
    wait_until(server.patches)
    (patch,) = server.patches()
    assert patch.path == f"{CONFIG_MAPS}/clicks-answer"
    assert [*patch.body] == ["data"]
    answer = parse_answer(patch.body["data"][ANSWER_KEY])
    assert answer == Answer(7, "epoch 7 is older than 8")


def test_between_two_answers_is_a_pause_and_only_the_newest_is_sent(
    server: PlanServer, channel: ClusterPlanChannel
) -> None:
    channel.send_answer(Answer(1))
    wait_until(server.patches)
    for epoch in range(2, 6):
        channel.send_answer(Answer(epoch))
    wait_until(lambda: len(server.patches()) == 2)
    first, second = server.patches()
    assert parse_answer(second.body["data"][ANSWER_KEY]) == Answer(5)
    assert second.at_s - first.at_s >= incluster.ANSWER_PAUSE_S


def test_an_answer_that_was_refused_is_sent_again(
    server: PlanServer, channel: ClusterPlanChannel
) -> None:
    wait_until(server.watches)
    server.failures.append(500)
    channel.send_answer(Answer(3))
    wait_until(lambda: len(server.patches()) == 2)
    refused, sent = server.patches()
    assert refused.body == sent.body
    assert parse_answer(sent.body["data"][ANSWER_KEY]) == Answer(3)


@pytest.mark.parametrize("lost", [{}, {ANSWER_KEY: "{}"}])
def test_an_answer_that_somebody_took_away_is_sent_again_with_the_next_list(
    server: PlanServer, channel: ClusterPlanChannel, lost: dict[str, str]
) -> None:
    channel.send_answer(Answer(3))
    wait_until(lambda: server.patched)
    wait_until(server.watches)
    server.patched = lost
    server.say_bytes(CUT)
    wait_until(lambda: len(server.patches()) == 2)
    assert parse_answer(server.patches()[1].body["data"][ANSWER_KEY]) == Answer(3)


def test_an_answer_that_is_there_is_not_sent_again_and_one_without_a_place_waits_for_it(
    server: PlanServer, channel: ClusterPlanChannel
) -> None:
    channel.send_answer(Answer(3))
    wait_until(lambda: server.patched)
    for kept in (server.patched, None):
        seen = len(server.watches())
        server.patched = kept
        server.say_bytes(CUT)
        wait_until(server.watches_after(seen))
    assert len(server.patches()) == 1


def test_nothing_is_sent_where_there_is_nothing_to_answer(
    server: PlanServer, channel: ClusterPlanChannel
) -> None:
    wait_until(server.watches)
    channel.close()
    assert server.patches() == []


# --- requests to end all queries ---


def test_a_request_to_stop_holds_the_process_from_the_end_of_its_queries_until_it_is_withdrawn(
    server: PlanServer, channel: ClusterPlanChannel
) -> None:
    asked = Stop("a", 16)
    server.data = {PLAN_KEY: "p", STOP_KEY: asked.to_json()}
    server.say_bytes(CUT)
    wait_until(lambda: channel.find_stop() == asked.to_json())
    channel.tell_stopped(Stopped("a"))
    assert not channel.is_held()
    channel.tell_stopped(Stopped("a", checkpoints=("/c",), done=True))
    assert channel.is_held()
    server.data = {PLAN_KEY: "p"}
    server.say_bytes(CUT)
    wait_until(lambda: not channel.find_stop())
    assert not channel.is_held()


def test_how_far_a_stop_is_stands_beside_the_answer(
    server: PlanServer, channel: ClusterPlanChannel
) -> None:
    channel.send_answer(Answer(7))
    wait_until(server.patches)
    stopped = Stopped("a", refused="no")
    channel.tell_stopped(stopped)
    wait_until(lambda: len(server.patches()) == 2)
    data = server.patches()[1].body["data"]
    assert (parse_answer(data[ANSWER_KEY]), data[STOPPED_KEY]) == (Answer(7), stopped.to_json())


def test_a_process_that_is_being_ended_does_not_say_that_its_queries_ended_between_batches(
    server: PlanServer, channel: ClusterPlanChannel
) -> None:
    channel.leave()
    channel.tell_stopped(Stopped("a", checkpoints=("/c",), done=True))
    channel.send_answer(Answer(7))
    wait_until(server.patches)
    assert [*server.patches()[0].body["data"]] == [ANSWER_KEY]


def test_a_driver_that_is_to_start_anew_ends_as_kubernetes_would_end_it(
    channel: ClusterPlanChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _, number: sent.append(number))
    channel.start_anew()
    assert sent == [signal.SIGTERM]
