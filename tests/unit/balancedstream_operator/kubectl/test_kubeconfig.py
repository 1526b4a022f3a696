"""The plugin talks to the cluster that kubectl would talk to, or says in one sentence why not."""

from __future__ import annotations

import json
import os
import ssl
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver import ApiServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes.config import incluster_config
from loopback import serve

from balancedstream_operator.errors import NoClusterError
from balancedstream_operator.kubectl import connection as connections
from balancedstream_operator.kubectl.connection import Connection
from balancedstream_operator.kubectl.kubeconfig import Choice, choose
from balancedstream_operator.kubectl.main import main

Content = dict[str, Any]


def describe(
    *, current: str = "", user: Content | None = None, name: str = "a", **cluster: Any
) -> Content:
    """A kubeconfig with one context, cluster and user, all of one name."""
    content: Content = {
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}
        ],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}", **cluster}}],
        "users": [{"name": name, "user": user or {}}],
    }
    return {**content, **({"current-context": current} if current else {})}


def write(path: Path, content: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content), "utf-8")
    return str(path)


def choose_from(*paths: str, **choice: Any) -> Any:
    return choose(Choice(**choice), {"KUBECONFIG": os.pathsep.join(paths)})


def test_what_is_named_first_holds_and_files_that_are_missing_do_not_count(tmp_path: Path) -> None:
    first = write(tmp_path / "1", describe(name="a"))
    second = write(tmp_path / "2", describe(name="b", current="b"))
    third = write(tmp_path / "3", describe(name="a", current="a", proxy="x"))
    found = choose_from("", str(tmp_path / "gone"), first, second, third, first)
    assert (found.cluster["server"], found.namespace) == ("https://b", "ns-b")
    assert choose_from(first, second, third, context="a").cluster == {"server": "https://a"}


def test_a_context_can_be_named_where_none_is_current(tmp_path: Path) -> None:
    path = write(tmp_path / "1", describe(name="a"))
    assert choose_from(path, context="a").namespace == "ns-a"
    assert choose_from(path, cluster="a", user="a").namespace == "default"
    with pytest.raises(NoClusterError, match=r"no context is chosen.*: a$"):
        choose_from(path)


def test_the_usual_file_is_that_of_the_home_folder_also_for_an_empty_variable(
    tmp_path: Path,
) -> None:
    write(tmp_path / ".kube" / "config", describe(current="a"))
    for more in ({}, {"KUBECONFIG": ""}, {"KUBECONFIG": os.pathsep}):
        found = choose(Choice(), {"HOME": str(tmp_path), **more})
        assert found is not None
        assert found.namespace == "ns-a"
    path = write(tmp_path / "other", describe(name="b", current="b"))
    found = choose(Choice(kubeconfig=path), {"HOME": str(tmp_path)})
    assert found is not None
    assert found.namespace == "ns-b"


def test_paths_are_those_of_the_file_that_has_them(tmp_path: Path) -> None:
    user = {"client-certificate": "c.pem", "tokenFile": "/t", "exec": {"command": "./bin/login"}}
    content = describe(current="a", user=user, **{"certificate-authority": "ca.pem"})
    found = choose_from(write(tmp_path / "folder" / "config", content))
    folder = tmp_path / "folder"
    assert found.cluster["certificate-authority"] == str(folder / "ca.pem")
    assert found.user["client-certificate"] == str(folder / "c.pem")
    assert found.user["tokenFile"] == "/t"
    assert found.user["exec"]["command"] == str(folder / "bin" / "login")


@pytest.mark.parametrize(
    ("content", "choice", "said"),
    [
        (describe(current="b"), {}, "context b is not in the kubeconfig, which has: a"),
        (describe(current="a"), {"context": "b"}, "context b, which --context names, is not in"),
        (describe(current="a"), {"cluster": "b"}, "cluster b, which --cluster names, is not in"),
        (describe(current="a"), {"user": "b"}, "user b, which --user names, is not in"),
        ({**describe(current="a"), "clusters": []}, {}, "cluster a, which context a names, is not"),
        ({**describe(current="a"), "users": None}, {}, "user a, which context a names, is not in"),
        (describe(current="a", server=""), {}, "cluster a of the kubeconfig has no server"),
        (describe(current="a", server="a:1"), {}, "cluster a of the kubeconfig has no server"),
        (describe(current="a", server=1), {}, "server of cluster a is no text"),
        ({**describe(), "current-context": 1}, {}, "current-context of "),
        ({**describe(current="a"), "contexts": {}}, {}, "context a is not in the kubeconfig"),
        ({**describe(current="a"), "contexts": [1]}, {}, "contexts is no list of maps"),
        ([], {}, "it is no map"),
        (describe(current="a"), {"groups": ("g",)}, "--as-group and --as-uid need --as"),
        (describe(current="a"), {"kubeconfig": "/nowhere"}, "there is no file /nowhere"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, content: Any, choice: Content, said: str
) -> None:
    path = write(tmp_path / "config", content)
    with pytest.raises(NoClusterError) as raised:
        choose_from(path, **choice)
    assert said in str(raised.value)


def run(path: str, *arguments: str) -> int:
    return main(["status", "--kubeconfig", path, *arguments])


@pytest.fixture(autouse=True)
def own_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client keeps what it discovered there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\x01\xff",
        b"{",
        b"\t- a",
        b"a: " + b"[" * 5000,
        b"%TAG",
        b"[]",
        b"clusters: 3",
        b"a: !!python/x 1",
    ],
)
def test_a_file_that_is_no_kubeconfig_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    assert run(str(path)) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(f"error: there is no cluster to talk to: {path} is no kubeconfig: ")
    assert errors.count("\n") == 1


