"""What the exporter shows of what it is told."""

from __future__ import annotations

import math
import random

import pytest
from metric_samples import (
    batch_of,
    collect,
    scrape,
    select,
    series,
    shuffled,
    task_of,
    without_build_info,
)
from metric_stories import Story, tell_batches

from balancedstream.core.keys.text import KeyNaming
from balancedstream.core.money import Price
from balancedstream.core.samples import KeySample
from balancedstream.metrics.catalogue import BATCH_DURATION_BUCKETS_S
from balancedstream.metrics.exporter import Exporter
from balancedstream.version import __version__


def test_after_each_of_fifty_batches_with_moves_a_scrape_equals_a_recomputation(
    exporter: Exporter,
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    story = Story(exporter)
    for _ in tell_batches(story, random.Random(seed), 50):
        found = without_build_info(scrape(exporter))
        assert found == pytest.approx(story.samples(), rel=1e-9)


def test_what_runs_here_is_told() -> None:
    ((python_version, spark_version, version),) = select(collect(Exporter()), "build_info")
    assert python_version.startswith("3.")
    assert spark_version.startswith("4.")
    assert version == __version__


def test_before_the_first_batch_only_the_application_has_series() -> None:
    samples = collect(Exporter())
    assert not any("query" in dict(labels) for _, labels in samples)
    assert samples[series("executors")] == 0
    assert samples[series("plan_epoch")] == 0
    assert series("executors_wanted") not in samples
    assert series("executors_advised") not in samples


def test_a_partition_that_moves_keeps_its_counters_and_is_on_one_executor() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(0), [task_of(0, "0", busy_s=1.5)], {"0": 1, "1": 1})
    exporter.on_batch(batch_of(1), [task_of(0, "1", busy_s=2.0, restore_s=0.5)], {"0": 1, "1": 1})
    samples = collect(exporter)
    assert select(samples, "partition_executor_info") == {("1", "0", "0", "q"): 1}
    assert select(samples, "partition_busy_seconds_total") == {("0", "0", "q"): 3.5}
    assert select(samples, "partition_state_load_seconds_total") == {("0", "0", "q"): 0.5}
    assert select(samples, "executor_busy_seconds_total") == {
        ("0", "0", "q"): 1.5,
        ("1", "0", "q"): 2.0,
    }
    assert select(samples, "executor_partitions") == {("0", "0", "q"): 0, ("1", "0", "q"): 1}


def test_a_new_executor_without_work_is_there_with_zeros() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(), [task_of(0)], {"0": 1, "new": 4})
    samples = collect(exporter)
    labels = {"query": "q", "operator": 0, "executor": "new"}
    assert samples[series("executor_cores", executor="new")] == 4
    assert samples[series("executor_busy_seconds_total", **labels)] == 0
    assert samples[series("executor_partitions", **labels)] == 0


def test_a_lost_executor_takes_its_series_along_in_every_query() -> None:
    exporter = Exporter()
    executors = {"0": 1, "1": 1}
    for query in ("a", "b"):
        tasks = [task_of(p, str(p), query=query) for p in (0, 1)]
        exporter.on_batch(batch_of(0, query), tasks, executors)
    exporter.on_batch(batch_of(1, "a"), [task_of(p, query="a") for p in (0, 1)], {"0": 1})
    samples = collect(exporter)
    names = {name for name, labels in samples if ("executor", "1") in labels}
    assert names == {"partition_executor_info"}, "query b ran there last, and that stays true"
    assert samples[series("partition_busy_seconds_total", query="a", operator=0, partition=1)] == 2


def test_an_executor_that_takes_work_again_begins_from_zero() -> None:
    exporter = Exporter()
    for number, executors in enumerate(({"0": 1, "1": 1}, {"0": 1}, {"0": 1, "1": 1})):
        exporter.on_batch(batch_of(number), [task_of(0, "1" if number == 0 else "0")], executors)
    busy_s = select(collect(exporter), "executor_busy_seconds_total")
    assert busy_s == {("0", "0", "q"): 2.0, ("1", "0", "q"): 0.0}


def test_a_query_that_ended_leaves_nothing_and_begins_again_from_zero() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(0), [task_of(0)], {"0": 1})
    exporter.on_decision("q", 0, "move")
    exporter.on_move()
    exporter.on_move()
    exporter.on_task_failure("q")
    exporter.on_query_ended("q")
    samples = collect(exporter)
    assert not any("query" in dict(labels) for _, labels in samples)
    assert samples[series("moves_total")] == 2
    exporter.on_batch(batch_of(1), [task_of(0)], {"0": 1})
    samples = collect(exporter)
    assert samples[series("batches_total", query="q")] == 1
    assert samples[series("task_failures_total", query="q")] == 0


def test_the_end_of_an_unknown_query_is_no_event() -> None:
    exporter = Exporter()
    before = collect(exporter)
    exporter.on_query_ended("never heard of")
    assert collect(exporter) == before


