"""Objects are read and written as the API server wants it, and its refusals are told apart."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver import ApiServer, path_of, write_kubeconfig
from kubernetes.config import kube_config
from loopback import serve

from balancedstream_operator.api.resource import API_VERSION, KIND, Stream
from balancedstream_operator.errors import ClusterError, RefusedError, UnreachableError
from balancedstream_operator.kube.client import (
    FIELD_MANAGER,
    PLAN_MANAGER,
    TIMEOUT_S,
    KubernetesCluster,
    limit_time,
)

PLAN = path_of("ConfigMap", "clicks-plan")
POD = path_of("Pod", "clicks-driver-0")
STREAM = path_of("BalancedStream", "clicks")
CLICKS = Stream("shop", "clicks", "uid-1")


def config_map(**data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "clicks-plan", "namespace": "shop"},
        "data": data,
    }


def stream() -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "clicks", "namespace": "shop"},
        "status": {"phase": "Pending", "executors": 0},
    }


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], KubernetesCluster]:
    """Returns a function that connects to the API server at a URL."""

    def to(url: str) -> KubernetesCluster:
        path = tmp_path / "kubeconfig"
        path.write_text(write_kubeconfig(url), "utf-8")
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        # The client keeps what it discovered in the folder for temporary files.
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        return KubernetesCluster()

    return to


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
def cluster(
    server: ApiServer, connect: Callable[[str], KubernetesCluster]
) -> Iterator[KubernetesCluster]:
    with serve(server.answer) as url:
        yield connect(url)


def test_an_object_is_read_and_one_that_does_not_exist_is_none(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    server.put(PLAN, config_map(plan="{}"))
    found = cluster.get("v1", "ConfigMap", "shop", "clicks-plan")
    assert found is not None
    assert found["data"] == {"plan": "{}"}
    assert cluster.get("v1", "ConfigMap", "shop", "clicks-answer") is None


def test_pods_are_listed_by_their_labels(server: ApiServer, cluster: KubernetesCluster) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "clicks-driver-0"}}
    server.put(POD, pod)
    assert cluster.list_pods("shop", "a=b") == [pod]
    assert server.requests[-1].query["labelSelector"] == "a=b"
    assert cluster.list_pods("", "a=b") == [pod]
    assert server.requests[-1].path == "/api/v1/pods"


def test_a_manifest_is_applied_by_the_server_and_conflicts_are_won(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    cluster.apply(config_map(a="1"))
    request = server.requests[-1]
    assert (request.method, request.path) == ("PATCH", PLAN)
    assert request.content_type == "application/apply-patch+yaml"
    assert request.query["fieldManager"] == FIELD_MANAGER
    assert request.query["force"].lower() == "true"
    assert yaml.safe_load(request.body) == config_map(a="1")
    assert server.objects[PLAN]["data"] == {"a": "1"}


def test_an_object_that_was_made_anew_or_is_gone_is_left_alone(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    uid = cluster.apply(config_map(a="1"))
    assert cluster.apply(config_map(a="2"), uid) == uid == server.objects[PLAN]["metadata"]["uid"]
    assert server.objects[PLAN]["data"] == {"a": "2"}
    theirs = {**config_map(a="theirs"), "metadata": {"name": "clicks-plan", "uid": "theirs"}}
    server.put(PLAN, theirs)
    assert cluster.apply(config_map(a="3"), uid) == ""
    assert server.objects[PLAN] == theirs
    server.remove(PLAN)
    assert cluster.apply(config_map(a="3"), uid) == ""
    assert PLAN not in server.objects


def test_any_character_reaches_the_server_which_reads_yaml(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    cluster.apply(config_map(mood="\U0001f600 \x7f\x85\x9e\u2028\ufeff"))
    assert "\\ud83d" not in server.requests[-1].body
    assert server.objects[PLAN]["data"]["mood"] == "\U0001f600 \x7f\x85\x9e\u2028\ufeff"


def test_the_text_of_a_plan_belongs_to_a_field_manager_of_its_own(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    cluster.apply_plan(config_map(plan="{}"))
    assert server.requests[-1].query["fieldManager"] == PLAN_MANAGER != FIELD_MANAGER


def test_an_account_is_asked_about_by_all_that_the_api_server_knows_it_by(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    assert cluster.may("shop", "spark", "patch", "clicks-answer")
    request = server.requests[-1]
    assert request.path == "/apis/authorization.k8s.io/v1/namespaces/shop/localsubjectaccessreviews"
    asked = json.loads(request.body)["spec"]
    assert asked["user"] == "system:serviceaccount:shop:spark"
    assert "system:serviceaccounts:shop" in asked["groups"]
    assert asked["resourceAttributes"] == {
        "namespace": "shop",
        "verb": "patch",
        "version": "v1",
        "resource": "configmaps",
        "name": "clicks-answer",
    }
    server.forbidden.add("LocalSubjectAccessReview patch configmaps")
    assert not cluster.may("shop", "spark", "patch", "clicks-answer")
    assert cluster.may("shop", "spark", "get", "clicks-answer")


def test_a_pod_is_tried_in_a_dry_run_and_a_refusal_has_the_servers_own_words(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    pods = POD.rpartition("/")[0]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "e", "namespace": "shop"}}
    cluster.try_pod(pod)
    request = server.requests[-1]
    assert (request.method, request.path) == ("POST", pods)
    assert request.query["dryRun"] == "All"
    assert json.loads(request.body) == pod
    assert server.objects == {}
    said = "exceeded quota: few, requested: pods=1, used: pods=4, limited: pods=4"
    server.refusals[pods] = 403, f'pods "e" is forbidden: {said}'
    with pytest.raises(ClusterError, match=said):
        cluster.try_pod(pod)


def test_a_secret_is_made_once_and_never_read_or_written_again(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    metadata = {"name": "clicks", "namespace": "shop"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    for text in ("first", "second"):
        cluster.create_secret(secret | {"stringData": {"secret": text}})
    assert server.objects[path_of("Secret", "clicks")]["stringData"] == {"secret": "first"}
    asked = [r.method for r in server.requests if "/secrets" in r.path]
    assert asked == ["POST", "POST"]


def test_a_secret_that_a_quota_conflicts_with_is_not_taken_for_one_that_is_there(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    path = path_of("Secret", "clicks")
    server.refusals[path.rpartition("/")[0]] = 409, "the quota has been modified"
    secret = {"metadata": {"name": "clicks", "namespace": "shop"}}
    with pytest.raises(UnreachableError, match="did not make Secret clicks: the quota"):
        cluster.create_secret(secret)


def test_a_pod_is_deleted_and_one_that_is_gone_is_no_error(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    server.put(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "clicks-driver-0"}})
    cluster.delete_pod("shop", "clicks-driver-0", "uid-7")
    assert server.objects == {}
    cluster.delete_pod("shop", "clicks-driver-0", "uid-7")
    deletions = [r for r in server.requests if r.method == "DELETE"]
    assert [r.path for r in deletions] == [POD, POD]
    assert not any("grace" in name for r in deletions for name in r.query), "in its own time"
    bodies = [json.loads(r.body) for r in deletions]
    assert bodies == [{"preconditions": {"uid": "uid-7"}}] * 2, "and no other pod of that name"


def test_a_status_is_merged_and_null_removes_a_field(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    server.put(STREAM, stream())
    cluster.write_status(CLICKS, {"phase": "Running", "executors": None})
    assert server.objects[STREAM]["status"] == {"phase": "Running"}
    request = server.requests[-1]
    assert request.path == f"{STREAM}/status"
    assert json.loads(request.body)["status"] == {"phase": "Running", "executors": None}
    assert json.loads(request.body)["metadata"]["uid"] == "uid-1", "and of no other stream"


def test_the_status_of_a_stream_that_is_gone_is_no_error(cluster: KubernetesCluster) -> None:
    cluster.write_status(CLICKS, {"phase": "Running"})


def annotate(server: ApiServer, value: str, uid: str = "uid-1") -> None:
    metadata: dict[str, Any] = {"name": "clicks", "namespace": "shop", "uid": uid}
    metadata["annotations"] = {"balancedstream.io/approve": value, "other": "stays"}
    server.put(STREAM, stream() | {"metadata": metadata})


def test_an_annotation_is_set_beside_others_and_not_on_another_object_of_the_name(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    annotate(server, "7-abc")
    seen = copy.deepcopy(server.objects[STREAM])
    cluster.annotate(seen, "woken", "now")
    annotations = server.objects[STREAM]["metadata"]["annotations"]
    assert annotations == seen["metadata"]["annotations"] | {"woken": "now"}
    seen["metadata"]["uid"] = "uid-0"
    with pytest.raises(ClusterError, match="did not annotate BalancedStream clicks"):
        cluster.annotate(seen, "woken", "later")
    assert server.objects[STREAM]["metadata"]["annotations"]["woken"] == "now"
    del server.objects[STREAM]
    cluster.annotate(seen, "woken", "later")


@pytest.mark.parametrize(
    ("value", "uid", "taken"),
    [
        pytest.param("7-abc", "uid-1", True, id="the value that was seen"),
        pytest.param("8-abc", "uid-1", False, id="another value by now"),
        pytest.param("7-abc", "uid-2", False, id="another stream by now"),
    ],
)
def test_an_annotation_is_taken_away_if_it_is_still_the_one_that_was_seen(
    server: ApiServer, cluster: KubernetesCluster, value: str, uid: str, taken: bool
) -> None:
    annotate(server, value, uid)
    assert cluster.take_annotation(CLICKS, "balancedstream.io/approve", "7-abc") is taken
    left = {"other": "stays"} | ({} if taken else {"balancedstream.io/approve": value})
    assert server.objects[STREAM]["metadata"]["annotations"] == left


def test_an_annotation_that_is_gone_or_of_a_stream_that_is_gone_is_not_taken(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    assert not cluster.take_annotation(CLICKS, "balancedstream.io/approve", "7-abc")
    annotate(server, "7-abc")
    assert cluster.take_annotation(CLICKS, "balancedstream.io/approve", "7-abc")
    assert not cluster.take_annotation(CLICKS, "balancedstream.io/approve", "7-abc")


@pytest.mark.parametrize("status", [403, 500])
def test_an_annotation_that_must_not_or_cannot_be_taken_away_is_an_error(
    server: ApiServer, cluster: KubernetesCluster, status: int
) -> None:
    annotate(server, "7-abc")
    server.refusals[STREAM] = status, "no"
    with pytest.raises(ClusterError, match=r"did not remove annotation balancedstream\.io/approve"):
        cluster.take_annotation(CLICKS, "balancedstream.io/approve", "7-abc")


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        pytest.param(400, True, id="bad request"),
        pytest.param(403, True, id="forbidden"),
        pytest.param(422, True, id="invalid"),
        pytest.param(408, False, id="timeout"),
        pytest.param(409, False, id="conflict"),
        pytest.param(429, False, id="too many requests"),
        pytest.param(500, False, id="the server's own error"),
        pytest.param(503, False, id="unavailable"),
    ],
)
def test_what_is_refused_for_good_is_told_from_what_may_be_tried_again(
    server: ApiServer, cluster: KubernetesCluster, status: int, refused: bool
) -> None:
    server.refusals[PLAN] = status, "spec.x: must be greater than 0"
    with pytest.raises(ClusterError) as raised:
        cluster.apply(config_map())
    assert isinstance(raised.value, RefusedError) is refused
    assert isinstance(raised.value, UnreachableError) is not refused
    assert str(raised.value) == (
        "the API server did not apply ConfigMap clicks-plan: spec.x: must be greater than 0"
    )


def test_a_field_that_a_kind_has_not_is_refused_for_good_although_the_server_calls_it_its_own_error(
    server: ApiServer, cluster: KubernetesCluster
) -> None:
    said = (
        "failed to create typed patch object (shop/clicks-plan; /v1, Kind=ConfigMap): .mood: field "
        "not declared in schema"
    )
    server.refusals[PLAN] = 500, said
    with pytest.raises(RefusedError, match="mood: field not declared"):
        cluster.apply(config_map())


def test_the_server_says_how_long_to_wait(server: ApiServer, cluster: KubernetesCluster) -> None:
    server.refusals[PLAN] = 429, "too many requests"
    server.retry_after = "7"
    with pytest.raises(UnreachableError) as raised:
        cluster.apply(config_map())
    assert raised.value.retry_after_s == 7.0
    server.retry_after = "Wed, 21 Oct 2026 07:28:00 GMT"
    with pytest.raises(UnreachableError) as raised:
        cluster.apply(config_map())
    assert raised.value.retry_after_s == 0.0


def test_a_server_that_cannot_be_reached_is_no_refusal(
    connect: Callable[[str], KubernetesCluster], server: ApiServer
) -> None:
    with serve(server.answer) as url:
        cluster = connect(url)
        assert cluster.get("v1", "ConfigMap", "shop", "clicks-plan") is None
    with pytest.raises(UnreachableError, match="cannot be reached to return ConfigMap clicks-plan"):
        cluster.get("v1", "ConfigMap", "shop", "clicks-plan")


def test_each_kind_is_discovered_once(server: ApiServer, cluster: KubernetesCluster) -> None:
    for _ in range(3):
        cluster.get("apps/v1", "StatefulSet", "shop", "clicks-driver")
    assert [r.path for r in server.requests].count("/apis/apps/v1") == 1


def test_no_request_waits_for_ever() -> None:
    asked: list[Any] = []

    class Rest:
        def request(self, *given: Any, _request_timeout: Any = None) -> None:
            asked.append(_request_timeout)

    rest: Any = Rest()
    limit_time(rest)
    rest.request("GET", "/apis")
    rest.request("GET", "/apis", _request_timeout=3)
    assert asked == [TIMEOUT_S, 3]
