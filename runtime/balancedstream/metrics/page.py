"""One scrape: samples made from what has been counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from balancedstream.core.keys.text import KeyNaming, name_key
from balancedstream.metrics.catalogue import (
    BATCH_DURATION,
    BATCH_DURATION_BUCKETS_S,
    BATCH_DURATION_HELP,
    METRICS,
    PREFIX,
    QUERY,
)
from balancedstream.metrics.counters import Application, Operator, Query, Shuffle, Work


class Page:
    """The values of one scrape: copied under the exporter's lock, made into samples without it."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._common = dict(labels)
        self._values: dict[str, list[tuple[tuple[str, ...], float]]] = {n: [] for n in METRICS}
        self._batch_durations: list[tuple[str, list[int], float]] = []

    def add(self, name: str, value: float, *labels: str) -> None:
        """Adds one value of a metric of the catalogue."""
        self._values[name].append((labels, value))

    def add_work(self, of: str, work: Work, *labels: str) -> None:
        """Adds the three values of the work of a partition, an executor or an operator."""
        self.add(f"{of}_busy_seconds_total", work.busy_s, *labels)
        self.add(f"{of}_state_load_seconds_total", work.restore_s, *labels)
        self.add(f"{of}_records_total", work.records, *labels)

    def add_batch_durations(self, query: str, counts: Sequence[int], sum_s: float) -> None:
        """Adds a query's histogram: batches per bucket, and the sum of their seconds."""
        self._batch_durations.append((query, list(accumulate(counts)), sum_s))

    def families(self) -> Iterator[Metric]:
        """Yields every metric of the catalogue with the values added."""
        for name, series in METRICS.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(PREFIX + name, series.help, labels=(*self._common, *series.labels))
            for labels, value in self._values[name]:
                family.add_metric((*self._common.values(), *labels), value)
            yield family
        histogram = HistogramMetricFamily(
            PREFIX + BATCH_DURATION, BATCH_DURATION_HELP, labels=(*self._common, *QUERY)
        )
        bounds = [*map(str, BATCH_DURATION_BUCKETS_S), "+Inf"]
        for query, counts, sum_s in self._batch_durations:
            labels = (*self._common.values(), query)
            histogram.add_metric(labels, list(zip(bounds, counts, strict=True)), sum_s)
        yield histogram


def write_application(page: Page, build: Sequence[str], application: Application) -> None:
    """Adds the values of the application; `build` has the versions that run here."""
    page.add("build_info", 1, *build)
    page.add("moves_total", application.moves)
    page.add("moves_settled_total", application.moves_settled)
    for outcome, prepared in application.preparations.items():
        page.add("preparations_total", prepared.moves, outcome)
        page.add("prepared_bytes_total", prepared.state_bytes, outcome)
        page.add("prepared_seconds_total", prepared.spent_s, outcome)
    page.add("key_moves_total", application.key_moves)
    page.add("key_moves_settled_total", application.key_moves_settled)
    page.add("move_fixed_seconds", application.restore_cost.fixed_s)
    page.add("move_bytes_per_second", application.restore_cost.bytes_per_s)
    page.add("move_key_seconds", application.restore_cost.key_s)
    for direction, actions in application.scale_actions.items():
        page.add("scale_actions_total", actions, direction)
    for cause, losses in application.losses.items():
        page.add("executor_losses_total", losses, cause)
    page.add("plan_epoch", application.epoch)
    page.add("executors", application.live)
    if application.wanted is not None:
        page.add("executors_wanted", application.wanted)
    if application.advised is not None:
        page.add("executors_advised", application.advised)
    for executor, cores in application.executors.items():
        page.add("executor_cores", cores, executor)


