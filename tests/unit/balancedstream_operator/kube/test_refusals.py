"""What the status advises fits the cause of a refusal, and promises only what is true."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from kubernetes.client import ApiException
from supervised import KeepingCluster, Scene, Shown, conditions

from balancedstream.core.printing import printable
from balancedstream_operator.api.resource import Manifest
from balancedstream_operator.errors import ClusterError
from balancedstream_operator.kube.client import translate_errors

FORBIDDEN = 'services "clicks-driver" is forbidden: '
CORRECT = "Correct the field of the spec"


@dataclass(frozen=True)
class Cause:
    """A refusal as Kubernetes 1.34 words it.

    Attributes:
        status: of HTTP.
        words: the `message` of the answer.
        advice: what the status says then.
        waits: whether the stream gets on by itself.
    """

    status: int
    words: str
    advice: str
    waits: bool = False


CAUSES = {
    "namespace": Cause(
        403,
        FORBIDDEN + "unable to create new content in namespace shop because it is being terminated",
        "The namespace is being deleted",
        waits=True,
    ),
    "namespace gone": Cause(
        404, 'namespaces "shop" not found', "The namespace is being deleted", waits=True
    ),
    "rights": Cause(
        403,
        FORBIDDEN + 'User "system:serviceaccount:ops:balancedstream" cannot patch resource '
        '"services" in API group "" in the namespace "shop"',
        "The operator lacks this right",
    ),
    "rights to grant": Cause(
        403,
        'roles.rbac.authorization.k8s.io "clicks-driver" is forbidden: user '
        '"system:serviceaccount:ops:balancedstream" (groups=["system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods"], Verbs:["create"]}',
        "The operator may grant drivers only what it may do itself",
    ),
    "quota": Cause(
        403,
        FORBIDDEN + "exceeded quota: few, requested: services=1, used: services=2, limited: 2",
        "Raise the quota",
    ),
    "quota that wants limits": Cause(
        403,
        FORBIDDEN + "failed quota: compute: must specify limits.cpu for: driver",
        "Let the spec say for all containers",
    ),
    "limit range": Cause(
        403,
        'pods "a" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi',
        "Let the spec ask for what the LimitRange",
    ),
    "pod security": Cause(
        403,
        'pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
        "Let the pod templates satisfy the Pod Security Standard",
    ),
    "webhook": Cause(
        403,
        'admission webhook "labels.example.com" denied the request: Service needs the label team',
        "A policy of the cluster refuses it",
    ),
    "webhook with a status of its own": Cause(
        400,
        'admission webhook "validate.kyverno.svc-fail" denied the request: \n\n'
        "resource Service/shop/clicks-driver was blocked due to the following policies",
        "A policy of the cluster refuses it",
    ),
    "policy": Cause(
        422,
        "services \"clicks-driver\" is forbidden: ValidatingAdmissionPolicy 'labels' with binding "
        "'all' denied request: failed expression: has(object.metadata.labels.team)",
        "A policy of the cluster refuses it",
    ),
    "invalid": Cause(
        422,
        'StatefulSet.apps "clicks-driver" is invalid: spec.template.spec.containers[0].image: '
        "Required value",
        CORRECT,
    ),
    "no such field": Cause(
        500,
        "failed to create typed patch object (shop/clicks-driver; apps/v1, Kind=StatefulSet): "
        ".spec.template.spec.no: field not declared in schema",
        CORRECT,
    ),
    "too large": Cause(
        422,
        'ConfigMap "clicks-configuration" is invalid: []: Too long: may not be more than 1048576 '
        "bytes",
        "Make what is large in the spec smaller",
    ),
    "request too large": Cause(413, "Request entity too large: limit is 3145728", "Make what is"),
    "token": Cause(401, "Unauthorized", "The API server does not know the token", waits=True),
    "nobody knows": Cause(405, "the server does not allow this method on the resource", ""),
}
LATER = {
    "conflict": Cause(409, "the object has been modified", ""),
    "webhook down": Cause(
        500,
        'Internal error occurred: failed calling webhook "labels.example.com": failed to call '
        'webhook: Post "https://labels.ops.svc:443/?timeout=10s": no endpoints available',
        "A webhook of the cluster does not answer",
    ),
    "quota that many count on": Cause(
        409,
        'Operation cannot be fulfilled on resourcequotas "few": the object has been modified',
        "",
    ),
    "overloaded": Cause(429, "too many requests", ""),
    "store": Cause(500, "etcdserver: request timed out", ""),
    "gateway": Cause(503, "upstream connect error", ""),
}


class _Refusing(KeepingCluster):
    """Refuses children of a kind as the API server words it."""

    def __init__(self, kind: str, cause: Cause) -> None:
        super().__init__()
        self.kind, self.cause = kind, cause

    def apply(self, manifest: Manifest, uid: str = "") -> str:
        if manifest["kind"] == self.kind:
            with translate_errors(f"apply {self.kind} {manifest['metadata']['name']}"):
                body = json.dumps({"message": self.cause.words})
                error = ApiException(status=self.cause.status, reason="Because")
                error.body = body
                raise error
        return super().apply(manifest, uid)


def refuse(scene: Scene, cause: Cause) -> Shown:
    """A pass in which a child is refused that was not before."""
    assert isinstance(scene.cluster, _Refusing)
    scene.cluster.kind, scene.cluster.cause = "Service", cause
    scene.now_s += 400.0
    return scene.run_pass()


@pytest.mark.parametrize("runs", [False, True], ids=["nothing ran before", "the driver runs"])
@pytest.mark.parametrize("name", CAUSES)
def test_a_refusal_has_the_servers_words_the_advice_of_its_cause_and_no_false_promise(
    name: str, runs: bool
) -> None:
    cause = CAUSES[name]
    scene = Scene(cluster=_Refusing("" if runs else "Service", cause))
    if runs:
        scene.run_until_running()
    done = refuse(scene, cause)
    said = {c["type"]: c["message"] for c in done.status["conditions"]}["Stalled"]
    assert printable(cause.words[:200]) in said
    assert cause.advice in said
    assert (CORRECT in said) == (cause.advice == CORRECT)
    assert ("The driver that runs stays as it is" in said) == runs
    assert "keeps running" not in said
    state = conditions(done)
    assert state["Stalled"] == (str(not cause.waits), "Refused")
    assert state["Reconciling"] == (str(cause.waits), "Refused")


@pytest.mark.parametrize("name", LATER)
def test_what_may_succeed_later_is_a_failed_pass_and_no_refusal(name: str) -> None:
    cause = LATER[name]
    scene = Scene(cluster=_Refusing("Service", cause))
    done: Shown | None = None
    for _ in range(3):
        try:
            done = scene.run_pass()
        except ClusterError:
            continue
    assert done is not None
    assert conditions(done)["PassFailed"] == ("True", "UnreachableError")
    said = {c["type"]: c["message"] for c in done.status["conditions"]}["PassFailed"]
    assert printable(cause.words[:200]) in said
    assert cause.advice in said
    assert "keeps running" not in said
