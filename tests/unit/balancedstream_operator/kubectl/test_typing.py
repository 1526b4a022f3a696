"""Whatever a person types, wherever the output goes: a sentence, and the right exit status."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apiserver import path_of, write_kubeconfig
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback import Request, Response, serve

from balancedstream_operator.kubectl.main import main
from balancedstream_operator.kubectl.output import say_json

Run = Callable[..., tuple[int, str, str]]

WORDS = st.sampled_from(
    [
        *("status", "explain", "approve", "pause", "resume", "doctor", "clicks", "shop", "", "-"),
        *("-n", "--namespace", "--context", "-A", "-o", "json", "yaml", "--timeout", "0", "nan"),
        *("--kubeconfig", "--cluster", "--user", "--as", "--as-group", "--as-uid", "--reason"),
        *("--", "-n=shop", "--names", "--cont=a", "--token=a", "-v=9", "a/b", "..", "é", "\ud800"),
        *("--timeout=0", "--timeout=0s", "%s", "{}", "1-888dec", "loopback", "me", "--version"),
    ]
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(words=st.lists(WORDS | st.text(max_size=4), max_size=5))
def test_no_arguments_end_in_a_stack_trace(
    make_site: Callable[..., Any], kubectl_bst: Run, capsys: Any, words: list[str]
) -> None:
    site = make_site()
    site.scene.run_pass()
    site.publish()
    # A command that waits must not: 0 seconds is one look.
    waits = any(word in {"approve", "pause", "resume"} for word in words)
    try:
        status: Any
        status, _, errors = kubectl_bst(site, *words, *(["--timeout=0"] if waits else []))
    except SystemExit as ended:
        status, errors = ended.code, capsys.readouterr().err
        errors = errors[errors.find("error: ") :] if "error: " in errors else ""
    assert status in {0, 1, 2}
    assert (status == 2) == errors.startswith("error: ")
    assert "defect" not in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "arguments",
    [
        *(["status", ""], ["status", "a/b"], ["status", ".."], ["pause", ""], ["explain", "A"]),
        *(["status", "-n", "a/b"], ["status", "-A", "clicks"], ["doctor", "clicks", "-A"]),
    ],
)
def test_what_names_nothing_is_refused_before_anything_is_asked(
    make_site: Callable[..., Any], kubectl_bst: Run, arguments: list[str]
) -> None:
    site = make_site()
    status, _, errors = kubectl_bst(site, *arguments)
    assert status == 2
    assert errors.startswith(("error: NAME: ", "error: --namespace: ", "error: --all-namespaces: "))
    assert not site.server.requests


@pytest.mark.parametrize("option", ["--token=a", "--server=b", "-v=9", "--cont=a", "--kube=b"])
def test_an_option_of_kubectl_that_the_plugin_has_not_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["status", option])
    assert ended.value.code == 2
    assert f"unrecognized arguments: {option}" in capsys.readouterr().err


HOSTILE = "\x1b]52;c;cm0gLXJm\x07\x1b[2J\u009b31m\u202eevil\u2066\n ok    all is well\r\x7f\u200b"


def poison(value: Any) -> Any:
    """Every text for people of a status with escape sequences in it."""
    if isinstance(value, dict):
        return {
            name: inner + HOSTILE
            if isinstance(inner, str)
            and name not in {"type", "status", "time", "kind"}
            and "Time" not in name
            else poison(inner)
            for name, inner in value.items()
        }
    return [poison(entry) for entry in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ["status"],
            ["status", "clicks"],
            ["explain", "clicks"],
            ["doctor"],
            ["doctor", "clicks"],
        ),
        *(["status", "-o", "json"], ["explain", "clicks", "-o", "json"], ["doctor", "-o", "json"]),
        *(["approve", "clicks", "--timeout=0"], ["pause", "clicks", "--timeout=0"]),
    ],
)
def test_what_others_wrote_reaches_no_terminal(
    make_site: Callable[..., Any], kubectl_bst: Run, arguments: list[str]
) -> None:
    site = make_site()
    site.operated = False
    site.scene.run_until_running()
    site.scene.measured = "Prometheus cannot be queried"
    site.scene.run_pass()
    site.publish()
    resource = site.server.objects[path_of("BalancedStream", "clicks")]
    resource["status"] = poison(resource["status"])
    resource["status"]["decisions"] = [
        {"time": HOSTILE, "kind": "move", "epoch": 1, "reason": HOSTILE, "effect": HOSTILE}
    ]
    resource["status"]["proposal"] = {"id": f"1-a{HOSTILE}", "reason": HOSTILE}
    _, output, errors = kubectl_bst(site, "-n", "shop", *arguments)
    for text in (output, errors):
        assert all(c == "\n" or c.isprintable() for c in text)
        assert not any(line.startswith(" ok") for line in text.splitlines())
    if "json" in arguments:
        json.loads(output)


def test_what_a_server_says_of_an_error_reaches_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with serve(lambda _: Response({"kind": "Status", "message": HOSTILE}, 403)) as url:
        path = tmp_path / "config"
        path.write_text(write_kubeconfig(url), "utf-8")
        assert main(["status", "--kubeconfig", str(path)]) == 2
    errors = capsys.readouterr().err
    assert "evil" in errors
    assert all(c == "\n" or c.isprintable() for c in errors)
    assert errors.count("\n") == 1


GARBAGE = ["", "<html>login</html>", "[]", "{}", '"a"', "null", '{"groups": 1}', "{" * 3000]


@pytest.mark.parametrize("status", [200, 302, 401, 500])
@pytest.mark.parametrize("body", GARBAGE)
def test_garbage_in_the_place_of_the_server_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    status: int,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def answer(_: Request) -> Response:
        return Response(body, status, {"Content-Type": "application/json"})

    with serve(answer) as url:
        path = tmp_path / "config"
        path.write_text(write_kubeconfig(url), "utf-8")
        for command in (["status"], ["doctor"], ["pause", "a"]):
            assert main([*command, "--kubeconfig", str(path)]) in {0, 2}
            errors = capsys.readouterr().err
            assert "Traceback" not in errors
            assert "defect" not in errors


def test_json_is_the_same_for_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    content = {"a": "→ é \x1b \u009b \u202e \U0001f600 \ud800"}
    for encoding in ("utf-8", "ascii", "latin-1", "cp1252"):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding, errors="strict"))
        say_json(content)
        assert json.loads(raw.getvalue().decode(encoding)) == content
        assert b"\x1b" not in raw.getvalue()


def start(path: Path, *arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """The program in a process of its own."""
    command = [sys.executable, "-m", "balancedstream_operator.kubectl.main", *arguments]
    environment = os.environ | {"KUBECONFIG": str(path), "TMPDIR": str(path.parent)}
    environment |= more.pop("env", {})
    return subprocess.run(command, env=environment, check=False, **more)


@pytest.fixture
def reachable(tmp_path: Path, make_site: Callable[..., Any]) -> Any:
    """The kubeconfig of a cluster with one stream."""
    site = make_site()
    site.scene.run_until_running()
    site.publish()
    with serve(site.answer) as url:
        path = tmp_path / "config"
        path.write_text(write_kubeconfig(url), "utf-8")
        yield path


def test_an_output_that_cannot_encode_gets_what_it_can(reachable: Path) -> None:
    for encoding in ("ascii", "latin-1"):
        env = {"PYTHONIOENCODING": encoding, "LC_ALL": "C"}
        found = start(reachable, "status", "-n", "shop", capture_output=True, env=env)
        assert (found.returncode, found.stderr) == (0, b"")
        assert b"shop/clicks" in found.stdout


def test_a_pipe_whose_reader_has_gone_changes_neither_status_nor_errors(reachable: Path) -> None:
    for arguments, status in ((["status", "-A"], 0), (["doctor", "-A"], 1), (["--help"], 0)):
        reader, writer = os.pipe()
        os.close(reader)
        found = start(reachable, *arguments, stdout=writer, stderr=subprocess.PIPE)
        os.close(writer)
        assert (found.returncode, found.stderr) == (status, b"")


def test_a_full_disk_is_an_error(reachable: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        found = start(reachable, "status", "-A", stdout=full, stderr=subprocess.PIPE)
    assert found.returncode == 2
    assert found.stderr == b"error: the output cannot be written: No space left on device\n"


def test_closed_streams_change_no_status(reachable: Path) -> None:
    program = f"{sys.executable} -m balancedstream_operator.kubectl.main"
    for arguments, status in (("status -A", 0), ("doctor -A", 1), ("status nowhere", 2)):
        command = f"KUBECONFIG={reachable} exec {program} {arguments} >&- 2>&-"
        assert subprocess.run(["/bin/sh", "-c", command], check=False).returncode == status
