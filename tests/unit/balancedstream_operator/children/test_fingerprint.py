"""Which changes of a spec need a new driver."""

from __future__ import annotations

from typing import Any

import pytest
from manifests import make_spec

from balancedstream_operator.children.fingerprint import fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"image": "clicks:2"},
        {"sparkConf": {"spark.a": "1"}},
        {"executors": {"min": 1, "max": 4, "cores": 2}},
        {"driver": {"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}},
        {"metrics": {"hotKeys": "off"}},
        {"driver": {"serviceAccount": {"annotations": {"a": "b"}}}},
    ],
)
def test_what_needs_a_new_driver_changes_the_fingerprint_of_a_spec(change: dict[str, Any]) -> None:
    before = fingerprint(make_spec(), "")
    assert fingerprint(make_spec(**change), "") != before
    assert fingerprint(make_spec(), "now") != before


def test_the_fingerprint_is_the_one_of_the_release_before_or_an_upgrade_replaces_all_drivers() -> (
    None
):
    spec = make_spec(
        sparkConf={"spark.a": "1"},
        driver={"memory": "2g", "podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}},
    )
    assert (fingerprint(make_spec(), ""), fingerprint(spec, "now")) == (
        "2f530f8508938c28",
        "7d7e356a38ce22d2",
    )


@pytest.mark.parametrize(
    "change",
    [
        {"executors": {"min": 2, "max": 9, "fixed": 3}},
        {"executors": {"min": 2, "max": 9, "maxCores": 9, "maxMemory": "9g", "minQuery": "3"}},
        {"schedule": {"excluded": [{"cron": "0 8 * * *", "durationSeconds": 60}]}},
        {"balancing": {"mode": "Off"}},
        {"metrics": {"intervalSeconds": 30, "labels": {"cluster": "eu"}}},
        {"suspend": True},
        {"driver": {"cpu": "500m"}},
        {"driver": {"evictable": False}},
    ],
)
def test_what_takes_effect_without_a_new_driver_does_not(change: dict[str, Any]) -> None:
    before = fingerprint(make_spec(), "")
    assert fingerprint(make_spec(**change), "") == before
