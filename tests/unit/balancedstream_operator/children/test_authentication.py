"""A stream's driver and executors know each other by a secret that no pod shows."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from manifests import STREAM, child, executor_pod, make_spec, template
from supervised import Scene

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.children.authentication import fill_secret
from balancedstream_operator.children.configuration import build_spark_conf
from balancedstream_operator.children.manifests import build_children

NAME = "clicks-authentication-uid-1"


def submitted(**changes: Any) -> dict[str, str]:
    """The settings on the command line of a driver."""
    env = {e["name"]: e.get("value") for e in template(**changes)["spec"]["containers"][0]["env"]}
    words = env["PYSPARK_SUBMIT_ARGS"].split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def kept(scene: Scene) -> dict[str, Any]:
    """The Secrets of the cluster, by name."""
    return {name: o for (kind, name), o in scene.cluster.objects.items() if kind == "Secret"}


def test_the_driver_reads_a_file_and_executors_are_given_the_key_that_spark_makes_of_it() -> None:
    conf, pod = submitted(), template()["spec"]
    (volume,) = [v for v in pod["volumes"] if "secret" in v]
    assert volume["secret"] == {"secretName": NAME}
    (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == volume["name"]]
    assert mount["readOnly"]
    file = conf["spark.authenticate.secret.driver.file"].removeprefix(f"{mount['mountPath']}/")
    name, key = conf["spark.kubernetes.executor.secretKeyRef._SPARK_AUTH_SECRET"].split(":")
    assert name == NAME
    content = fill_secret(b"random")
    assert content.keys() == {file, key}
    assert content[key] == base64.b64encode(content[file].encode()).decode()
    # Without it Spark writes the secret into the pods of executors.
    assert conf["spark.authenticate.secret.executor.file"]


def test_a_driver_that_was_made_without_the_secret_restarts_without_it() -> None:
    shared = [build_spark_conf(STREAM, make_spec(), 24), executor_pod()]
    assert "secret" not in json.dumps(shared).lower(), "both outlive the driver's pod"


def test_settings_of_a_users_own_secret_are_left_alone() -> None:
    own = {"spark.authenticate.secret.file": "/own"}
    assert "Secret" not in {c["kind"] for c in build_children(STREAM, make_spec(sparkConf=own), 24)}
    assert not any("authenticate" in name for name in submitted(sparkConf=own))
    assert not [v for v in template(sparkConf=own)["spec"]["volumes"] if "secret" in v]


def test_a_secret_goes_with_its_stream_and_is_not_taken_for_that_of_the_next_one() -> None:
    secret = child("Secret")
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (secret["metadata"]["name"], owner["uid"]) == (NAME, "uid-1")
    assert secret["immutable"] is True
    again = build_children(Stream("shop", "clicks", "uid-2"), make_spec(), 24)
    (other,) = [c["metadata"]["name"] for c in again if c["kind"] == "Secret"]
    assert other != NAME


def test_the_secret_is_drawn_once_and_kept_while_the_stream_changes_and_operators_restart() -> None:
    scene = Scene()
    scene.run_until_running()
    first = kept(scene)[NAME]["stringData"]
    assert len(first["secret"]) == 64
    scene.resource["spec"]["image"] = "clicks:2"
    scene.passes = scene.make_passes()
    scene.run_pass()
    assert kept(scene)[NAME]["stringData"] == first
    other = Scene()
    other.run_pass()
    assert kept(other)[NAME]["stringData"] != first


def test_nothing_else_that_the_operator_writes_has_the_secret() -> None:
    scene = Scene()
    done = scene.run_until_running()
    content = kept(scene)[NAME]["stringData"]
    others = [o for (kind, _), o in scene.cluster.objects.items() if kind != "Secret"]
    text = json.dumps([others, done.status, [e.message for e in done.events]], default=str)
    assert not [value for value in content.values() if value in text]


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_switching_authentication_on_or_off_needs_no_other_settings(enabled: str) -> None:
    own = {"spark.authenticate": enabled}
    assert build_spark_conf(STREAM, make_spec(sparkConf=own), 24)["spark.authenticate"] == enabled
    assert submitted(sparkConf=own) == submitted()
