"""One scrape: samples made from what has been counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from balancedstream.core.keys.text import KeyNaming, name_key
from balancedstream.core.wire import series as wire
from balancedstream.metrics import catalogue
from balancedstream.metrics.counters import (
    Application,
    Operator,
    Query,
    Shuffle,
    Stores,
    Work,
)


class Page:
    """The values of one scrape: copied under the exporter's lock, made into samples without it."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._common = dict(labels)
        self._values: dict[wire.Metric, list[tuple[tuple[str, ...], float]]] = {
            metric: [] for metric in catalogue.METRICS
        }
        self._batch_durations: list[tuple[str, list[int], float]] = []

    def add(self, metric: wire.Metric, value: float | None, *labels: str) -> None:
        """Adds one value of a metric of the catalogue, if it is known."""
        if value is not None:
            self._values[metric].append((labels, value))

    def add_batch_durations(self, query: str, counts: Sequence[int], sum_s: float) -> None:
        """Adds a query's histogram: batches per bucket, and the sum of their seconds."""
        self._batch_durations.append((query, list(accumulate(counts)), sum_s))

    def families(self) -> Iterator[Metric]:
        """Yields every metric of the catalogue with the values added."""
        for metric, text in catalogue.METRICS.items():
            kind = CounterMetricFamily if metric.endswith("_total") else GaugeMetricFamily
            family = kind(metric, text, labels=(*self._common, *metric.labels))
            for labels, value in self._values[metric]:
                family.add_metric((*self._common.values(), *map(_encodable, labels)), value)
            yield family
        histogram = HistogramMetricFamily(
            wire.BATCH_DURATION,
            catalogue.BATCH_DURATION_HELP,
            labels=(*self._common, *wire.BATCH_DURATION.labels),
        )
        bounds = [*map(str, catalogue.BATCH_DURATION_BUCKETS_S), "+Inf"]
        for query, counts, sum_s in self._batch_durations:
            labels = (*self._common.values(), _encodable(query))
            histogram.add_metric(labels, list(zip(bounds, counts, strict=True)), sum_s)
        yield histogram


def _encodable(label: str) -> str:
    r"""A label's value that can be written in UTF-8, without which the whole scrape would fail.

    A name in Java or JSON may hold half of a surrogate pair.

    >>> print(_encodable("clicks\udca0"))
    clicks\udca0
    """
    return label if label.isascii() else label.encode(errors="backslashreplace").decode()


def write_application(page: Page, build: Sequence[str], application: Application) -> None:
    """Adds the values of the application; `build` has the versions that run here."""
    page.add(catalogue.BUILD_INFO, 1, *build)
    page.add(catalogue.MOVES, application.moves)
    page.add(catalogue.MOVES_SETTLED, application.moves_settled)
    for outcome, prepared in application.preparations.items():
        page.add(wire.PREPARATIONS, prepared.moves, outcome)
        page.add(wire.PREPARED_BYTES, prepared.state_bytes, outcome)
        page.add(wire.PREPARED_SECONDS, prepared.spent_s, outcome)
    page.add(catalogue.KEY_MOVES, application.key_moves)
    page.add(catalogue.KEY_MOVES_SETTLED, application.key_moves_settled)
    page.add(wire.MOVE_FIXED_SECONDS, application.restore_cost.fixed_s)
    page.add(wire.MOVE_BYTES_PER_SECOND, application.restore_cost.bytes_per_s)
    page.add(wire.MOVE_KEY_SECONDS, application.restore_cost.key_s)
    for direction, actions in application.scale_actions.items():
        page.add(catalogue.SCALE_ACTIONS, actions, direction)
    for cause, losses in application.losses.items():
        page.add(wire.EXECUTOR_LOSSES, losses, cause)
    page.add(wire.PLAN_EPOCH, application.epoch)
    page.add(wire.EXECUTORS, application.live)
    page.add(catalogue.EXECUTORS_WANTED, application.wanted)
    page.add(catalogue.EXECUTORS_ADVISED, application.advised)
    cost = application.cost_a_day()
    if cost is not None:
        page.add(catalogue.COST_PER_DAY, cost.spent, "spent", cost.currency)
        page.add(catalogue.COST_PER_DAY, cost.saved, "saved", cost.currency)
    for executor, cores in application.executors.items():
        page.add(wire.EXECUTOR_CORES, cores, executor)
    for holder in application.holders:
        page.add(wire.SLOTS_NEEDED, holder.slots or 0, holder.query, holder.trigger)
        for executor, slots in holder.held.items():
            page.add(wire.SLOTS_HELD, slots, holder.query, executor)
    _write_memory(page, application)


