"""The operator's own metrics say what is known of each stream, and nothing of one that is gone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from balancedstream_operator.api.status import Cost, Proposal, Status, StatusCondition
from balancedstream_operator.process.metrics import OperatorMetrics
from balancedstream_operator.process.passes import Pass

DOCUMENT = Path(__file__).parents[4] / "docs" / "reference" / "operator-metrics.md"


def status(phase: str, **conditions: str) -> Status:
    return Status(
        phase=phase,
        plan_epoch=3,
        conditions=tuple(
            StatusCondition(type=kind, status=state, reason="So", last_transition_time="")
            for kind, state in conditions.items()
        ),
    )


def read(metrics: OperatorMetrics) -> dict[tuple[str, ...], float]:
    return {
        (
            sample.name.removeprefix("balancedstream_operator_"),
            *sample.labels.values(),
        ): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if "created" not in sample.name and "bucket" not in sample.name
    }


def test_a_stream_counts_from_when_it_is_seen() -> None:
    metrics = OperatorMetrics()
    metrics.add_stream("shop/clicks")
    samples = read(metrics)
    assert samples["streams", "Pending"] == 1
    assert samples["observation_failures_total", "shop/clicks"] == 0


def test_conditions_are_one_zero_or_absent() -> None:
    metrics = OperatorMetrics()
    metrics.add_pass("a/b", Pass(status("Running", Running="True", Balanced="False")))
    samples = read(metrics)
    assert samples["condition", "a/b", "Running"] == 1
    assert samples["condition", "a/b", "Balanced"] == 0
    metrics.add_pass(
        "a/b", Pass(status("Starting", Running="Unknown", Balanced="False"), took_s=0.1)
    )
    assert ("condition", "a/b", "Running") not in read(metrics)
    assert read(metrics)["streams", "Starting"] == 1
    assert ("streams", "Running") not in read(metrics)


def test_a_proposal_is_one_until_it_is_gone() -> None:
    metrics = OperatorMetrics()
    proposal = Proposal(id="4-5ca1e0", reason="would scale")
    metrics.add_pass("a/b", Pass(replace(status("Running"), proposal=proposal), took_s=0.1))
    assert read(metrics)["proposal", "a/b"] == 1
    metrics.add_pass("a/b", Pass(status("Running"), took_s=0.1))
    assert read(metrics)["proposal", "a/b"] == 0


def test_what_a_stream_costs_is_there_as_long_as_it_is_known() -> None:
    metrics = OperatorMetrics()
    cost = Cost(spent_per_day=24.0, saved_per_day=48.0, max_executors=6, currency="EUR")
    metrics.add_pass("a/b", Pass(replace(status("Running"), cost=cost), took_s=0.1))
    assert read(metrics)["cost_per_day", "a/b", "spent", "EUR"] == 24.0
    assert read(metrics)["cost_per_day", "a/b", "saved", "EUR"] == 48.0
    other = replace(cost, saved_per_day=None, currency="USD")
    metrics.add_pass("a/b", Pass(replace(status("Running"), cost=other), took_s=0.1))
    found = {key[1:]: value for key, value in read(metrics).items() if key[0] == "cost_per_day"}
    assert found == {("a/b", "spent", "USD"): 24.0}
    metrics.add_pass("a/b", Pass(status("Suspended"), took_s=0.1))
    assert not any(key[0] == "cost_per_day" for key in read(metrics))


def test_a_stream_that_is_gone_leaves_nothing() -> None:
    metrics = OperatorMetrics()
    metrics.add_stream("a/b")
    found = status("Running", Running="True", MetricsAvailable="False")
    metrics.add_pass("a/b", Pass(replace(found, cost=Cost(spent_per_day=1.0)), took_s=0.1))
    assert read(metrics)["observation_failures_total", "a/b"] == 1
    metrics.remove("a/b")
    assert not any("a/b" in key for key in read(metrics))
    assert read(metrics)["pass_seconds_count",] == 1


def test_the_document_lists_every_metric_of_the_operator() -> None:
    documented = set(re.findall(r"`(balancedstream_operator_\w+)`", DOCUMENT.read_text("utf-8")))
    exported = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in OperatorMetrics().registry.collect()
        if not family.name.startswith("process_")
    }
    assert documented == exported
