"""`balanced` in an application with the plugin: this process balances in the agent's place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from simulated_runs import new_history

from balancedstream.core.policy import BalancePolicy, Policy
from balancedstream.keyed import frames
from balancedstream.launch import agent, attaching, taking_over
from balancedstream.launch.agent_options import AgentOptions
from balancedstream.launch.attaching import attach
from balancedstream.metrics.exporter import Exporter

WITH_PLUGIN = {
    "spark.balancedstream.plugin": "0.1.0",
    "spark.balancedstream.mode": "auto",
    "spark.balancedstream.balance.act_above": "1.5",
}


class Frame:
    """As much of what is balanced as this looks at."""

    version = "4.3.0"

    def __init__(self, *, has_keys_that_move: bool = True) -> None:
        self.control = object() if has_keys_that_move else None
        self.sparkSession = self


class Attached:
    """What was attached, with what, and whether it still is."""

    def __init__(self, policy: Policy, metrics: Exporter, plans: Any) -> None:
        self.policy = policy
        self.metrics = metrics
        self.plans = plans
        self.is_detached = False
        self.notes: list[str] = []
        self.view = self
        self.history = new_history()

    def note(self, text: str) -> None:
        self.notes.append(text)

    def detach(self, timeout_s: float) -> None:
        self.is_detached = True


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> list[Attached]:
    made: list[Attached] = []

    def note(
        spark: Any, policy: Policy, *, open_view: Any, metrics: Exporter, plans: Any
    ) -> Attached:
        # The agent has its port until it has gone.
        assert metrics.port is None
        made.append(Attached(policy, metrics, plans))
        return made[-1]

    monkeypatch.setattr(agent, "attach", note)
    monkeypatch.setattr(attaching, "stand_ins", [])
    monkeypatch.setattr(taking_over, "stand_ins", attaching.stand_ins)
    monkeypatch.setattr(frames, "balanced", lambda df, *keys, name: df)
    return made


class StopHereError(Exception):
    pass


def stop_here(spark: Any, reason: str) -> None:
    raise StopHereError


def balance(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], frame: Any) -> None:
    monkeypatch.setattr(taking_over, "read_settings", lambda spark: settings)
    assert taking_over.balanced(frame, "user") is frame


def test_keys_that_can_move_are_balanced_by_the_plugins_settings(
    monkeypatch: pytest.MonkeyPatch, attached: list[Attached]
) -> None:
    balance(monkeypatch, WITH_PLUGIN, Frame())
    assert [a.policy for a in attached] == [Policy(BalancePolicy(act_above=1.5))]


def test_without_a_plugin_and_without_such_keys_nothing_is_attached(
    monkeypatch: pytest.MonkeyPatch, attached: list[Attached]
) -> None:
    balance(monkeypatch, {"spark.balancedstream.mode": "auto"}, Frame())
    balance(monkeypatch, WITH_PLUGIN, Frame(has_keys_that_move=False))
    assert attached == []


def test_metrics_are_served_where_the_agent_served_them_until_a_user_attaches(
    monkeypatch: pytest.MonkeyPatch, attached: list[Attached]
) -> None:
    balance(monkeypatch, WITH_PLUGIN | {"spark.balancedstream.metrics.port": "0"}, Frame())
    (stand_in,) = attached
    assert stand_in.metrics.port
    monkeypatch.setattr(attaching, "stand_plugin_down", stop_here)
    with pytest.raises(StopHereError):
        attach(Frame())
    assert stand_in.is_detached
    assert stand_in.metrics.port is None


def test_what_the_agent_would_say_and_report_is_said_and_reported(
    monkeypatch: pytest.MonkeyPatch, attached: list[Attached], tmp_path: Path
) -> None:
    settings = {
        "spark.balancedstream.report": str(tmp_path),
        "spark.dynamicAllocation.enabled": "true",
    }
    balance(monkeypatch, WITH_PLUGIN | settings, Frame())
    assert ["dynamicAllocation" in note for note in attached[0].notes] == [True]
    attaching.stand_ins.pop().close()
    assert (tmp_path / "report.html").exists()


def test_the_plans_of_a_balancedstream_are_followed_as_by_the_agent(
    monkeypatch: pytest.MonkeyPatch, attached: list[Attached]
) -> None:
    @contextmanager
    def open_plans(options: AgentOptions) -> Iterator[str]:
        yield f"plans of {options.stream}"

    monkeypatch.setattr(agent, "_open_plans", open_plans)
    balance(monkeypatch, WITH_PLUGIN | {"spark.balancedstream.stream": "shop/clicks"}, Frame())
    assert attached[0].plans == "plans of shop/clicks"


def test_settings_that_are_wrong_are_said_and_the_query_can_start(
    monkeypatch: pytest.MonkeyPatch,
    attached: list[Attached],
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = WITH_PLUGIN | {"spark.balancedstream.balance.act_abov": "1.5"}
    balance(monkeypatch, wrong, Frame())
    assert attached == []
    assert "balance.act_abov: no such knob" in capsys.readouterr().err
