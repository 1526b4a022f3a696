"""What the agent reads in an application's settings, and what it says of those that are wrong."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kubernetes.config import kube_config

from balancedstream.core.policy import BalancePolicy, Policy, ScalingPolicy
from balancedstream.engine.session.settings import LOCALITY_WAIT_IS_OURS, LOCALITY_WAIT_PROCESS
from balancedstream.errors import InvalidInputError
from balancedstream.launch import agent
from balancedstream.launch.agent import check_report_dir, main
from balancedstream.launch.agent_options import AgentOptions, read_options
from balancedstream.metrics.exporter import Exporter

OWN = "spark.balancedstream."


def test_unless_it_is_told_to_act_it_only_advises() -> None:
    for settings in ({"spark.app.name": "clicks"}, {f"{OWN}mode": "advise"}):
        options = read_options(settings)
        assert options.mode == "advise"
        assert options.policy.balance.mode == options.policy.scaling.mode == "advise"
    assert read_options({f"{OWN}mode": "auto"}) == AgentOptions("auto", Policy())


def test_what_a_policy_turns_off_stays_off(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("scaling: {max_executors: 6}\n")
    settings = {f"{OWN}policy": str(file), f"{OWN}balance.mode": "off"}
    for mode, scaling in (("advise", "advise"), ("auto", "auto")):
        policy = read_options(settings | {f"{OWN}mode": mode}).policy
        assert policy.balance == BalancePolicy(mode="off")
        assert (policy.scaling.mode, policy.scaling.max_executors) == (scaling, 6)


def test_where_spark_sets_the_number_of_executors_it_does_not_and_says_so() -> None:
    settings = {
        "spark.dynamicAllocation.enabled": "true",
        f"{OWN}mode": "auto",
        f"{OWN}scaling.max_executors": "8",
    }
    options = read_options(settings)
    assert options.policy == Policy(scaling=ScalingPolicy(mode="off", max_executors=8))
    (note,) = options.notes
    assert note.startswith("spark.dynamicAllocation.enabled=true: Spark sets the number")
    assert read_options(settings | {"spark.dynamicAllocation.enabled": "false"}).notes == ()


def test_what_a_killed_agent_left_in_the_configuration_is_no_setting_of_the_next_one() -> None:
    left = {LOCALITY_WAIT_IS_OURS: "true", LOCALITY_WAIT_PROCESS: "10000ms"}
    assert read_options(left) == read_options({})


def test_metrics_and_report_are_where_the_settings_say() -> None:
    options = read_options(
        {
            f"{OWN}metrics.port": "9404",
            f"{OWN}metrics.address": "0.0.0.0",  # noqa: S104 - as in a pod
            f"{OWN}report": "/tmp/report",  # noqa: S108 - nothing is written
            f"{OWN}python": "/opt/python3",
            f"{OWN}sidecar": "/balancedstream",
            f"{OWN}plugin": "0.1.0",
        }
    )
    assert (options.metrics_port, options.metrics_address) == (9404, "0.0.0.0")  # noqa: S104
    assert options.report_dir == Path("/tmp/report")  # noqa: S108


def test_where_the_operator_decides_its_modes_count_and_not_those_of_the_application() -> None:
    settings = {f"{OWN}stream": "shop/clicks", "spark.app.id": "spark-1"}
    options = read_options(settings)
    assert (options.stream, options.application, options.scales) == ("shop/clicks", "spark-1", True)
    assert options.policy == Policy()
    assert not read_options(settings | {"spark.dynamicAllocation.enabled": "true"}).scales


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        ("clicks", f"{OWN}stream: must be NAMESPACE/NAME, such as default/clicks, not 'clicks'"),
        ("shop/clicks", f"{OWN}stream: no Kubernetes API server is known here"),
    ],
)
def test_plans_that_it_cannot_get_at_are_said_and_another_start_would_not_help(
    stream: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    absent = str(tmp_path / "absent")
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", absent)
    monkeypatch.setattr(agent, "connect_driver", lambda: None)
    monkeypatch.setattr(agent, "read_settings", lambda spark: {f"{OWN}stream": stream})
    assert main() == agent.EXIT_HOPELESS
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert "The application runs on, not balanced" in line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "on"),
        ("modus", "auto"),
        ("metrics.port", "http"),
        ("metrics.ports", "9404"),
        ("balance.act_abov", "1.5"),
        ("balance.act_above", "high"),
    ],
)
def test_a_setting_that_is_wrong_is_named_and_another_start_would_not_help(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {f"{OWN}{name}": value}
    with pytest.raises(InvalidInputError, match=name):
        read_options(settings)
    monkeypatch.setattr(agent, "connect_driver", lambda: None)
    monkeypatch.setattr(agent, "read_settings", lambda spark: settings)
    assert main() == agent.EXIT_HOPELESS
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line
    assert "The application runs on, not balanced" in line


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("balance: {act_abov: 1.5}", "balance.act_abov: unknown field, allowed are mode, act_ab"),
        ("balancing: {mode: auto}", "policy.balancing: unknown field, allowed are balance, sca"),
        ("balance: {act_above: high}", "balance.act_above: must be a number from 0 to 1000"),
        ("balance: [mode: auto", "is not YAML"),
    ],
)
def test_a_policy_file_that_is_wrong_is_named_with_its_field_in_one_line(
    content: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(content)
    settings = {f"{OWN}policy": str(file), f"{OWN}window.batches": "5"}
    monkeypatch.setattr(agent, "connect_driver", lambda: None)
    monkeypatch.setattr(agent, "read_settings", lambda spark: settings)
    assert main() == agent.EXIT_HOPELESS
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert str(file) in line
    assert "The application runs on, not balanced; mend this" in line


class Attached:
    """An attachment whose loop ends when it is told to."""

    is_balancing = True


def test_it_ends_with_its_standard_input_or_with_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "LOOK_S", 0.01)
    monkeypatch.setattr(agent, "DETACH_S", 0.01)
    attached: Any = Attached()
    reading, writing = os.pipe()
    with open(reading, "rb") as pipe:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(pipe))
        attached.is_balancing = False
        assert agent._wait(attached) == agent.EXIT_FAILED
        attached.is_balancing = True
        os.close(writing)
        assert agent._wait(attached) == 0


def test_an_agent_whose_loop_ended_leaves_with_its_own_status() -> None:
    """Python aborts (status 134) if another thread holds the standard input's buffer then."""
    code = (
        "import sys; from balancedstream.launch import agent\n"
        "class Ended: is_balancing = False\n"
        "agent.LOOK_S = agent.DETACH_S = 0.01\n"
        "sys.exit(agent._wait(Ended()))"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr
        assert (process.wait(), process.stderr.read()) == (agent.EXIT_FAILED, b"")


def test_a_port_in_use_costs_the_metrics_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        exporter = Exporter()
        agent.serve(exporter, AgentOptions(metrics_port=port))
    assert exporter.port is None
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{OWN}metrics.port={port} on 127.0.0.1 is in use; 0 picks a free one" in line


def test_a_report_that_cannot_be_written_costs_the_report_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder, kept in ((file, None), (tmp_path, tmp_path), (None, None)):
        assert check_report_dir(AgentOptions(report_dir=folder)).report_dir == kept
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{OWN}report={file} cannot be written to" in line
    assert "everything else goes on" in line
