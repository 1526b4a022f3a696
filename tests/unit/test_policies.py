"""A policy as users write it: a file, and single knobs beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from balancedstream.core.policy import BalancePolicy, Policy, ScalingPolicy
from balancedstream.errors import InvalidInputError
from balancedstream.policies import read_policy


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text("balance: {act_above: 1.5, mode: advise}\nwindow:\n")
    return path


def test_without_a_file_and_knobs_it_is_the_default() -> None:
    assert read_policy(None) == read_policy(None, {}) == Policy()


def test_single_knobs_stand_in_for_those_of_the_file(file: Path) -> None:
    assert read_policy(file).balance == BalancePolicy(act_above=1.5, mode="advise")
    knobs = {"balance.mode": "auto", "scaling.max_executors": "6", "scaling.mode": "off"}
    policy = read_policy(file, knobs)
    assert policy.balance == BalancePolicy(act_above=1.5)
    assert policy.scaling == ScalingPolicy(max_executors=6, mode="off")


@pytest.mark.parametrize(
    ("knob", "text", "said"),
    [
        ("balance.act_abov", "1.5", "balance.act_abov: no such knob"),
        ("blance.act_above", "1.5", "blance.act_above: no such knob"),
        ("window", "5", "window: no such knob"),
        ("window.batches", "many", "window.batches: must be an integer from 1 to 1000, not 'many'"),
        ("window.batches", "[", "window.batches: must be an integer"),
        ("balance.mode", "automatic", "balance.mode: must be one of auto, advise, off"),
    ],
)
def test_a_knob_that_is_wrong_is_named(knob: str, text: str, said: str, file: Path) -> None:
    for path in (None, file):
        with pytest.raises(InvalidInputError, match=r"knob|must be") as refused:
            read_policy(path, {knob: text})
        assert str(refused.value).startswith(said)


def test_what_is_wrong_in_the_file_is_said_whatever_the_knobs(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("- balance\n")
    with pytest.raises(InvalidInputError, match="policy: must be a mapping"):
        read_policy(path, {"window.batches": "4"})