def write_query(page: Page, name: str, query: Query) -> None:
    """Adds the values of one query."""
    page.add("batches_total", sum(query.durations), name)
    page.add_batch_durations(name, query.durations, query.duration_s)
    page.add("input_rows_total", query.input_rows, name)
    page.add("task_failures_total", query.task_failures, name)
    if query.keys_under_way is not None:
        page.add("keys_under_way", query.keys_under_way, name)
    if query.last_key_arrival is not None:
        page.add("last_key_arrival_batch", query.last_key_arrival, name)
    if query.idle_s is not None:
        page.add("query_idle_timestamp_seconds", query.idle_s, name)
    for part, driver_s in query.driver_s.items():
        page.add("driver_seconds_total", driver_s, name, part)
    for kind, stage in query.stages.items():
        page.add("stage_tasks_total", stage.tasks, name, kind)
        page.add("stage_longest_task_seconds_total", stage.longest_s, name, kind)
        for executor, busy_s in stage.executor_busy_s.items():
            page.add("stage_busy_seconds_total", busy_s, name, kind, executor)
    last = query.last
    if last is None:
        return
    page.add("last_batch_id", last.batch, name)
    page.add("last_batch_timestamp_seconds", last.finished_s, name)
    page.add("last_batch_duration_seconds", last.duration_s, name)
    # Spark reports an input rate of 0 for the first batch, although none is known yet.
    if last.interval_s:
        page.add("input_rows_per_second", last.input_rows / last.interval_s, name)
    if last.duration_s:
        page.add("processed_rows_per_second", last.input_rows / last.duration_s, name)
    if last.trigger_s is not None:
        page.add("trigger_interval_seconds", last.trigger_s, name)
    if last.backlog_rows is not None:
        page.add("backlog_rows", last.backlog_rows, name)


def write_operator(
    page: Page,
    labels: tuple[str, str],
    operator: Operator,
    executors: Iterable[str],
    key_naming: KeyNaming,
) -> None:
    """Adds the values of one operator, its partitions, and its work on each live executor."""
    for kind, decisions in operator.decisions.items():
        page.add("decisions_total", decisions, *labels, kind)
    if operator.balance is not None:
        imbalance, bound = operator.balance
        page.add("imbalance_ratio", imbalance, *labels)
        page.add("imbalance_bound_ratio", bound, *labels)
    page.add("moves_under_way", operator.under_way, *labels)
    page.add("moves_preparing", operator.preparing, *labels)
    page.add("moves_prepared", int(operator.prepared), *labels)
    for key in operator.hot_keys:
        name = name_key(key.key, key_naming)
        if name is not None:
            page.add("hot_key_busy_seconds", key.busy_s, *labels, str(key.partition), name)
    hidden = 0
    placed: Counter[str] = Counter()
    state_bytes: Counter[str] = Counter()
    for number, partition in operator.partitions.items():
        placed[partition.executor] += 1
        state_bytes[partition.executor] += partition.state_bytes
        if not partition.shown:
            hidden += 1
            continue
        one = (*labels, str(number))
        page.add_work("partition", partition.work, *one)
        page.add("partition_state_bytes", partition.state_bytes, *one)
        page.add("partition_executor_info", 1, *one, partition.executor)
    page.add("partitions", len(operator.partitions), *labels)
    page.add("partitions_hidden", hidden, *labels)
    page.add_work("operator", operator.work, *labels)
    for executor in executors:
        page.add_work("executor", operator.executors.get(executor, Work()), *labels, executor)
        page.add("executor_state_bytes", state_bytes[executor], *labels, executor)
        page.add("executor_partitions", placed[executor], *labels, executor)


def write_shuffle(page: Page, name: str, shuffle: Shuffle) -> None:
    """Adds the values of one shuffle."""
    for routed in ("estimates", "round robin"):
        page.add("shuffle_batches_total", shuffle.batches[routed], name, routed)
    page.add("shuffle_trusted", shuffle.last.trusted, name)
    page.add("shuffle_untrusted_batches", shuffle.untrusted_batches, name)
    page.add("shuffle_imbalance_ratio", shuffle.last.imbalance(), name)
    if shuffle.errors is not None:
        error, equal_error = shuffle.errors
        page.add("shuffle_estimate_error_ratio", error, name)
        page.add("shuffle_equal_error_ratio", equal_error, name)
    for partition, load_s in shuffle.estimated_s.items():
        page.add("shuffle_estimated_seconds_total", load_s, name, str(partition))
    for partition, load_s in shuffle.real_s.items():
        page.add("shuffle_real_seconds_total", load_s, name, str(partition))