def _write_memory(page: Page, application: Application) -> None:
    memory = application.memory
    if not memory.executors:
        return
    page.add(wire.STATE_MEMORY_GROWTH, memory.growth)
    page.add(wire.EXECUTOR_MEMORY_LIMIT, memory.limits.executor_bytes, wire.WHOLE)
    page.add(wire.EXECUTOR_MEMORY_LIMIT, memory.limits.heap_bytes, wire.HEAP)
    page.add(wire.EXECUTOR_MEMORY_LIMIT, memory.limits.rocksdb_bytes, wire.ROCKSDB)
    for use in memory.executors:
        if use.executor not in application.executors:
            continue
        for part, size in (
            (wire.HEAP, use.heap_bytes),
            (wire.OFF_HEAP, use.off_heap_bytes),
            (wire.PYTHON, use.python_bytes),
            (wire.ROCKSDB, use.rocksdb_bytes),
            (wire.RESIDENT, use.resident_bytes),
            (wire.STATE, use.state_bytes),
        ):
            page.add(wire.EXECUTOR_MEMORY, size, use.executor, part)


def write_query(page: Page, name: str, query: Query) -> None:
    """Adds the values of one query."""
    page.add(wire.BATCHES, sum(query.durations), name)
    page.add_batch_durations(name, query.durations, query.duration_s)
    page.add(wire.INPUT_ROWS, query.input_rows, name)
    page.add(catalogue.TASK_FAILURES, query.task_failures, name)
    page.add(wire.KEYS_UNDER_WAY, query.keys_under_way, name)
    page.add(wire.LAST_KEY_ARRIVAL, query.last_key_arrival, name)
    page.add(wire.QUERY_IDLE_TIMESTAMP, query.idle_s, name)
    for part, driver_s in query.driver_s.items():
        page.add(wire.DRIVER_SECONDS, driver_s, name, part)
    for kind, stage in query.stages.items():
        page.add(wire.STAGE_TASKS, stage.tasks, name, kind)
        page.add(wire.STAGE_LONGEST_TASK, stage.longest_s, name, kind)
        for executor, busy_s in stage.executor_busy_s.items():
            page.add(wire.STAGE_BUSY, busy_s, name, kind, executor)
    last = query.last
    if last is None:
        return
    page.add(wire.LAST_BATCH_ID, last.batch, name)
    page.add(wire.LAST_BATCH_TIMESTAMP, last.finished_s, name)
    page.add(wire.LAST_BATCH_DURATION, last.duration_s, name)
    # Spark reports an input rate of 0 for the first batch, although none is known yet.
    if last.interval_s:
        page.add(catalogue.INPUT_ROWS_PER_SECOND, last.input_rows / last.interval_s, name)
    if last.duration_s:
        page.add(catalogue.PROCESSED_ROWS_PER_SECOND, last.input_rows / last.duration_s, name)
    page.add(wire.TRIGGER_INTERVAL, last.trigger_s, name)
    page.add(wire.BACKLOG_ROWS, last.backlog_rows, name)


