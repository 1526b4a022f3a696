"""Decisions where partitions are hidden; observations are read back as they were written."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from balancedstream.core.decisions import decide
from balancedstream.core.observations import Observation, ScaleOut, parse_observation
from balancedstream.core.policy import Policy
from balancedstream.core.samples import (
    BatchSample,
    HiddenSample,
    KeySample,
    StageSample,
    TaskSample,
)
from balancedstream.errors import InvalidInputError

OBSERVATION = Observation(
    now_s=50.0,
    executors={"a": 2},
    tasks=(TaskSample("q", 0, 1, 3, "a", 0.5, 10, 100, 40.0),),
    batches=(BatchSample("q", 3, 40.0, 2.0, 10, 5.0, None, 5.0, gaps_s=0.5),),
    keys=(KeySample("q", 0, '"de"', 1, 3, 0.2),),
    stages=(StageSample("q", 3, "source", 40.0, 4, 0.5, {"a": 1.5}),),
    scale_outs=(ScaleOut("q", 10.0, 1, 2, 5.0, 0.5, failed=True),),
    idle_s={"q": 45.0},
    hidden=(HiddenSample("q", 0, 3, "a", 0.5, 70, 40.0),),
    prepared=(("q", 0),),
)


def test_every_part_of_an_observation_comes_back() -> None:
    assert parse_observation(OBSERVATION.to_json()) == OBSERVATION


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("stages", "executor_busy_s", 3),
        ("stages", "kind", 1),
        ("stages", "tasks", True),
        ("batches", "trigger_s", "5"),
        ("scale_outs", "failed", 1),
        ("scale_outs", "gain", True),
    ],
)
def test_a_field_of_the_wrong_type_is_named(part: str, field: str, value: object) -> None:
    content = json.loads(OBSERVATION.to_json())
    record = content[part][0] if isinstance(content[part], list) else content[part]
    record[field] = value
    with pytest.raises(InvalidInputError, match=rf"observation\.{part}.*\.{field}: .* wrong type"):
        parse_observation(json.dumps(content))


@pytest.mark.parametrize("value", [{}, [3], [["q"]], [["q", True]], [[0, "q"]]])
def test_prepared_operators_of_the_wrong_type_are_named(value: object) -> None:
    content = json.loads(OBSERVATION.to_json()) | {"prepared": value}
    with pytest.raises(InvalidInputError, match=r"observation\.prepared: must be"):
        parse_observation(json.dumps(content))


KEY = ("q", 0)


def test_state_that_is_loaded_ahead_keeps_no_move_from_paying_off() -> None:
    heavy = 10**11
    tasks = tuple(TaskSample("q", 0, p, 1, "a", 1.0, 5, heavy, 9.0) for p in range(4))
    observation = Observation(10.0, {"a": 1, "b": 1}, tasks)
    assert decide(observation, Policy()).balance[KEY].moves == ()
    prepared = replace(observation, prepared=(KEY,))
    assert len(decide(prepared, Policy()).balance[KEY].moves) == 2


def observe(shown: dict[int, tuple[str, float]], hidden: dict[str, float]) -> Observation:
    return Observation(
        10.0,
        {"a": 1, "b": 1},
        tuple(TaskSample("q", 0, p, 1, e, busy_s, 5, 10, 9.0) for p, (e, busy_s) in shown.items()),
        hidden=tuple(HiddenSample("q", 0, 1, e, work_s, 70, 9.0) for e, work_s in hidden.items()),
    )


def test_shown_partitions_move_to_where_the_hidden_ones_do_least() -> None:
    observation = observe({0: ("a", 1.0), 1: ("b", 1.0)}, {"a": 3.0, "b": 1.0})
    balance = decide(observation, Policy()).balance[KEY]
    assert [(move.partition, move.target) for move in balance.moves] == [(0, "b")]
    assert balance.reason == "1 move: imbalance 1.33 → 1.00 (bound 1.00)"


def test_hidden_partitions_alone_are_measured_and_nothing_is_moved() -> None:
    decision = decide(observe({}, {"a": 3.0, "b": 1.0}), Policy())
    assert decision.loads[KEY].hidden_busy_s == {"a": 3.0, "b": 1.0}
    assert decision.balance[KEY].moves == ()
    assert (
        decision.balance[KEY].reason == "no change: imbalance 1.50 is within 1.02 x the bound 1.50"
    )


def test_a_hot_key_of_a_hidden_partition_is_left_alone() -> None:
    shown = {0: ("a", 4.0), 1: ("b", 1.0)}
    keys = (KeySample("q", 0, '"de"', 0, 1, 1.5), KeySample("q", 0, '"fr"', 7, 1, 3.0))
    observation = replace(observe(shown, {"a": 1.0, "b": 1.0}), keys=keys)
    decision = decide(observation, Policy())
    assert [load.key for load in decision.key_loads[KEY]] == ['"de"']
    assert [move.key for move in decision.key_moves(KEY)] == ['"de"']
