"""Which changes of a spec need a new driver."""

from __future__ import annotations

from typing import Any

import pytest
from generated_specs import FULL, RUNNING, fill_in, read_schema
from manifests import make_spec

from balancedstream_operator.api.spec import read_spec
from balancedstream_operator.children.fingerprint import fingerprint_spec


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
    before = fingerprint_spec(make_spec(), "")
    assert fingerprint_spec(make_spec(**change), "") != before
    assert fingerprint_spec(make_spec(), "now") != before


def test_the_fingerprint_is_the_one_of_the_release_before_or_an_upgrade_replaces_all_drivers() -> (
    None
):
    spec = make_spec(
        sparkConf={"spark.a": "1"},
        driver={"memory": "2g", "podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}},
    )
    assert (fingerprint_spec(make_spec(), ""), fingerprint_spec(spec, "now")) == (
        "2f530f8508938c28",
        "7d7e356a38ce22d2",
    )


@pytest.mark.parametrize(
    ("fingerprint", "restart", "spec"),
    [
        ("2f530f8508938c28", "", RUNNING),
        ("2f530f8508938c28", "", fill_in(read_schema(), RUNNING)),
        ("df99a8cdfe2afe5d", "", FULL),
        ("17f74bd39922afc9", "2026-01-01", {**FULL, "partitions": 96, "suspend": True}),
        ("294ffc1177fac457", "", {**RUNNING, "labels": {"team": "shop"}}),
        ("8d4fe20c865433b9", "", {**RUNNING, "fsGroup": 0, "annotations": {"owner": "web"}}),
        (
            "a9e095e52f19548a",
            "",
            {
                **RUNNING,
                "application": {"configMap": {"name": "scripts", "key": "clicks.py"}},
                "checkpoints": {"uri": "s3a://bucket/clicks"},
            },
        ),
        (
            "ce2c7487ab90b175",
            "",
            {
                **RUNNING,
                "executors": {
                    "min": 2,
                    "max": 9,
                    "maxCores": 90,
                    "maxMemory": "90g",
                    "minQuery": "3",
                    "fixed": 3,
                    "cores": 2,
                    "cpu": "500m",
                    "serviceAccount": {"name": "workers"},
                },
                "driver": {
                    "evictable": False,
                    "serviceAccount": {"name": "mine", "annotations": {"role": "reader"}},
                },
            },
        ),
        (
            "bea5e7f6ac75b8f2",
            "",
            {
                **RUNNING,
                "sparkConf": {"spark.b": "2", "spark.a": "1"},
                "imagePullSecrets": ["b", "a"],
                "metrics": {"hotKeys": "hashed", "intervalSeconds": 30},
            },
        ),
    ],
)
def test_a_spec_keeps_its_fingerprint_or_an_upgrade_replaces_its_driver(
    fingerprint: str, restart: str, spec: dict[str, Any]
) -> None:
    read = read_spec(spec)
    assert fingerprint_spec(read, restart, read.partitions) == fingerprint


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
    before = fingerprint_spec(make_spec(), "")
    assert fingerprint_spec(make_spec(**change), "") == before
