"""`/metrics` for Prometheus: what each partition, executor and query did, and the balancer.

The exporter counts what it is told and makes samples of it at each scrape, under one lock: a scrape
sees whole batches only, and a partition that moves is always on exactly one executor.

The work of a partition is a counter without the executor among its labels, so it continues when the
partition moves; an info series of its own says where it runs. `docs/reference/metrics.md` lists
every metric, how many series there can be, and what happens to counters whose series are removed.
"""

from __future__ import annotations

import platform
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

import pyspark
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.keys.text import KeyNaming
from balancedstream.core.memory.use import Memory
from balancedstream.core.money import Price
from balancedstream.core.samples import (
    BatchSample,
    KeySample,
    LossCause,
    ShuffleRecord,
    SlotHolder,
    StageSample,
    StoreSample,
    TaskSample,
)
from balancedstream.core.wire import series as wire
from balancedstream.errors import InvalidInputError
from balancedstream.metrics.catalogue import BATCH_DURATION_BUCKETS_S, SERIES_PER_PARTITION
from balancedstream.metrics.counters import (
    Application,
    Operator,
    Query,
    Shuffle,
    Stage,
    Stores,
    choose_shown,
)
from balancedstream.metrics.page import (
    Page,
    write_application,
    write_operator,
    write_query,
    write_shuffle,
)
from balancedstream.metrics.server import Server
from balancedstream.record.records import PreparationOutcome
from balancedstream.record.spectators import Metrics
from balancedstream.version import __version__

MAX_PARTITION_SERIES = 10_000
"""Default of the series with a `partition` label over all queries: 2,000 partitions."""

MAX_QUERIES_WITHOUT_BATCH = 100
"""Failures that Spark reports after their query ended would pile up; of the queries without a
batch, the latest ones are kept."""

MAX_SHUFFLES = 20
"""Shuffles with series; a new one beyond that replaces the oldest."""

MAX_SHUFFLE_PARTITIONS = 100
"""Partitions of a shuffle with series of their own: the first ones, because all are alike."""

MIN_BATCH_S = 0.001
"""Spark's progress counts milliseconds; a shorter batch would count as no time."""


