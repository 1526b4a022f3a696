"""What a user sees of the command line when no Spark is needed to answer."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
import yaml

from balancedstream import cli
from balancedstream.cli import main
from balancedstream.core.observations import Observation
from balancedstream.core.policy import Policy, parse, to_mapping
from balancedstream.core.samples import KeySample, TaskSample


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text("raise SystemExit('must not be started')\n")
    return path


def fail(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Runs a command that must be refused; its message."""
    assert main([str(a) for a in arguments]) == 2
    message = capsys.readouterr().err
    assert message.startswith("balancedstream: ")
    assert "Traceback" not in message
    return message


def test_a_script_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = fail(capsys, "run", tmp_path / "missing.py")
    assert "no such script" in message
    assert "missing.py" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "the following arguments are required: APP"),
        (["run", "--localx", "2", "job.py"], "unrecognized arguments: --localx"),
    ],
)
def test_a_mistyped_run_is_answered_with_the_usage_of_run(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    said = capsys.readouterr().err
    assert said.startswith("usage: balancedstream run ")
    assert said.endswith(f"balancedstream run: error: {message}\n")


def test_the_help_of_run_names_what_its_options_take_and_the_live_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["run", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "the number follows the load; N is the same as N:N" in said
    assert "and /report, a page that shows the run so far" in said


def test_following_a_stream_needs_the_kubernetes_client_and_says_so(
    script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.delitem(sys.modules, "balancedstream.launch.kubernetes", raising=False)
    message = fail(capsys, "run", "--stream", "shop/clicks", script)
    assert "pip install '.[kubernetes]'" in message


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ("balance: {act_above: high}", "balance.act_above"),
        ("balance: {act_above: -1}", "balance.act_above"),
        ("balance: {act_over: 1.3}", "balance.act_over"),
        ("balances: {}", "balances"),
        ("scaling: {min_executors: 5, max_executors: 2}", "scaling"),
        ("migration: {budget_s: lazy}", "migration.budget_s"),
        ("[1, 2]", "policy"),
        ("a: [", "policy"),
    ],
)
def test_a_policy_file_that_is_wrong_is_refused_by_field(
    content: str, field: str, script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(content)
    assert field in fail(capsys, "run", "--policy", policy, script)


def test_a_number_with_a_unit_of_its_own_is_refused_with_the_unit_that_is_meant(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("scaling: {window_s: 5m}")
    message = fail(capsys, "run", "--policy", policy, script)
    assert "scaling.window_s: must be a number from 1 to 86400, not '5m' (unit: seconds)" in message


def test_a_policy_file_that_is_not_there_is_named(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "none.yaml" in fail(capsys, "run", "--policy", tmp_path / "none.yaml", script)


@pytest.mark.parametrize("option", ["--report", "--record"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(
    option: str, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = fail(capsys, "run", option, script / "folder", script)
    assert message.startswith(f"balancedstream: {option}: {script / 'folder'} cannot be written")


def test_a_port_in_use_is_refused_before_anything_starts(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = fail(capsys, "run", "--metrics-port", port, script)
    assert str(port) in message
    assert "--metrics-port" in message


def test_a_senseless_number_of_executors_is_refused(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--local: must be MIN:MAX" in fail(capsys, "run", "--local", "4:2", script)


def test_a_baseline_is_refused_where_the_operator_makes_the_plans(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = fail(capsys, "run", "--stream", "shop/clicks", "--baseline", "3", script)
    assert "--baseline: not with --stream shop/clicks" in message
    assert "Nothing was started" in message


@pytest.mark.parametrize("count", ["1", "4"])
def test_a_baseline_too_short_for_the_reports_figures_is_refused(
    count: str, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = fail(capsys, "run", "--baseline", count, script)
    assert f"--baseline: must be 0, or at least 5 batches, not {count}" in message


def test_an_old_java_is_refused_with_what_to_install(
    script: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    message = fail(capsys, "run", script)
    assert "Java 17 or newer" in message
    assert "version 11" in message
    assert "install" in message


def test_a_java_home_without_java_is_refused(
    script: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "has no bin/java" in fail(capsys, "run", script)


def test_the_options_for_any_application_name_the_jar_and_the_plugin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "spark-plugin.jar"
    monkeypatch.setattr(cli, "PLUGIN_JAR", jar)
    assert "Install a JDK" in fail(capsys, "plugin")
    jar.touch()
    assert main(["plugin"]) == 0
    named = ["spark.jars", str(jar)], ["spark.plugins", "io.balancedstream.Plugin"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.removeprefix("--conf ").split("=") for line in lines[:2]] == [*named]
    # Where the jar lies in the environment of this Python, that needs no setting.
    assert lines[2:] == [f"--conf spark.balancedstream.python={sys.executable}"]
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert main(["plugin"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_sidecar_without_the_drivers_folder_says_what_to_mount(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = fail(capsys, "sidecar", tmp_path / "absent")
    assert "absent is no folder. Mount the volume there that the driver shares" in said


def test_the_printed_policy_is_a_policy_file_of_the_defaults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["policy"]) == 0
    assert parse(yaml.safe_load(capsys.readouterr().out)) == Policy()


def record(path: Path, observation: Observation) -> Path:
    content = {
        "policy": to_mapping(Policy()),
        "observation": json.loads(observation.to_json()),
    }
    path.write_text(json.dumps(content))
    return path


def test_a_recorded_observation_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy_s = (4.0, 3.0, 0.5, 0.5)
    tasks = tuple(TaskSample("q", 0, p, 1, "a", s, 10, 1000, 9.0) for p, s in enumerate(busy_s))
    path = record(tmp_path / "seen.json", Observation(10.0, {"a": 1, "b": 1}, tasks))
    assert main(["explain", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("executors: a (1 core), b (1 core)\n")
    assert "query q, operator 0: 1 move: imbalance 2.00 → 1.00 (bound 1.00)" in said
    assert "move partition 0 (4.000 s, 1,000 bytes of state): a -> b" in said


def test_a_removed_knob_of_a_recorded_policy_is_said_beside_the_explanation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = (TaskSample("q", 0, 0, 1, "a", 1.0, 10, 1000, 9.0),)
    path = record(tmp_path / "seen.json", Observation(10.0, {"a": 1}, tasks))
    content = json.loads(path.read_text())
    content["policy"]["balance"]["min_gain"] = 0.1
    path.write_text(json.dumps(content))
    assert main(["explain", str(path)]) == 0
    shown = capsys.readouterr()
    assert "query q, operator 0: no change" in shown.out
    assert shown.err.count("\n") == 1
    assert "without effect: balance.min_gain (a plan must always save 2 %" in shown.err


def test_the_moves_of_keys_are_explained_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy_s = {0: 7.0, 1: 0.5, 2: 0.5}
    executors = {0: "a", 1: "b", 2: "b"}
    tasks = tuple(
        TaskSample("q", 0, p, 1, executors[p], s, 10, 1000, 9.0) for p, s in busy_s.items()
    )
    keys = tuple(KeySample("q", 0, k, 0, 1, s) for k, s in {'"de"': 4.0, '"fr"': 3.0}.items())
    observation = Observation(10.0, {"a": 1, "b": 1}, tasks, keys=keys)
    assert main(["explain", str(record(tmp_path / "seen.json", observation))]) == 0
    said = capsys.readouterr().out
    assert "query q, operator 0: 1 key move: imbalance 1.75 → 1.00" in said
    assert 'move key "fr": partition 0 -> 1' in said


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "not JSON"),
        ("{}", "observation"),
        ('{"observation": {"executors": {}}}', "observation.now_s"),
        ('{"observation": {"now_s": 1, "executors": {"a": "x"}}}', "observation.executors"),
        ('{"observation": {"now_s": 1, "executors": {"a": 1}, "x": 1}}', "observation.x"),
        (
            '{"observation": {"now_s": 1, "executors": {"a": 1}, "tasks": [{"query": 5}]}}',
            "tasks[0].query",
        ),
        (
            '{"observation": {"now_s": 1, "executors": {"a": 1}, "tasks": [{}]}}',
            "tasks[0]",
        ),
    ],
)
def test_an_observation_that_is_wrong_is_refused_by_field(
    content: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(content)
    assert named in fail(capsys, "explain", path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ('{"observation": {"now_s": 1, "exec', "is not JSON, or was cut off"),
        ('{"app": "job.py", "batches": 3}', "has no field `observation`"),
        ('{"kind": "run"}\n{"kind": "batch"}\n', "is not JSON"),
    ],
    ids=["cut off", "report.json", "history.jsonl"],
)
def test_a_file_that_is_no_observation_is_refused_with_what_records_one(
    content: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    message = fail(capsys, "explain", path)
    assert what in message
    assert "`balancedstream run --record DIR` writes such files" in message
