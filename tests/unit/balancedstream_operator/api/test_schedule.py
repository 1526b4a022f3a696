"""At certain times nothing is moved or scaled, or there are more executors."""

from __future__ import annotations

from typing import Any

import pytest
from supervised import Scene, conditions

from balancedstream.errors import InvalidInputError
from balancedstream_operator.api.spec import find_unknown, read_spec

# The scene begins at 02:46:40 UTC of a Thursday.
NOW = {"cron": "45 2 * * *", "durationSeconds": 3600}
LATER = {"cron": "0 12 * * *", "durationSeconds": 3600}
UNTIL = "excluded until 03:45 UTC"


def manifest(**schedule: Any) -> dict[str, Any]:
    return {**Scene().resource["spec"], "schedule": schedule}


def make_scene(**spec: Any) -> Scene:
    """One with skew, where no executor is empty."""
    scene = Scene(**spec)
    scene.placement = {0: "1", 1: "1", 2: "1", 3: "2"}
    return scene


def test_nothing_moves_while_a_period_is_excluded_and_the_reason_says_until_when() -> None:
    scene = make_scene(schedule={"excluded": [NOW]})
    scene.run_until_running()
    done = scene.run_pass()
    assert scene.cluster.plan() is None
    assert conditions(done)["Excluded"] == ("True", "InPeriod")
    assert done.status["reason"].startswith(f"query q, operator 0: no change: {UNTIL} (2 moves: ")
    # When it is over, what it held back is done.
    scene.now_s += 3600
    scene.finish_batches()
    done = scene.run_pass()
    assert conditions(done)["Excluded"] == ("False", "NotExcluded")
    assert scene.cluster.plan() is not None


def test_nothing_is_scaled_even_where_limits_change() -> None:
    scene = make_scene(schedule={"excluded": [NOW]})
    scene.run_until_running()
    for limits in ({"min": 4, "max": 6}, {"min": 1, "max": 4, "fixed": 4}):
        scene.resource["spec"] |= {"executors": limits}
        scene.finish_batches()
        done = scene.run_pass()
        assert done.status["desiredExecutors"] == 2
        assert scene.cluster.plan() is None
    scene.resource["spec"]["schedule"] = {}
    scene.finish_batches()
    assert scene.run_pass().status["desiredExecutors"] == 4


def test_an_executor_that_takes_the_place_of_a_lost_one_gets_its_share() -> None:
    scene = make_scene(schedule={"excluded": [NOW]})
    scene.run_until_running()
    scene.executors = {"1": 1, "3": 1}
    scene.finish_batches()
    scene.run_pass()
    plan = scene.cluster.plan()
    assert plan is not None
    assert plan.executors == ("1", "3")
    assert "3" in plan.owners("q", 0).values()


def test_nothing_is_proposed_and_an_approval_is_refused_with_the_reason() -> None:
    advise = {"mode": "Advise"}
    scene = make_scene(balancing=advise)
    scene.run_until_running()
    proposed = scene.run_pass().status["proposal"]["id"]
    scene.resource["spec"]["schedule"] = {"excluded": [NOW]}
    scene.resource["metadata"]["annotations"] = {"balancedstream.io/approve": proposed}
    scene.finish_batches()
    done = scene.run_pass()
    assert done.status.get("proposal") is None
    assert UNTIL in done.status["approval"]["message"]


def test_another_time_changes_nothing() -> None:
    scene = Scene(schedule={"excluded": [LATER], "floors": [{**LATER, "minExecutors": 4}]})
    scene.run_until_running()
    done = scene.run_pass()
    assert scene.cluster.plan() is not None
    assert conditions(done)["Excluded"] == ("False", "NotExcluded")
    assert done.status["desiredExecutors"] == 2


@pytest.mark.parametrize("mode", ["Auto", "Advise", "Off"])
def test_a_floor_raises_the_minimum_in_every_mode_within_the_maximum(mode: str) -> None:
    floors = [{**NOW, "minExecutors": 3}, {**NOW, "minExecutors": 9}][: 1 if mode == "Auto" else 2]
    scene = Scene(schedule={"floors": floors}, scaling={"mode": mode})
    scene.run_until_running()
    done = scene.run_pass()
    wanted = 3 if mode == "Auto" else 4
    assert done.status["desiredExecutors"] == wanted
    (decision,) = [d for d in done.status["decisions"] if d["kind"] == "scale"]
    assert f"at least {floors[-1]['minExecutors']} until 03:45 UTC" in decision["reason"]


def test_a_floor_waits_in_an_excluded_period() -> None:
    scene = Scene(schedule={"excluded": [NOW], "floors": [{**NOW, "minExecutors": 4}]})
    scene.run_until_running()
    assert scene.run_pass().status["desiredExecutors"] == 2


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ({"excluded": {}}, r"^spec\.schedule\.excluded: must be a list"),
        ({"excluded": [NOW] * 9}, r"^spec\.schedule\.excluded: must have at most 8 items"),
        ({"excluded": [{"cron": "* * * * *"}]}, r"excluded\[0\]\.durationSeconds: missing"),
        ({"excluded": [{**NOW, "cron": "0 8 * *"}]}, r"^spec\.schedule\.excluded\[0\]\.cron: must"),
        (
            {"excluded": [NOW, {**NOW, "timeZone": "Berlin"}]},
            r"^spec\.schedule\.excluded\[1\]\.timeZone: must be a name of the IANA",
        ),
        (
            {"repartitions": [NOW, {**NOW, "timeZone": "Berlin"}]},
            r"^spec\.schedule\.repartitions\[1\]\.timeZone: must be a name of the IANA",
        ),
        ({"floors": [{**NOW, "durationSeconds": 1}]}, r"^spec\.schedule\.floors\[0\]\.durationSec"),
        ({"floors": [{**NOW, "minExecutors": 0}]}, r"^spec\.schedule\.floors\[0\]\.minExecutors"),
    ],
)
def test_a_schedule_that_is_none_is_refused_by_the_name_of_its_field(
    schedule: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        read_spec(manifest(**schedule))


def test_fields_of_a_newer_schedule_are_ignored_and_named() -> None:
    given = manifest(excluded=[{**NOW, "mood": "good"}])
    assert find_unknown(given) == ["spec.schedule.excluded[0].mood"]
    (period,) = read_spec(given).policy.schedule.excluded
    assert (period.cron, period.duration_s, period.time_zone) == ("45 2 * * *", 3600, "UTC")


def test_a_spec_that_the_schedule_makes_invalid_says_so_in_the_status() -> None:
    scene = Scene(schedule={"excluded": [{**NOW, "cron": "61 2 * * *"}]})
    done = scene.run_pass()
    assert conditions(done)["Accepted"] == ("False", "InvalidSpec")
    assert "spec.schedule.excluded[0].cron: minute must be" in done.status["reason"]
