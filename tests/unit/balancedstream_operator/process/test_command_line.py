"""What the operator's command line says reaches the operator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from balancedstream.core.money import Price
from balancedstream_operator import main as process
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.main import main
from balancedstream_operator.settings import Settings


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Settings, str]]:
    """What the process would have been started with."""
    found: list[tuple[Settings, str]] = []

    async def run(settings: Settings, lease: str) -> None:
        found.append((settings, lease))

    monkeypatch.setattr(process, "_run", run)
    monkeypatch.setattr(process, "start_logging", lambda *_: None)
    return found


@pytest.mark.parametrize(
    ("arguments", "namespaces"),
    [
        (["--all-namespaces"], ("",)),
        (["--namespace", "shop", "--namespace=bank"], ("shop", "bank")),
    ],
)
def test_the_command_line_says_which_namespaces_are_watched(
    given: list[tuple[Settings, str]], arguments: list[str], namespaces: tuple[str, ...]
) -> None:
    main(arguments)
    main([*arguments, "--lease=operator"])
    assert [(found.namespaces, lease) for found, lease in given] == [
        (namespaces, ""),
        (namespaces, "operator"),
    ]


def test_the_command_line_says_what_holds_for_all_streams(
    given: list[tuple[Settings, str]], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("t0ken", "utf-8")
    (tmp_path / "..data").mkdir()
    main(
        [
            "--all-namespaces",
            "--prometheus-url=http://prometheus",
            "--prometheus-label=cluster=eu=1",
            "--allow-prometheus-url=http://thanos",
            f"--prometheus-credentials={tmp_path}",
        ]
    )
    main(["--all-namespaces", "--forbid-escalation"])
    (secured, _), (open_one, _) = given
    assert open_one == Settings(forbids_escalation=True)
    labels, allowed = (("cluster", "eu=1"),), ("http://thanos",)
    assert secured == Settings("http://prometheus", labels, allowed, secured.read_credentials)
    assert secured.read_credentials() == {"token": "t0ken"}
    (tmp_path / "token").write_text("another", "utf-8")
    assert secured.read_credentials() == {"token": "another"}


def test_the_command_line_says_what_an_executor_costs(given: list[tuple[Settings, str]]) -> None:
    main(["--all-namespaces", "--cost-currency=EUR"])
    main(["--all-namespaces", "--cost-executor-hour=0.12", "--cost-currency=EUR"])
    assert [settings.price for settings, _ in given] == [None, Price(0.12, "EUR")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cost-executor-hour=-1"], "cost.executor_hour: must be a number above 0"),
        (["--cost-executor-hour=nan"], "cost.executor_hour: must be a number above 0"),
        (["--cost-executor-hour=cheap"], "--cost-executor-hour: invalid float value: 'cheap'"),
        (["--cost-executor-hour=1", f"--cost-currency={'x' * 17}"], "cost.currency: must be"),
    ],
)
def test_what_is_no_price_is_refused_by_name(
    given: list[tuple[Settings, str]],
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--all-namespaces", *arguments])
    assert said in capsys.readouterr().err
    assert given == []


def test_a_token_in_a_file_is_read_with_each_decision_and_may_be_late(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "token").write_text("of the Secret", "utf-8")
    (tmp_path / "secret" / "ca.crt").write_text("CA", "utf-8")
    token = tmp_path / "token"
    given = process.read_credentials
    with pytest.raises(MissingMeasurementsError, match=r"cannot be read: .*token"):
        given(tmp_path / "secret", token)
    for text in ("first", "second"):
        token.write_text(text, "utf-8")
        assert given(None, token) == {"token": text}
        assert given(tmp_path / "secret", token) == {"token": text, "ca.crt": "CA"}
    token.write_bytes(b"\xff")
    with pytest.raises(MissingMeasurementsError, match="cannot be read"):
        given(None, token)


def test_an_option_that_needs_a_package_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(SystemExit) as ended:
        main(["--all-namespaces", "--prometheus-sigv4-region=eu-central-1"])
    assert ended.value.code == 2
    assert "pip install '.[aws]'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--all-namespaces", "--namespace", "shop"]])
def test_the_namespaces_must_be_given_in_one_way(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "--all-namespaces" in capsys.readouterr().err


LOGS_SOMETHING = """
import logging
from balancedstream_operator.process.logs import start_logging
start_logging("WARNING", {0!r})
logging.getLogger("balancedstream_operator").info("too little")
logging.getLogger("asyncio").error("nobody waited")
try:
    raise KeyError("x")
except KeyError:
    logging.getLogger("balancedstream_operator").exception("%s: this pass failed", "shop/clicks")
"""


def run_logging(log_format: str) -> list[str]:
    """The lines of a process that logs, because logging is a process' own."""
    command = [sys.executable, "-c", LOGS_SOMETHING.format(log_format)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return result.stderr.splitlines()


def test_logs_are_objects_one_a_line_if_asked_for() -> None:
    other, failed = map(json.loads, run_logging("json"))
    assert (other["message"], other["severity"]) == ("nobody waited", "error")
    assert (failed["message"], failed["severity"]) == ("shop/clicks: this pass failed", "error")
    assert "KeyError: 'x'" in failed["exc_info"]
    assert failed["timestamp"].startswith("20")


HOSTILE_LOG = """
import logging
from balancedstream_operator.process.logs import start_logging
start_logging("WARNING", {0!r})
hostile = "a" + chr(27) + "[2J" + chr(0x9b) + chr(0x202e) + chr(10) + "2026 ERROR forged"
logging.error("%s", hostile)
try:
    raise KeyError(1) from ValueError(hostile)
except KeyError:
    logging.exception("failed")
"""


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_nothing_that_others_wrote_is_a_line_or_an_escape_sequence_of_a_log(
    log_format: str,
) -> None:
    command = [sys.executable, "-c", HOSTILE_LOG.format(log_format)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "forged" in found.stderr
    assert all(c == "\n" or c.isprintable() for c in found.stderr)
    first, *_ = found.stderr.splitlines()
    assert "forged" in first


def test_logs_are_text_otherwise() -> None:
    lines = run_logging("text")
    assert lines[0].endswith("ERROR nobody waited")
    assert lines[1].endswith("ERROR shop/clicks: this pass failed")
    assert lines[-1] == "KeyError: 'x'"
