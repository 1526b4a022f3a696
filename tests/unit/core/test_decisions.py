"""A recorded observation is read back as it was, or refused with the name of the field."""

from __future__ import annotations

import json

import pytest

from balancedstream.core.decisions import Observation, parse_observation
from balancedstream.core.observations import BatchSample, KeySample, StageSample, TaskSample
from balancedstream.core.scaling import ScaleOut
from balancedstream.errors import InvalidInputError

OBSERVATION = Observation(
    now_s=50.0,
    executors={"a": 2},
    tasks=(TaskSample("q", 0, 1, 3, "a", 0.5, 10, 100, 40.0),),
    batches=(BatchSample("q", 3, 40.0, 2.0, 10, 5.0, None, 5.0, gaps_s=0.5),),
    keys=(KeySample("q", 0, '"de"', 1, 3, 0.2),),
    stages=(StageSample("q", 3, "source", 40.0, 4, 0.5, {"a": 1.5}),),
    last_scale_out=ScaleOut(10.0, 1, 2, 5.0, 0.5, failed=True),
    idle_s={"q": 45.0},
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
        ("last_scale_out", "failed", 1),
        ("last_scale_out", "gain", True),
    ],
)
def test_a_field_of_the_wrong_type_is_named(part: str, field: str, value: object) -> None:
    content = json.loads(OBSERVATION.to_json())
    record = content[part][0] if isinstance(content[part], list) else content[part]
    record[field] = value
    with pytest.raises(InvalidInputError, match=rf"observation\.{part}.*\.{field}: .* wrong type"):
        parse_observation(json.dumps(content))
