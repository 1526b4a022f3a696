"""Alerts and dashboard, with Helm and promtool themselves; no cluster is needed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from charts import (
    ALERT_TESTS,
    ALERTS,
    DASHBOARD,
    EVERYTHING,
    dashboard_queries,
    documented_metrics,
    only,
    render,
    run,
)

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]

HISTOGRAMS = {"balancedstream_operator_pass_seconds", "balancedstream_batch_duration_seconds"}


def test_alerts_are_in_the_prometheus_rule_as_they_are(helm: str) -> None:
    rule = only(render(helm, *EVERYTHING, "monitoring.rules.labels.release=p"), "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "p"
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text("utf-8"))


def test_promtool_accepts_the_alerts(promtool: str) -> None:
    result = run([promtool, "check", "rules", "--lint-fatal", str(ALERTS)])
    assert result.returncode == 0, result.stdout + result.stderr


def test_alerts_fire_when_they_should_and_only_then(promtool: str) -> None:
    result = run([promtool, "test", "rules", ALERT_TESTS.name], cwd=ALERT_TESTS.parent)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_dashboard_is_in_the_config_map_as_it_is(helm: str) -> None:
    manifests = render(helm, *EVERYTHING)
    config = only(manifests, "ConfigMap")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    [text] = config["data"].values()
    assert json.loads(text) == json.loads(DASHBOARD.read_text("utf-8"))


def test_promtool_accepts_every_query_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    queries = list(dashboard_queries())
    assert len(queries) >= 20
    rules = [{"record": f"query:{i}", "expr": expr} for i, (_, expr) in enumerate(queries)]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8")
    result = run([promtool, "check", "rules", str(path)])
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(queries)} rules found" in result.stdout


def made_up_series() -> Iterator[dict[str, str]]:
    """Every metric there is, of two streams whose drivers were restarted and moved a partition.

    Prometheus still has what the drivers before the restart said, because nothing marks it as
    stale here: a query must not stumble over the same thing said twice.
    """
    choices = {
        "stream": ["shop/clicks", "shop/visits"],
        "query": ["counts"],
        "operator": ["0", "1"],
        "partition": ["0", "1", "2"],
        "executor": ["1", "2"],
    }
    for name, labels in documented_metrics().items():
        sets = itertools.product(*(choices.get(label, ["a", "b"]) for label in labels))
        for values in sets:
            for instance, samples in (("before", "1+3x10 _x10"), ("after", "_x10 1+2x10")):
                given = {**dict(zip(labels, values, strict=True)), "instance": instance}
                buckets = [("_bucket", {"le": le}) for le in ("1", "10", "+Inf")]
                parts = [*buckets, ("_count", {}), ("_sum", {})]
                for suffix, more in parts if name in HISTOGRAMS else [("", {})]:
                    pairs = ", ".join(f'{k}="{v}"' for k, v in {**given, **more}.items())
                    yield {"series": f"{name}{suffix}{{{pairs}}}", "values": samples}


def test_every_query_of_the_dashboard_finds_something(promtool: str, tmp_path: Path) -> None:
    evaluations = []
    for title, expr in dashboard_queries():
        chosen = expr.replace("$stream", "shop/.*").replace("$query", "counts")
        evaluations += [
            {
                "expr": f"count({chosen}) > bool 0 # {title}",
                "eval_time": minute,
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
            for minute in ("8m", "12m", "18m")
        ]
    case = {
        "interval": "1m",
        "input_series": list(made_up_series()),
        "promql_expr_test": evaluations,
    }
    path = tmp_path / "queries-test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}), "utf-8")
    result = run([promtool, "test", "rules", str(path)])
    assert result.returncode == 0, result.stdout + result.stderr