def test_a_query_whose_first_batch_never_succeeds_shows_its_failures() -> None:
    exporter = Exporter()
    for _ in range(3):
        exporter.on_task_failure("q")
    samples = collect(exporter)
    assert samples[series("task_failures_total", query="q")] == 3
    assert samples[series("batches_total", query="q")] == 0
    assert series("last_batch_id", query="q") not in samples


def test_failures_reported_after_the_end_of_thousands_of_queries_leave_a_hundred() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(0, "steady"), [], {"0": 1})
    for number in range(2_000):
        query = f"run {number}"
        exporter.on_batch(batch_of(0, query), [task_of(0, query=query)], {"0": 1})
        exporter.on_query_ended(query)
        exporter.on_task_failure(query)
    queries = {key[0] for key in select(collect(exporter), "batches_total")}
    assert queries == {"steady", *(f"run {number}" for number in range(1_900, 2_000))}


def test_rates_that_are_not_known_are_absent() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(0, interval_s=None, backlog_rows=5.0), [], {"0": 1})
    samples = collect(exporter)
    assert series("input_rows_per_second", query="q") not in samples
    assert samples[series("processed_rows_per_second", query="q")] == 50
    assert samples[series("backlog_rows", query="q")] == 5
    exporter.on_batch(batch_of(1, interval_s=4.0, backlog_rows=None, duration_s=0.0), [], {"0": 1})
    samples = collect(exporter)
    assert samples[series("input_rows_per_second", query="q")] == 25
    assert series("processed_rows_per_second", query="q") not in samples
    assert series("backlog_rows", query="q") not in samples


def test_a_batch_that_takes_no_time_by_sparks_clock_makes_no_infinity() -> None:
    # apache/spark#26610 and #30546: Spark's rates of such a batch were Infinity and NaN.
    exporter = Exporter()
    for number, rows in enumerate((100, 0)):
        batch = batch_of(number, duration_s=0.0, interval_s=0.0, input_rows=rows)
        exporter.on_batch(batch, [task_of(0, busy_s=0.0)], {"0": 1})
        assert all(map(math.isfinite, collect(exporter).values()))
    exporter.on_batch(batch_of(2), [task_of(1)], {"0": 1})
    assert select(collect(exporter), "partitions_hidden") == {("0", "q"): 0}


def test_a_batch_as_long_as_a_buckets_bound_is_in_that_bucket() -> None:
    exporter = Exporter()
    for duration_s in BATCH_DURATION_BUCKETS_S:
        exporter.on_batch(batch_of(duration_s=duration_s), [], {"0": 1})
    buckets = select(collect(exporter), "batch_duration_seconds_bucket")
    for number, bound in enumerate(BATCH_DURATION_BUCKETS_S, start=1):
        assert buckets[str(bound), "q"] == number


def test_decisions_count_by_what_they_came_to_and_the_last_imbalance_is_shown() -> None:
    exporter = Exporter()
    for imbalance, bound, kind in ((1.6, 1.0, "move"), (1.5, 1.1, "hold")):
        exporter.on_imbalance("q", 0, imbalance, bound)
        exporter.on_decision("q", 0, kind)
    samples = collect(exporter)
    assert samples[series("imbalance_ratio", query="q", operator=0)] == 1.5
    assert samples[series("imbalance_bound_ratio", query="q", operator=0)] == 1.1
    assert samples[series("decisions_total", query="q", operator=0, kind="hold")] == 1


def test_moves_are_under_way_until_they_are_told_no_more() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(), [task_of(0), task_of(0, operator=1)], {"0": 1})
    exporter.on_moves_under_way({("q", 0): 3})
    assert select(collect(exporter), "moves_under_way") == {("0", "q"): 3, ("1", "q"): 0}
    exporter.on_moves_under_way({("q", 1): 1})
    assert select(collect(exporter), "moves_under_way") == {("0", "q"): 0, ("1", "q"): 1}


def test_every_series_bears_the_name_of_its_stream() -> None:
    exporter = Exporter(stream="default/clicks")
    exporter.on_batch(batch_of(), [task_of(0)], {"0": 1})
    assert all(("stream", "default/clicks") in labels for _, labels in collect(exporter))


def test_scale_actions_are_told_by_direction_with_what_is_there_and_what_is_wanted() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(), [], {"0": 1, "1": 1})
    exporter.on_scale(2, 2, 4)
    samples = collect(exporter)
    assert samples[series("executors")] == 2
    assert samples[series("executors_wanted")] == 4
    exporter.on_scale(4, 4, 3)
    samples = collect(exporter)
    assert samples[series("executors")] == 4
    assert samples[series("executors_wanted")] == 3
    assert samples[series("scale_actions_total", direction="out")] == 1
    assert samples[series("scale_actions_total", direction="in")] == 1


