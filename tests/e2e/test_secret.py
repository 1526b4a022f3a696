"""Who may read pods and their logs does not learn the secret of a stream's Spark."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest
from kube import Kube
from streams import Stream

pytestmark = [pytest.mark.e2e]


@pytest.mark.usefixtures("operator", "app_image")
def test_driver_and_executor_know_each_other_by_a_secret_that_no_pod_shows(
    kube: Kube, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("secret")
    stream.apply(stream.describe("rate.py", executors=(1, 1)))
    # Batches end, so the executor has come in.
    stream.wait_for_condition("Running", timeout_s=240)
    labels = {"app.kubernetes.io/instance": stream.name}
    (secret,) = kube.find_all("v1", "Secret", namespace=stream.namespace, labels=labels)
    values = [base64.b64decode(value).decode() for value in secret["data"].values()]
    pods = kube.pods(stream.namespace)
    (executor,) = stream.executors()
    (container,) = executor["spec"]["containers"]
    (variable,) = [e for e in container["env"] if e["name"] == "_SPARK_AUTH_SECRET"]
    assert variable["valueFrom"]["secretKeyRef"]["name"] == secret["metadata"]["name"]
    names = [pod["metadata"]["name"] for pod in pods]
    shown = json.dumps(pods) + "".join(kube.log(stream.namespace, name) for name in names)
    assert not any(value in shown for value in values)
    assert not any(value in json.dumps(stream.read()) for value in values)