def write_operator(
    page: Page,
    labels: tuple[str, str],
    operator: Operator,
    executors: Iterable[str],
    key_naming: KeyNaming,
) -> None:
    """Adds the values of one operator, its partitions, and its work on each live executor."""
    for kind, decisions in operator.decisions.items():
        page.add(catalogue.DECISIONS, decisions, *labels, kind)
    if operator.balance is not None:
        imbalance, bound = operator.balance
        page.add(catalogue.IMBALANCE_RATIO, imbalance, *labels)
        page.add(catalogue.IMBALANCE_BOUND_RATIO, bound, *labels)
    page.add(wire.MOVES_UNDER_WAY, operator.under_way, *labels)
    page.add(wire.MOVES_PREPARING, operator.preparing, *labels)
    page.add(wire.MOVES_PREPARED, int(operator.prepared), *labels)
    for key in operator.hot_keys:
        name = name_key(key.key, key_naming)
        if name is not None:
            page.add(wire.HOT_KEY_BUSY, key.busy_s, *labels, str(key.partition), name)
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
        page.add(wire.PARTITION_BUSY, partition.work.busy_s, *one)
        page.add(wire.PARTITION_STATE_LOAD, partition.work.restore_s, *one)
        page.add(wire.PARTITION_RECORDS, partition.work.records, *one)
        page.add(wire.PARTITION_STATE_BYTES, partition.state_bytes, *one)
        page.add(wire.PARTITION_EXECUTOR, 1, *one, partition.executor)
    page.add(catalogue.PARTITIONS, len(operator.partitions), *labels)
    page.add(wire.PARTITIONS_HIDDEN, hidden, *labels)
    page.add(wire.OPERATOR_BUSY, operator.work.busy_s, *labels)
    page.add(wire.OPERATOR_STATE_LOAD, operator.work.restore_s, *labels)
    page.add(catalogue.OPERATOR_RECORDS, operator.work.records, *labels)
    _write_stores(page, labels, operator, executors)
    for executor in executors:
        work = operator.executors.get(executor, Work())
        page.add(wire.EXECUTOR_BUSY, work.busy_s, *labels, executor)
        page.add(wire.EXECUTOR_STATE_LOAD, work.restore_s, *labels, executor)
        page.add(catalogue.EXECUTOR_RECORDS, work.records, *labels, executor)
        page.add(wire.EXECUTOR_STATE_BYTES, state_bytes[executor], *labels, executor)
        page.add(catalogue.EXECUTOR_PARTITIONS, placed[executor], *labels, executor)


def _write_stores(
    page: Page, labels: tuple[str, str], operator: Operator, executors: Iterable[str]
) -> None:
    """Adds how state is read, and what RocksDB takes on each live executor."""
    if operator.reads is not None:
        page.add(wire.STATE_READ, operator.reads.get_s, *labels)
        page.add(wire.STATE_READ_LEAST, operator.reads.least_s, *labels)
        page.add(wire.STATE_READ_MISSES, operator.reads.misses, *labels)
        page.add(wire.STATE_READ_DELAY, operator.reads.delay_s, *labels)
        page.add(wire.STATE_READ_BATCH, operator.reads.batch_s, *labels)
    for executor in executors if operator.stores else ():
        stores = operator.stores.get(executor, Stores())
        page.add(catalogue.STATE_MEMORY, stores.memory_bytes, *labels, executor)
        page.add(catalogue.STATE_PINNED, stores.pinned_bytes, *labels, executor)
        page.add(catalogue.STATE_READS, stores.reads, *labels, executor)
        page.add(catalogue.STATE_READ_SECONDS, stores.read_s, *labels, executor)
        page.add(catalogue.STATE_CACHE_HITS, stores.hits, *labels, executor)
        page.add(catalogue.STATE_CACHE_MISSES, stores.misses, *labels, executor)


def write_shuffle(page: Page, name: str, shuffle: Shuffle) -> None:
    """Adds the values of one shuffle."""
    for routed in ("estimates", "round robin"):
        page.add(catalogue.SHUFFLE_BATCHES, shuffle.batches[routed], name, routed)
    page.add(wire.SHUFFLE_TRUSTED, shuffle.last.trusted, name)
    page.add(wire.SHUFFLE_UNTRUSTED_BATCHES, shuffle.untrusted_batches, name)
    page.add(catalogue.SHUFFLE_IMBALANCE_RATIO, shuffle.last.imbalance(), name)
    if shuffle.errors is not None:
        error, equal_error = shuffle.errors
        page.add(wire.SHUFFLE_ERROR, error, name)
        page.add(wire.SHUFFLE_EQUAL_ERROR, equal_error, name)
    for partition, load_s in shuffle.estimated_s.items():
        page.add(catalogue.SHUFFLE_ESTIMATED_SECONDS, load_s, name, str(partition))
    for partition, load_s in shuffle.real_s.items():
        page.add(catalogue.SHUFFLE_REAL_SECONDS, load_s, name, str(partition))