def test_executors_cost_money_only_with_a_price_and_save_only_beside_a_maximum() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(), [], {"0": 1, "1": 1})
    assert not select(collect(exporter), "cost_per_day")
    exporter.on_price(Price(0.5, "EUR"), 0)
    spent, saved = ("EUR", "spent"), ("EUR", "saved")
    assert select(collect(exporter), "cost_per_day") == {spent: 24.0}
    exporter.on_price(Price(0.5, "EUR"), 6)
    assert select(collect(exporter), "cost_per_day") == {spent: 24.0, saved: 48.0}
    exporter.on_executors({"0": 1})
    assert select(collect(exporter), "cost_per_day") == {spent: 12.0, saved: 60.0}


def test_loads_of_a_shuffles_partitions_add_up_and_the_rest_is_that_of_the_last_batch(
    exporter: Exporter,
) -> None:
    exporter.on_shuffle(shuffled())
    exporter.on_shuffle(shuffled(batch=1, by_estimates=True))
    samples = collect(exporter)
    of = "shuffle", "classify by kind"
    second = frozenset([of, ("shuffle_partition", "1")])
    assert samples["shuffle_real_seconds_total", second] == 2.0
    assert samples["shuffle_estimated_seconds_total", second] == 2.0
    for routed in ("estimates", "round robin"):
        assert samples["shuffle_batches_total", frozenset([of, ("routed", routed)])] == 1
    assert samples["shuffle_imbalance_ratio", frozenset([of])] == 2.0
    assert samples["shuffle_estimate_error_ratio", frozenset([of])] == 0.1


def test_batches_that_leave_estimates_untrusted_are_counted_if_they_judged_them(
    exporter: Exporter,
) -> None:
    of = frozenset([("shuffle", "classify by kind")])

    def tell(*, errors: tuple[float, float] | None, trusted: bool = False) -> float:
        exporter.on_shuffle(shuffled(errors=errors, trusted=trusted))
        return collect(exporter)["shuffle_untrusted_batches", of]

    assert tell(errors=None) == 0, "nothing was learnt before the first batch"
    assert ("shuffle_equal_error_ratio", of) not in collect(exporter)
    assert [tell(errors=(0.6, 0.5)) for _ in range(3)] == [1, 2, 3]
    assert tell(errors=None) == 3, "too few rows decide nothing"
    assert collect(exporter)["shuffle_equal_error_ratio", of] == 0.5, "as it was last found"
    assert tell(errors=(0.1, 0.5), trusted=True) == 0
    assert tell(errors=(0.6, 0.5)) == 1


def test_of_many_shuffles_with_many_partitions_some_are_shown(exporter: Exporter) -> None:
    for number in range(50):
        exporter.on_shuffle(shuffled(name=f"shuffle {number}", partitions=500))
    samples = [name for name, _ in collect(exporter) if name.startswith("shuffle_")]
    assert len(samples) == 20 * (7 + 2 * 100)


@pytest.mark.parametrize(
    ("naming", "shown"),
    [("plain", {'"de"'}), ("hashed", {"#fa20977256dfdd5a"}), ("off", set())],
)
def test_hot_keys_are_shown_as_they_are_or_hashed_or_not_at_all(
    naming: KeyNaming, shown: set[str]
) -> None:
    exporter = Exporter(hot_keys=naming)
    exporter.on_batch(batch_of(), [task_of(0)], {"0": 1})
    exporter.on_hot_keys("q", 0, (KeySample("q", 0, '"de"', 0, 1, 0.5),))
    samples = [sample for family in exporter.collect() for sample in family.samples]
    hot = [s for s in samples if s.name == "balancedstream_hot_key_busy_seconds"]
    assert {sample.labels["key"] for sample in hot} == shown
    assert naming == "plain" or not any('"de"' in str(sample.labels) for sample in samples)


def test_state_that_was_loaded_ahead_is_counted_by_what_became_of_it() -> None:
    exporter = Exporter()
    exporter.on_preparation("used", 1000, 2.5)
    exporter.on_preparation("used", 500, 0.5)
    exporter.on_preparation("failed", 10, 0.0)
    samples = collect(exporter)
    assert select(samples, "preparations_total") == {("used",): 2, ("wasted",): 0, ("failed",): 1}
    assert select(samples, "prepared_bytes_total")[("used",)] == 1500
    assert select(samples, "prepared_seconds_total")[("used",)] == 3.0


def test_an_operator_shows_whether_its_moves_are_prepared() -> None:
    exporter = Exporter()
    exporter.on_batch(batch_of(0), [task_of(0), task_of(0, operator=1)], {"0": 1})
    exporter.on_moves_prepared({("q", 1): 2})
    samples = collect(exporter)
    assert select(samples, "moves_prepared") == {("0", "q"): 0, ("1", "q"): 1}
    assert select(samples, "moves_preparing") == {("0", "q"): 0, ("1", "q"): 2}
