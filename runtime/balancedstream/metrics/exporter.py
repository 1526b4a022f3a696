"""`/metrics` for Prometheus: what every partition, executor, query and the balancer did.

Values are kept here and turned into samples at each scrape, under one lock: a scrape sees whole
batches only, and a partition that moves is never on two executors, nor on none.

What a partition cost is a counter without the executor among its labels, so that it goes on when
the partition moves; where it runs is an info series of its own. `docs/reference/metrics.md` lists
every metric, how many series there can be, and what happens to counters whose series are removed.
"""

from __future__ import annotations

import errno
import heapq
import platform
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from wsgiref.simple_server import WSGIServer

import pyspark
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from balancedstream.core.keys import KeyNaming, name_key
from balancedstream.core.observations import BatchSample, KeySample, ShuffleRecord, TaskSample
from balancedstream.core.restoring import RestoreCost
from balancedstream.errors import InvalidInputError, PortInUseError
from balancedstream.metrics.catalogue import BATCH_DURATION_BUCKETS_S, SERIES_PER_PARTITION
from balancedstream.metrics.counters import Operator, Query, Shuffle, Work
from balancedstream.metrics.page import Page, write_query, write_shuffle
from balancedstream.record.spectators import Metrics
from balancedstream.version import __version__

MAX_PARTITION_SERIES = 10_000
"""Series with a `partition` label over all queries, unless told otherwise: 2,000 partitions."""

_OTHER_PORT = "Choose another port with --metrics-port; 0 picks a free one."
_OTHER_ADDRESS = "Use one of this machine's: 127.0.0.1, or 0.0.0.0 for all of them."

MAX_QUERIES_WITHOUT_BATCH = 100
"""Failures reported after their query ended would pile up; of queries without a batch, the latest
so many are kept."""

MAX_SHUFFLES = 20
"""Shuffles that are shown; of more, those heard of first are not any more."""

MAX_SHUFFLE_PARTITIONS = 100
"""Partitions of a shuffle that have series of their own: the first ones, for all are alike."""

STAY_FACTOR = 1.25
"""A shown partition gives way to one that is a quarter hotter: each change makes new series."""

MIN_BATCH_S = 0.001
"""Spark's progress counts milliseconds; a shorter batch would show as none at all."""