def test_a_folder_is_no_kubeconfig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(tmp_path)) == 2
    assert "Is a directory" in capsys.readouterr().err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)
USER_FIELDS = (
    *("token", "tokenFile", "username", "password", "client-certificate", "client-key", "as"),
    *("client-certificate-data", "client-key-data", "auth-provider", "exec", "as-groups", "as-uid"),
    "as-user-extra",
)
CLUSTER_FIELDS = (
    *("server", "certificate-authority", "certificate-authority-data", "proxy-url"),
    *("insecure-skip-tls-verify", "tls-server-name"),
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    part=st.sampled_from(["", "clusters", "contexts", "users", "cluster", "context", "user"]),
    field=st.sampled_from([*USER_FIELDS, *CLUSTER_FIELDS, "namespace", "current-context", "name"]),
    value=JSON,
)
def test_no_kubeconfig_ends_in_a_stack_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str, field: str, value: Any
) -> None:
    content = describe(current="a", server="http://127.0.0.1:9")
    if part == "":
        content[field] = value
    elif part in content:
        content[part] = value
    else:
        content[f"{part}s"][0][part][field] = value
    path = tmp_path / "config"
    path.write_text(json.dumps(content), "utf-8")
    status = run(str(path))
    output, errors = capsys.readouterr()
    assert status == 2
    assert not output
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert "defect" not in errors


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("as-groups", True, "as-groups of user a is no list of texts"),
        ("as-groups", "staff", "as-groups of user a is no list of texts"),
        ("as-groups", ["staff", 7], "as-groups of user a is no list of texts"),
        ("as-user-extra", True, "as-user-extra of user a is no object"),
        ("as-user-extra", {"team": "one"}, "as-user-extra.team of user a is no list of texts"),
        ("as-user-extra", {"team": 7}, "as-user-extra.team of user a is no list of texts"),
    ],
)
def test_a_field_that_impersonates_and_has_another_type_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, value: Any, says: str
) -> None:
    content = describe(current="a", server="http://127.0.0.1:9")
    content["users"][0]["user"] |= {"as": "me", field: value}
    path = tmp_path / "config"
    path.write_text(json.dumps(content), "utf-8")
    assert run(str(path)) == 2
    assert says in capsys.readouterr().err


def write_login(folder: Path, script: str) -> str:
    path = folder / "login"
    path.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return "./login"


LOGIN = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
CREDENTIAL = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "kind": "ExecCredential",
    "status": {"token": "of-the-plugin"},
}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo expired >&2; exit 3", "exec: process returned 3"),
        ("echo no json", "exec: failed to decode process output"),
        ("echo '{}'", "exec: "),
        ("exit 0", "exec: "),
    ],
)
def test_a_credential_plugin_that_fails_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, said: str
) -> None:
    user = {"exec": {**LOGIN, "command": write_login(tmp_path, script)}}
    path = write(tmp_path / "config", describe(current="a", user=user))
    assert run(path) == 2
    errors = capsys.readouterr().err
    assert f"the credential plugin of user a gave no credentials: {said}" in errors


def test_a_credential_plugin_that_is_not_installed_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = {"exec": {**LOGIN, "command": "no-such-login"}}
    assert run(write(tmp_path / "config", describe(current="a", user=user))) == 2
    errors = capsys.readouterr().err
    assert "the credential plugin of user a gave no credentials: " in errors
    assert "no-such-login" in errors


def test_whom_to_impersonate_is_told_with_each_request(tmp_path: Path) -> None:
    server = ApiServer()
    login = write_login(tmp_path, f"echo '{json.dumps(CREDENTIAL)}'")
    user = {"exec": {**LOGIN, "command": login}, "as": "reader", "as-groups": ["g"]}
    with serve(server.answer) as url:
        path = write(tmp_path / "config", describe(current="a", user=user, server=url))
        Connection(Choice(kubeconfig=path)).find("v1", "Pod", "")
        seen = server.requests[-1].headers
        assert seen["authorization"] == "Bearer of-the-plugin"
        assert (seen["impersonate-user"], seen["impersonate-group"]) == ("reader", "g")
        choice = Choice(kubeconfig=path, acts_as="me", groups=("one", "two"), uid="7")
        Connection(choice).find("v1", "Pod", "")
        seen = server.requests[-1].headers
        assert (seen["impersonate-user"], seen["impersonate-uid"]) == ("me", "7")
        # Of headers that are there twice, the server of the tests keeps the last one.
        assert seen["impersonate-group"] == "two"


def test_in_a_pod_its_service_account_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", "key.pem", "-out", "ca.crt"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "token").write_text("of-the-pod", "utf-8")
    (tmp_path / "namespace").write_text("shop", "utf-8")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(connections, "NAMESPACE_FILE", tmp_path / "namespace")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ca.crt", tmp_path / "key.pem")
    server = ApiServer()
    with serve(server.answer, context) as url:
        host, port = url.removeprefix("https://").split(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        connection = Connection(Choice())
        connection.find("v1", "Pod", "")
        assert connection.namespace == "shop"
        assert server.requests[-1].headers["authorization"].lower() == "bearer of-the-pod"
        assert main(["status", "--context", "a"]) == 2
    assert "context a, which --context names, is not in the kubeconfig" in capsys.readouterr().err


def test_without_a_kubeconfig_and_outside_a_pod_there_is_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["status"]) == 2
    assert "there is no cluster to talk to: no kubeconfig names one" in capsys.readouterr().err
