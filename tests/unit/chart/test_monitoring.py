"""Alerts say what to do, panels what to look for, and both ask for metrics that exist."""

from __future__ import annotations

import json
import re

import yaml
from charts import ALERT_TESTS, ALERTS, CHART, DASHBOARD, dashboard_queries, documented_metrics


def test_every_alert_says_how_bad_it_is_what_it_means_and_what_to_do() -> None:
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        for alert in group["rules"]:
            assert alert["labels"]["severity"] in {"critical", "warning"}, alert["alert"]
            assert alert["annotations"].keys() == {"summary", "description", "action"}
            assert re.fullmatch(r"[1-9]\d*m", alert["for"]), alert["alert"]


def test_the_readme_lists_every_alert_with_its_severity() -> None:
    readme = (CHART / "README.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| `(BalancedStream\w+)` \| (\w+) \|", readme, re.M))
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    alerts = [alert for group in groups for alert in group["rules"]]
    assert listed == {alert["alert"]: alert["labels"]["severity"] for alert in alerts}


def test_every_alert_is_tested() -> None:
    tests = ALERT_TESTS.read_text("utf-8")
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        for alert in group["rules"]:
            assert alert["alert"] in tests


def test_the_dashboard_is_laid_out() -> None:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"]


def test_what_is_drawn_in_another_way_is_a_series_of_its_panel() -> None:
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        legends = [target["legendFormat"] for target in panel.get("targets", ())]
        for override in panel.get("fieldConfig", {}).get("overrides", ()):
            matcher = override["matcher"]
            if matcher["id"] == "byRegexp":
                pattern = matcher["options"].strip("/")
                assert any(re.search(pattern, legend) for legend in legends), pattern


def test_the_dashboard_shows_what_is_to_know_of_hot_keys_and_shuffles() -> None:
    asked = {
        name for _, expr in dashboard_queries() for name in re.findall(r"balancedstream_\w+", expr)
    }
    for of, names in (
        ("", "hot_key_busy_seconds keys_under_way key_moves_total key_moves_settled_total"),
        ("shuffle_", "estimated_seconds_total real_seconds_total imbalance_ratio"),
        ("shuffle_", "estimate_error_ratio equal_error_ratio trusted"),
    ):
        assert {f"balancedstream_{of}{name}" for name in names.split()} <= asked


def test_only_metrics_that_exist_are_asked_for() -> None:
    known = documented_metrics().keys()
    texts = [expr for _, expr in dashboard_queries()]
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        texts += [alert["expr"] for alert in group["rules"]]
    asked = {name for text in texts for name in re.findall(r"balancedstream_\w+", text)}
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in asked}
    assert families <= known