class Exporter(Metrics, Collector):
    """Serves `/metrics`; the controller tells it what happened, Prometheus asks for it.

    Every `on_…` method takes microseconds, `on_batch` some per partition. None of them fails, nor
    do they depend on whether anybody scrapes.

    Args:
        max_partition_series: series with a `partition` label over all queries, at least 0. Where
            all partitions would need more, the hottest are shown, by busy seconds per second;
            the sums per executor always cover all.
        stream: what every series is labelled with, `namespace/name` of a BalancedStream; empty for
            no such label.
        hot_keys: whether hot keys are shown as they are, hashed, or not at all.

    Raises:
        InvalidInputError: `max_partition_series` is negative.
    """

    def __init__(
        self,
        max_partition_series: int = MAX_PARTITION_SERIES,
        *,
        stream: str = "",
        hot_keys: KeyNaming = "plain",
    ) -> None:
        if max_partition_series < 0:
            message = (
                f"max_partition_series: must be at least 0, not {max_partition_series}; the job "
                "was not started: no data was read, changed or lost."
            )
            raise InvalidInputError(message)
        self._labels = {"stream": stream} if stream else {}
        self.key_naming: KeyNaming = hot_keys
        self._max_shown = max_partition_series // SERIES_PER_PARTITION
        self._build = (__version__, pyspark.__version__, platform.python_version())
        self._lock = threading.Lock()
        self._queries: dict[str, Query] = {}
        self._shuffles: dict[str, Shuffle] = {}
        self._executors: dict[str, int] = {}
        self._live = 0
        self._wanted: int | None = None
        self._restore_cost = RestoreCost()
        self._epoch = 0
        self._moves = 0
        self._moves_settled = 0
        self._key_moves = 0
        self._key_moves_settled = 0
        self._scale_actions = {"out": 0, "in": 0}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._server: WSGIServer | None = None

    def start(self, port: int, addr: str = "127.0.0.1") -> None:
        """Begins to serve, from a daemon thread; a server begun before is closed.

        Args:
            port: TCP port; 0 picks a free one, which `port` tells.
            addr: address to listen on. The default is reached from this machine only; a pod,
                whose metrics are scraped from outside, needs "0.0.0.0" (or "::").

        Raises:
            PortInUseError: something else listens on that port.
            InvalidInputError: the port is no port or not permitted, or the address is not one of
                this machine's.
        """
        self.close()
        if not 0 <= port <= 65_535:
            message = _not_served(f"--metrics-port: {port} is not a port, 0 to 65535", _OTHER_PORT)
            raise InvalidInputError(message)
        try:
            self._server, _ = start_http_server(port, addr, registry=self._registry)
        except PermissionError as error:
            message = _not_served(f"--metrics-port: {port} is not for this user", _OTHER_PORT)
            raise InvalidInputError(message) from error
        except (OSError, UnicodeError) as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                message = _not_served(f"--metrics-port: {port} on {addr} is in use", _OTHER_PORT)
                raise PortInUseError(message) from error
            message = _not_served(f"metrics address: {addr!r}: {error}", _OTHER_ADDRESS)
            raise InvalidInputError(message) from error

    @property
    def port(self) -> int | None:
        """The TCP port that is served; None before `start` and after `close`."""
        return None if self._server is None else self._server.server_port

    def close(self) -> None:
        """Stops serving and frees the port; harmless where nothing is served."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def on_batch(
        self, sample: BatchSample, tasks: Sequence[TaskSample], executors: Mapping[str, int]
    ) -> None:
        """Adds a finished micro-batch.

        Args:
            sample: the batch as a whole.
            tasks: its tasks, one per operator and state partition, all of `sample.query`.
            executors: executors of the application that take work, id to cores; the series of
                others go.
        """
        period_s = max(sample.duration_s, sample.interval_s or 0.0, MIN_BATCH_S)
        with self._lock:
            query = self._query(sample.query)
            query.last = sample
            query.input_rows += sample.input_rows
            query.duration_s += sample.duration_s
            query.durations[bisect_left(BATCH_DURATION_BUCKETS_S, sample.duration_s)] += 1
            for task in tasks:
                operator = query.operators.setdefault(task.operator, Operator())
                operator.add(task, task.busy_s / period_s)
            self._take_in_executors(executors)
            self._choose_shown()

    def on_executors(self, executors: Mapping[str, int]) -> None:
        """Notes that one joined or left, which may be long before a batch ends.

        Args:
            executors: those that take work, id to cores; the series of others go.
        """
        with self._lock:
            self._take_in_executors(executors)

    def on_imbalance(self, query: str, operator: int, imbalance: float, bound: float) -> None:
        """Notes how evenly an operator is spread.

        Args:
            query: the query's stable name or id.
            operator: Spark's operator id within the query.
            imbalance: busy time per core of the hottest executor over the mean, as found.
            bound: the least imbalance that any placement could reach.
        """
        with self._lock:
            self._operator(query, operator).balance = (imbalance, bound)

    def on_decision(self, query: str, operator: int, kind: str) -> None:
        """Adds a balancing decision, "nothing to do" included.

        Args:
            query: the query's stable name or id.
            operator: Spark's operator id within the query.
            kind: what the decision came to, one of `history.DecisionKind`.
        """
        with self._lock:
            self._operator(query, operator).decisions[kind] += 1

    def on_moves_under_way(self, counts: Mapping[tuple[str, int], int]) -> None:
        """Notes how many partitions are not yet where they shall be; 0 for operators left out.

        Args:
            counts: (query, operator) to partitions.
        """
        with self._lock:
            for name, query in self._queries.items():
                for number, operator in query.operators.items():
                    operator.under_way = counts.get((name, number), 0)

    def on_restore_cost(self, cost: RestoreCost) -> None:
        """Notes what loading moved state was found to cost."""
        with self._lock:
            self._restore_cost = cost

    def on_epoch(self, epoch: int) -> None:
        """Notes the epoch of the plan in force."""
        with self._lock:
            self._epoch = epoch

    def on_move(self) -> None:
        """Adds a move that was begun."""
        with self._lock:
            self._moves += 1

    def on_move_settled(self) -> None:
        """Adds a move whose partition ran on its target."""
        with self._lock:
            self._moves_settled += 1

    def on_hot_keys(self, query: str, operator: int, keys: tuple[KeySample, ...]) -> None:
        """Notes an operator's hottest keys, in place of those before."""
        with self._lock:
            self._operator(query, operator).hot_keys = keys

    def on_keys_under_way(self, query: str, count: int, last_arrival: int | None) -> None:
        """Notes how many keys are not yet where they shall be, and when the last ones came."""
        with self._lock:
            self._query(query).keys_under_way = count
            self._query(query).last_key_arrival = last_arrival

    def on_key_moves(self, count: int) -> None:
        """Counts keys that are to go to another state partition."""
        with self._lock:
            self._key_moves += count

    def on_key_move_settled(self) -> None:
        """Counts a key that came there."""
        with self._lock:
            self._key_moves_settled += 1

    def on_scale(self, before: int, after: int, wanted: int) -> None:
        """Adds a scale action: another number of executors was asked for.

        Args:
            before: executors that there were to be until now.
            after: executors that take work now.
            wanted: executors that there are to be from now on.
        """
        with self._lock:
            self._live = after
            self._wanted = wanted
            self._scale_actions["out" if wanted > before else "in"] += 1

    def on_task_failure(self, query: str) -> None:
        """Adds a failed attempt of one of the query's tasks."""
        with self._lock:
            self._query(query).task_failures += 1

    def on_shuffle(self, record: ShuffleRecord) -> None:
        """Adds a micro-batch of a cost-aware shuffle."""
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

    def on_query_ended(self, query: str) -> None:
        """Removes every series of the query; begun again, it starts from zero."""
        with self._lock:
            self._queries.pop(query, None)
            self._choose_shown()

    def describe(self) -> Iterable[Metric]:
        """Every metric without samples, for the registry."""
        return Page(self._labels).families()

    def collect(self) -> Iterable[Metric]:
        """Every metric with its samples of this moment; the registry calls it at each scrape."""
        page = Page(self._labels)
        with self._lock:
            self._write_application(page)
            for name, query in self._queries.items():
                write_query(page, name, query)
                for number, operator in query.operators.items():
                    self._write_operator(page, (name, str(number)), operator)
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

    def _take_in_executors(self, executors: Mapping[str, int]) -> None:
        self._executors = dict(executors)
        self._live = len(executors)
        for query in self._queries.values():
            for operator in query.operators.values():
                for lost in operator.executors.keys() - self._executors.keys():
                    del operator.executors[lost]

    def _choose_shown(self) -> None:
        partitions = [
            partition
            for query in self._queries.values()
            for operator in query.operators.values()
            for partition in operator.partitions.values()
        ]
        chosen = partitions
        if len(partitions) > self._max_shown:
            chosen = heapq.nlargest(
                self._max_shown,
                partitions,
                key=lambda partition: partition.heat * (STAY_FACTOR if partition.shown else 1.0),
            )
        for partition in partitions:
            partition.shown = False
        for partition in chosen:
            partition.shown = True

    def _write_application(self, page: Page) -> None:
        page.add("build_info", 1, *self._build)
        page.add("moves_total", self._moves)
        page.add("moves_settled_total", self._moves_settled)
        page.add("key_moves_total", self._key_moves)
        page.add("key_moves_settled_total", self._key_moves_settled)
        page.add("move_fixed_seconds", self._restore_cost.fixed_s)
        page.add("move_bytes_per_second", self._restore_cost.bytes_per_s)
        page.add("move_key_seconds", self._restore_cost.key_s)
        for direction, actions in self._scale_actions.items():
            page.add("scale_actions_total", actions, direction)
        page.add("plan_epoch", self._epoch)
        page.add("executors", self._live)
        if self._wanted is not None:
            page.add("executors_wanted", self._wanted)
        for executor, cores in self._executors.items():
            page.add("executor_cores", cores, executor)

    def _write_operator(self, page: Page, labels: tuple[str, str], operator: Operator) -> None:
        for kind, decisions in operator.decisions.items():
            page.add("decisions_total", decisions, *labels, kind)
        if operator.balance is not None:
            imbalance, bound = operator.balance
            page.add("imbalance_ratio", imbalance, *labels)
            page.add("imbalance_bound_ratio", bound, *labels)
        page.add("moves_under_way", operator.under_way, *labels)
        for key in operator.hot_keys:
            name = name_key(key.key, self.key_naming)
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
        for executor in self._executors:
            page.add_work("executor", operator.executors.get(executor, Work()), *labels, executor)
            page.add("executor_state_bytes", state_bytes[executor], *labels, executor)
            page.add("executor_partitions", placed[executor], *labels, executor)


def _not_served(problem: str, remedy: str) -> str:
    return (
        f"{problem}; /metrics cannot be served, so the job was not started: no data was read, "
        f"changed or lost. {remedy}"
    )
