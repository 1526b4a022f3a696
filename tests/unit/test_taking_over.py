"""`balanced` in an application with the plugin: this process balances in the agent's place."""

from __future__ import annotations

from typing import Any

import pytest

from balancedstream import attaching, taking_over
from balancedstream.attaching import attach
from balancedstream.core.policy import BalancePolicy, Policy
from balancedstream.keyed import frames

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
    """What was attached, with which policy, and whether it still is."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.is_detached = False

    def detach(self) -> None:
        self.is_detached = True


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> list[Attached]:
    made: list[Attached] = []

    def note(spark: Any, policy: Policy, **options: Any) -> Attached:
        made.append(Attached(policy))
        return made[-1]

    monkeypatch.setattr(taking_over, "attach", note)
    monkeypatch.setattr(attaching, "stand_ins", [])
    monkeypatch.setattr(taking_over, "stand_ins", attaching.stand_ins)
    monkeypatch.setattr(frames, "balanced", lambda df, *keys, name: df)
    return made


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


def test_settings_that_are_wrong_are_said_and_the_query_can_start(
    monkeypatch: pytest.MonkeyPatch,
    attached: list[Attached],
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = WITH_PLUGIN | {"spark.balancedstream.balance.act_abov": "1.5"}
    balance(monkeypatch, wrong, Frame())
    assert attached == []
    assert "balance.act_abov: no such knob" in capsys.readouterr().err


def test_a_user_who_attaches_takes_over_in_turn(
    monkeypatch: pytest.MonkeyPatch, attached: list[Attached]
) -> None:
    balance(monkeypatch, WITH_PLUGIN, Frame())
    (before,) = attached

    class StopHereError(Exception):
        pass

    def stop(spark: Any, reason: str) -> None:
        raise StopHereError

    monkeypatch.setattr(attaching, "stand_plugin_down", stop)
    with pytest.raises(StopHereError):
        attach(Frame())
    assert before.is_detached