class Exporter(Metrics, Collector):
    """Counts what the loop tells it, and serves it at `/metrics`.

    The methods of `Metrics` are described there. Each takes microseconds, `on_batch` some per
    partition. None of them fails or depends on scrapes.

    Args:
        max_partition_series: series with a `partition` label over all queries, at least 0. If all
            partitions would need more, the hottest have series, by busy seconds per second; the
            sums per executor always cover all.
        stream: value of the label `stream` of every series, `namespace/name` of a BalancedStream;
            empty for no such label.
        hot_keys: whether hot keys are shown in plain text, hashed, or not at all.
        spark_version: of the driver.

    Raises:
        InvalidInputError: `max_partition_series` is negative.
    """

    def __init__(
        self,
        max_partition_series: int = MAX_PARTITION_SERIES,
        *,
        stream: str = "",
        hot_keys: KeyNaming = "plain",
        spark_version: str = pyspark.__version__,
    ) -> None:
        if max_partition_series < 0:
            message = (
                f"max_partition_series: must be at least 0, not {max_partition_series}; the job "
                "was not started: no data was read, changed or lost."
            )
            raise InvalidInputError(message)
        self._labels = {wire.STREAM: stream} if stream else {}
        self.key_naming: KeyNaming = hot_keys
        self._max_shown = max_partition_series // SERIES_PER_PARTITION
        self._build = (__version__, spark_version, platform.python_version())
        self._lock = threading.Lock()
        self._queries: dict[str, Query] = {}
        self._shuffles: dict[str, Shuffle] = {}
        self._application = Application()
        self._server = Server(self)

    def start(self, port: int, addr: str = "127.0.0.1") -> None:
        """Starts to serve, from a daemon thread; a server that already runs is closed first.

        Args:
            port: TCP port; 0 picks a free one, see `port`.
            addr: address to listen on. The default can be reached from this machine only; a pod,
                whose metrics are scraped from outside, needs "0.0.0.0", which is all, also of IPv6.

        Raises:
            PortInUseError: something else listens on that port.
            InvalidInputError: the port is no port or not permitted, or the address is not one of
                this machine's.
        """
        self._server.start(port, addr)

    @property
    def port(self) -> int | None:
        """The TCP port; None before `start` and after `close`."""
        return self._server.port

    def close(self) -> None:
        """Stops serving and frees the port; does nothing if nothing is served."""
        self._server.close()

    def serve_report(self, render: Callable[[], str], version: Callable[[], object]) -> None:
        self._server.report.follow(render, version)

    def on_batch(
        self,
        sample: BatchSample,
        tasks: Sequence[TaskSample],
        executors: Mapping[str, int],
        stages: Sequence[StageSample] = (),
    ) -> None:
        # It may have started before the loop did.
        self._server.start_query(sample.query)
        period_s = max(sample.duration_s, sample.interval_s or 0.0, MIN_BATCH_S)
        with self._lock:
            query = self._query(sample.query)
            query.last = sample
            query.input_rows += sample.input_rows
            query.duration_s += sample.duration_s
            query.durations[bisect_left(BATCH_DURATION_BUCKETS_S, sample.duration_s)] += 1
            query.add_driver_times(sample)
            query.ran_on = {executor for stage in stages for executor in stage.executor_busy_s}
            for stage in stages:
                query.stages.setdefault(stage.kind, Stage()).add(stage)
            for number, of_operator in groupby(tasks, attrgetter("operator")):
                operator = query.operators.setdefault(number, Operator())
                for task in of_operator:
                    operator.add(task, task.busy_s / period_s)
            self._update_executors(executors)
            self._choose_shown()

    def on_memory(self, memory: Memory, stores: Sequence[StoreSample]) -> None:
        with self._lock:
            self._application.memory = memory
            for number, of_operator in groupby(stores, attrgetter("operator")):
                mine = tuple(of_operator)
                operator = self._operator(mine[0].query, number)
                ran_on = {store.executor for store in mine}
                for executor, before in operator.stores.items():
                    if executor not in ran_on:
                        before.memory_bytes = before.pinned_bytes = 0
                for store in mine:
                    operator.stores.setdefault(store.executor, Stores()).add(store)
            for reads in memory.reads:
                self._operator(reads.query, reads.operator).reads = reads

    def on_idle(self, query: str, at_s: float) -> None:
        self._server.start_query(query)
        with self._lock:
            self._query(query).idle_s = at_s

    def on_holders(self, holders: Sequence[SlotHolder]) -> None:
        with self._lock:
            self._application.holders = tuple(holders)

    def on_executors(self, executors: Mapping[str, int]) -> None:
        with self._lock:
            self._update_executors(executors)

    def on_loss(self, cause: LossCause) -> None:
        with self._lock:
            self._application.losses[cause] += 1

    def on_imbalance(self, query: str, operator: int, imbalance: float, bound: float) -> None:
        with self._lock:
            self._operator(query, operator).balance = (imbalance, bound)

    def on_decision(self, query: str, operator: int, kind: str) -> None:
        with self._lock:
            self._operator(query, operator).decisions[kind] += 1

    def on_executors_advised(self, count: int) -> None:
        with self._lock:
            self._application.advised = count

    def on_moves_under_way(self, counts: Mapping[tuple[str, int], int]) -> None:
        with self._lock:
            for name, query in self._queries.items():
                for number, operator in query.operators.items():
                    operator.under_way = counts.get((name, number), 0)

    def on_moves_prepared(self, counts: Mapping[tuple[str, int], int]) -> None:
        with self._lock:
            for name, query in self._queries.items():
                for number, operator in query.operators.items():
                    operator.prepared = (name, number) in counts
                    operator.preparing = counts.get((name, number), 0)

    def on_price(self, price: Price, max_executors: int) -> None:
        with self._lock:
            self._application.price = price
            self._application.max_executors = max_executors

    def on_restore_cost(self, cost: RestoreCost) -> None:
        with self._lock:
            self._application.restore_cost = cost

    def on_epoch(self, epoch: int) -> None:
        with self._lock:
            self._application.epoch = epoch

    def on_move(self) -> None:
        with self._lock:
            self._application.moves += 1

    def on_preparation(self, outcome: PreparationOutcome, state_bytes: int, spent_s: float) -> None:
        with self._lock:
            self._application.preparations[outcome].add(state_bytes, spent_s)

    def on_move_settled(self) -> None:
        with self._lock:
            self._application.moves_settled += 1

    def on_hot_keys(self, query: str, operator: int, keys: tuple[KeySample, ...]) -> None:
        with self._lock:
            self._operator(query, operator).hot_keys = keys

    def on_keys_under_way(self, query: str, count: int, last_arrival: int | None) -> None:
        with self._lock:
            self._query(query).keys_under_way = count
            self._query(query).last_key_arrival = last_arrival

    def on_key_moves(self, count: int) -> None:
        with self._lock:
            self._application.key_moves += count

    def on_key_move_settled(self) -> None:
        with self._lock:
            self._application.key_moves_settled += 1

    def on_scale(self, before: int, after: int, wanted: int) -> None:
        with self._lock:
            self._application.live = after
            self._application.wanted = wanted
            self._application.scale_actions["out" if wanted > before else "in"] += 1

    def on_task_failure(self, query: str) -> None:
        with self._lock:
            self._query(query).task_failures += 1

    def on_shuffle(self, record: ShuffleRecord) -> None:
        with self._lock:
            shuffle = self._shuffles.get(record.shuffle)
            if shuffle is None:
                if len(self._shuffles) >= MAX_SHUFFLES:
                    del self._shuffles[next(iter(self._shuffles))]
                shuffle = self._shuffles[record.shuffle] = Shuffle(record)
            shuffle.last = record
            if record.error is not None and record.equal_error is not None:
                shuffle.errors = record.error, record.equal_error
                shuffle.untrusted_batches += 1
            if record.trusted:
                shuffle.untrusted_batches = 0
            shuffle.batches["estimates" if record.by_estimates else "round robin"] += 1
            for loads, seconds in (
                (shuffle.estimated_s, record.estimated_s),
                (shuffle.real_s, record.real_s),
            ):
                for partition, load_s in enumerate(seconds[:MAX_SHUFFLE_PARTITIONS]):
                    loads[partition] = loads.get(partition, 0.0) + load_s

    def on_query_started(self, query: str) -> None:
        self._server.start_query(query)

    def on_application_ended(self) -> None:
        self._server.end_application()

    def on_query_ended(self, query: str) -> None:
        self._server.end_query(query)
        with self._lock:
            self._queries.pop(query, None)
            self._choose_shown()

    def describe(self) -> Iterable[Metric]:
        """Every metric without samples, for the registry."""
        return Page(self._labels).families()

    def collect(self) -> Iterable[Metric]:
        """Every metric with its current samples; the registry calls it at each scrape."""
        page = Page(self._labels)
        with self._lock:
            executors = self._application.executors
            write_application(page, self._build, self._application)
            for name, query in self._queries.items():
                write_query(page, name, query)
                for number, operator in query.operators.items():
                    labels = name, str(number)
                    write_operator(page, labels, operator, executors, self.key_naming)
            for name, shuffle in self._shuffles.items():
                write_shuffle(page, name, shuffle)
        return page.families()

    def _operator(self, query: str, operator: int) -> Operator:
        return self._query(query).operators.setdefault(operator, Operator())

    def _query(self, name: str) -> Query:
        query = self._queries.get(name)
        if query is None:
            without_batch = [n for n, known in self._queries.items() if known.last is None]
            if len(without_batch) >= MAX_QUERIES_WITHOUT_BATCH:
                del self._queries[without_batch[0]]
            query = self._queries[name] = Query()
        return query

    def _update_executors(self, executors: Mapping[str, int]) -> None:
        self._application.executors = dict(executors)
        self._application.live = len(executors)
        for query in self._queries.values():
            for stage in query.stages.values():
                # What one that leaves did in the last batch is part of what the batch took.
                for lost in stage.executor_busy_s.keys() - executors.keys() - query.ran_on:
                    del stage.executor_busy_s[lost]
            for operator in query.operators.values():
                for lost in operator.executors.keys() - executors.keys():
                    del operator.executors[lost]
                for lost in operator.stores.keys() - executors.keys():
                    del operator.stores[lost]

    def _choose_shown(self) -> None:
        partitions = [
            partition
            for query in self._queries.values()
            for operator in query.operators.values()
            for partition in operator.partitions.values()
        ]
        choose_shown(partitions, self._max_shown)
