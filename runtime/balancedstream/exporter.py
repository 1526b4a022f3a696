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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, get_args
from wsgiref.simple_server import WSGIServer

import pyspark
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from balancedstream import __version__
from balancedstream.core.handoffs import LoadCost
from balancedstream.core.keys import KeyNaming, name_key
from balancedstream.core.observations import BatchSample, KeySample, TaskSample
from balancedstream.errors import InvalidInputError, PortInUseError
from balancedstream.history import DecisionKind, ShuffleRecord

MAX_PARTITION_SERIES = 10_000
"""Series with a `partition` label over all queries, unless told otherwise: 2,000 partitions."""

BATCH_DURATION_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the batch duration histogram, seconds; +Inf follows."""

_OTHER_PORT = "Choose another port with --metrics-port; 0 picks a free one."
_OTHER_ADDRESS = "Use one of this machine's: 127.0.0.1, or 0.0.0.0 for all of them."

_QUERIES_WITHOUT_BATCH = 100
"""Failures reported after their query ended would pile up; of queries without a batch, the latest
so many are kept."""

_SHUFFLES = 20
"""Shuffles that are shown; of more, those heard of first are not any more."""

_SHUFFLE_PARTITIONS = 100
"""Partitions of a shuffle that have series of their own: the first ones, for all are alike."""

_HEAT_WEIGHT = 0.2
"""Weight of the latest batch in a partition's heat: one slow task makes no hot partition."""

_STAY = 1.25
"""A shown partition gives way to one that is a quarter hotter: each change makes new series."""

_SHORTEST_BATCH_S = 0.001
"""Spark's progress counts milliseconds; a shorter batch would show as none at all."""


class _Series(NamedTuple):
    """The labels and the help text of one metric."""

    labels: tuple[str, ...]
    help: str


_QUERY = ("query",)
_OPERATOR = ("query", "operator")
_EXECUTOR = ("query", "operator", "executor")
_PARTITION = ("query", "operator", "partition")
_KEY = ("query", "operator", "partition", "key")
_SHUFFLE = ("shuffle",)
_SHUFFLE_PARTITION = ("shuffle", "shuffle_partition")

_PREFIX = "balancedstream_"

# Names that end in `_total` are counters, the others gauges.
_METRICS = {
    "build_info": _Series(
        ("version", "spark_version", "python_version"), "Always 1; the labels say what runs here."
    ),
    "plan_epoch": _Series((), "Epoch of the plan in force; 0 before the first one."),
    "moves_total": _Series((), "Moves of state partitions that were begun."),
    "moves_settled_total": _Series((), "Moves whose partition ran on its target."),
    "key_moves_total": _Series((), "Keys that were to go to another state partition."),
    "key_moves_settled_total": _Series((), "Keys that came there, with their state."),
    "move_fixed_seconds": _Series((), "What loading a moved partition costs, however small it is."),
    "move_bytes_per_second": _Series((), "How fast state beyond that is loaded."),
    "move_key_seconds": _Series((), "What a key costs where it leaves, or comes to, a partition."),
    "scale_actions_total": _Series(
        ("direction",), "Changes of the number of executors asked for: out adds, in removes."
    ),
    "executors": _Series((), "Executors that take work."),
    "executors_wanted": _Series((), "Executors asked for; absent until the first scale action."),
    "executor_cores": _Series(("executor",), "Cores of a live executor."),
    "batches_total": _Series(_QUERY, "Finished micro-batches."),
    "last_batch_id": _Series(_QUERY, "Number of the last finished micro-batch."),
    "last_batch_timestamp_seconds": _Series(
        _QUERY, "When the last micro-batch finished, since the Unix epoch."
    ),
    "last_batch_duration_seconds": _Series(
        _QUERY, "Trigger execution of the last finished micro-batch."
    ),
    "input_rows_total": _Series(_QUERY, "Rows read from the sources."),
    "input_rows_per_second": _Series(
        _QUERY,
        "Rows of the last batch per second from the previous batch's start to its own; absent "
        "until a second batch.",
    ),
    "processed_rows_per_second": _Series(
        _QUERY, "Rows of the last batch per second of its duration."
    ),
    "backlog_rows": _Series(_QUERY, "Rows that wait at the sources; absent where no source says."),
    "keys_under_way": _Series(
        _QUERY, "Keys that are not yet where they shall be; absent where no key is balanced."
    ),
    "last_key_arrival_batch": _Series(
        _QUERY, "Last batch in which keys came to other state partitions; absent before the first."
    ),
    "task_failures_total": _Series(_QUERY, "Task attempts that failed; Spark tries them again."),
    "decisions_total": _Series(
        (*_OPERATOR, "kind"),
        "Balancing decisions by what they came to: move, scale, unsplittable, hold or none.",
    ),
    "imbalance_ratio": _Series(
        _OPERATOR, "Busy time per core of the hottest executor over the mean; 1 is level."
    ),
    "imbalance_bound_ratio": _Series(
        _OPERATOR, "The least imbalance that any placement of the partitions could reach."
    ),
    "moves_under_way": _Series(_OPERATOR, "State partitions that are not yet where they shall be."),
    "partitions": _Series(_OPERATOR, "State partitions that ran so far."),
    "partitions_hidden": _Series(
        _OPERATOR, "State partitions that have no series of their own, to bound their number."
    ),
    "executor_busy_seconds_total": _Series(
        _EXECUTOR, "Run time of the operator's tasks on a live executor, loading of state included."
    ),
    "executor_state_load_seconds_total": _Series(
        _EXECUTOR, "The part of the executor's busy seconds that went into loading state."
    ),
    "executor_records_total": _Series(
        _EXECUTOR, "Rows that the operator's tasks on a live executor read from the shuffle."
    ),
    "executor_state_bytes": _Series(
        _EXECUTOR, "Size of the state of the partitions that ran last on a live executor."
    ),
    "executor_partitions": _Series(_EXECUTOR, "State partitions that ran last on a live executor."),
    "hot_key_busy_seconds": _Series(
        _KEY, "What one of the hottest keys of a balanced operator took in the last batch."
    ),
    "partition_busy_seconds_total": _Series(
        _PARTITION, "Run time of the partition's tasks, loading of state included."
    ),
    "partition_state_load_seconds_total": _Series(
        _PARTITION, "The part of the partition's busy seconds that went into loading state."
    ),
    "partition_records_total": _Series(
        _PARTITION, "Rows that the partition's tasks read from the shuffle."
    ),
    "partition_state_bytes": _Series(
        _PARTITION, "Size of the partition's state after its last batch."
    ),
    "shuffle_batches_total": _Series(
        (*_SHUFFLE, "routed"), "Micro-batches of a cost-aware shuffle: by estimates or round robin."
    ),
    "shuffle_trusted": _Series(
        _SHUFFLE, "1 where the next micro-batch is routed by estimated costs, 0 for round robin."
    ),
    "shuffle_untrusted_batches": _Series(
        _SHUFFLE,
        "Micro-batches in a row after whose judgement the estimates were not trusted; 0 where they "
        "are.",
    ),
    "shuffle_estimate_error_ratio": _Series(
        _SHUFFLE,
        "Error of the estimates in the last batch that judged them, as a part of all cost.",
    ),
    "shuffle_equal_error_ratio": _Series(
        _SHUFFLE, "The same error if all rows were taken to cost the same: what round robin does."
    ),
    "shuffle_imbalance_ratio": _Series(
        _SHUFFLE, "Real load of the dearest partition of the last batch over the mean; 1 is level."
    ),
    "shuffle_estimated_seconds_total": _Series(
        _SHUFFLE_PARTITION, "Load of one partition of the shuffle by the estimates."
    ),
    "shuffle_real_seconds_total": _Series(
        _SHUFFLE_PARTITION, "What the function took for the rows of one partition of the shuffle."
    ),
    "partition_executor_info": _Series(
        (*_PARTITION, "executor"), "Always 1; the executor that ran the partition last."
    ),
}

_BATCH_DURATION = "batch_duration_seconds"
_BATCH_DURATION_HELP = "Trigger execution of finished micro-batches, planning and commit included."

SERIES_PER_PARTITION = sum(name.startswith("partition_") for name in _METRICS)
"""How many series a shown partition has."""


@dataclass(slots=True)
class _Work:
    """What the tasks of a partition, or of an operator on an executor, added up to."""

    busy_s: float = 0.0
    load_s: float = 0.0
    records: int = 0

    def add(self, task: TaskSample) -> None:
        self.busy_s += task.busy_s
        self.load_s += task.load_s
        self.records += task.records


@dataclass(slots=True)
class _Partition:
    """One state partition; `heat` is its busy seconds per second, smoothed."""

    heat: float
    executor: str = ""
    state_bytes: int = 0
    shown: bool = False
    work: _Work = field(default_factory=_Work)


_NO_DECISIONS: dict[str, int] = dict.fromkeys(get_args(DecisionKind), 0)


@dataclass(slots=True)
class _Operator:
    """One stateful operator.

    Attributes:
        partitions: every partition that ran so far.
        executors: what ran where.
        decisions: how many there were of each kind.
        balance: the last imbalance and its bound.
        under_way: partitions that are not yet where they shall be.
        hot_keys: of the last batch.
    """

    partitions: dict[int, _Partition] = field(default_factory=dict)
    executors: dict[str, _Work] = field(default_factory=dict)
    decisions: Counter[str] = field(default_factory=lambda: Counter(_NO_DECISIONS))
    balance: tuple[float, float] | None = None
    under_way: int = 0
    hot_keys: tuple[KeySample, ...] = ()

    def add(self, task: TaskSample, heat: float) -> None:
        partition = self.partitions.get(task.partition)
        if partition is None:
            partition = self.partitions[task.partition] = _Partition(heat)
        partition.heat += _HEAT_WEIGHT * (heat - partition.heat)
        partition.executor = task.executor
        partition.state_bytes = task.state_bytes
        partition.work.add(task)
        self.executors.setdefault(task.executor, _Work()).add(task)


@dataclass(slots=True)
class _Query:
    """One running query; `durations` counts batches per histogram bucket, +Inf the last."""

    last: BatchSample | None = None
    input_rows: int = 0
    duration_s: float = 0.0
    durations: list[int] = field(default_factory=lambda: [0] * (len(BATCH_DURATION_BUCKETS_S) + 1))
    task_failures: int = 0
    keys_under_way: int | None = None
    last_key_arrival: int | None = None
    operators: dict[int, _Operator] = field(default_factory=dict)


@dataclass(slots=True)
class _Shuffle:
    """One cost-aware shuffle.

    Attributes:
        last: its last batch.
        errors: of the estimates and of equal costs, in the last batch that judged them.
        untrusted_batches: that judged the estimates, since these were trusted.
        batches: by how they were routed.
        estimated_s: load by the estimates, by partition.
        real_s: what the function took, by partition.
    """

    last: ShuffleRecord
    errors: tuple[float, float] | None = None
    untrusted_batches: int = 0
    batches: Counter[str] = field(default_factory=Counter)
    estimated_s: dict[int, float] = field(default_factory=dict)
    real_s: dict[int, float] = field(default_factory=dict)


class _Page:
    """The values of one scrape, taken down quickly; samples are made of them without the lock."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._common = dict(labels)
        self._values: dict[str, list[tuple[tuple[str, ...], float]]] = {n: [] for n in _METRICS}
        self._batch_durations: list[tuple[str, list[int], float]] = []

    def add(self, name: str, value: float, *labels: str) -> None:
        self._values[name].append((labels, value))

    def add_work(self, of: str, work: _Work, *labels: str) -> None:
        self.add(f"{of}_busy_seconds_total", work.busy_s, *labels)
        self.add(f"{of}_state_load_seconds_total", work.load_s, *labels)
        self.add(f"{of}_records_total", work.records, *labels)

    def add_batch_durations(self, query: str, counts: Sequence[int], sum_s: float) -> None:
        self._batch_durations.append((query, list(accumulate(counts)), sum_s))

    def families(self) -> Iterator[Metric]:
        for name, series in _METRICS.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(_PREFIX + name, series.help, labels=(*self._common, *series.labels))
            for labels, value in self._values[name]:
                family.add_metric((*self._common.values(), *labels), value)
            yield family
        histogram = HistogramMetricFamily(
            _PREFIX + _BATCH_DURATION, _BATCH_DURATION_HELP, labels=(*self._common, *_QUERY)
        )
        bounds = [*map(str, BATCH_DURATION_BUCKETS_S), "+Inf"]
        for query, counts, sum_s in self._batch_durations:
            labels = (*self._common.values(), query)
            histogram.add_metric(labels, list(zip(bounds, counts, strict=True)), sum_s)
        yield histogram


class Exporter(Collector):
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
        self._queries: dict[str, _Query] = {}
        self._shuffles: dict[str, _Shuffle] = {}
        self._executors: dict[str, int] = {}
        self._live = 0
        self._wanted: int | None = None
        self._load_cost = LoadCost()
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
        period_s = max(sample.duration_s, sample.interval_s or 0.0, _SHORTEST_BATCH_S)
        with self._lock:
            query = self._query(sample.query)
            query.last = sample
            query.input_rows += sample.input_rows
            query.duration_s += sample.duration_s
            query.durations[bisect_left(BATCH_DURATION_BUCKETS_S, sample.duration_s)] += 1
            for task in tasks:
                operator = query.operators.setdefault(task.operator, _Operator())
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

    def on_load_cost(self, cost: LoadCost) -> None:
        """Notes what loading moved state was found to cost."""
        with self._lock:
            self._load_cost = cost

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
                if len(self._shuffles) >= _SHUFFLES:
                    del self._shuffles[next(iter(self._shuffles))]
                shuffle = self._shuffles[record.shuffle] = _Shuffle(record)
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
                for partition, load_s in enumerate(seconds[:_SHUFFLE_PARTITIONS]):
                    loads[partition] = loads.get(partition, 0.0) + load_s

    def on_query_ended(self, query: str) -> None:
        """Removes every series of the query; begun again, it starts from zero."""
        with self._lock:
            self._queries.pop(query, None)
            self._choose_shown()

    def describe(self) -> Iterable[Metric]:
        """Every metric without samples, for the registry."""
        return _Page(self._labels).families()

    def collect(self) -> Iterable[Metric]:
        """Every metric with its samples of this moment; the registry calls it at each scrape."""
        page = _Page(self._labels)
        with self._lock:
            self._write_application(page)
            for name, query in self._queries.items():
                _write_query(page, name, query)
                for number, operator in query.operators.items():
                    self._write_operator(page, (name, str(number)), operator)
            for name, shuffle in self._shuffles.items():
                _write_shuffle(page, name, shuffle)
        return page.families()

    def _operator(self, query: str, operator: int) -> _Operator:
        return self._query(query).operators.setdefault(operator, _Operator())

    def _query(self, name: str) -> _Query:
        query = self._queries.get(name)
        if query is None:
            without_batch = [n for n, known in self._queries.items() if known.last is None]
            if len(without_batch) >= _QUERIES_WITHOUT_BATCH:
                del self._queries[without_batch[0]]
            query = self._queries[name] = _Query()
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
                key=lambda partition: partition.heat * (_STAY if partition.shown else 1.0),
            )
        for partition in partitions:
            partition.shown = False
        for partition in chosen:
            partition.shown = True

    def _write_application(self, page: _Page) -> None:
        page.add("build_info", 1, *self._build)
        page.add("moves_total", self._moves)
        page.add("moves_settled_total", self._moves_settled)
        page.add("key_moves_total", self._key_moves)
        page.add("key_moves_settled_total", self._key_moves_settled)
        page.add("move_fixed_seconds", self._load_cost.fixed_s)
        page.add("move_bytes_per_second", self._load_cost.bytes_per_s)
        page.add("move_key_seconds", self._load_cost.key_s)
        for direction, actions in self._scale_actions.items():
            page.add("scale_actions_total", actions, direction)
        page.add("plan_epoch", self._epoch)
        page.add("executors", self._live)
        if self._wanted is not None:
            page.add("executors_wanted", self._wanted)
        for executor, cores in self._executors.items():
            page.add("executor_cores", cores, executor)

    def _write_operator(self, page: _Page, labels: tuple[str, str], operator: _Operator) -> None:
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
            page.add_work("executor", operator.executors.get(executor, _Work()), *labels, executor)
            page.add("executor_state_bytes", state_bytes[executor], *labels, executor)
            page.add("executor_partitions", placed[executor], *labels, executor)


def _write_query(page: _Page, name: str, query: _Query) -> None:
    page.add("batches_total", sum(query.durations), name)
    page.add_batch_durations(name, query.durations, query.duration_s)
    page.add("input_rows_total", query.input_rows, name)
    page.add("task_failures_total", query.task_failures, name)
    if query.keys_under_way is not None:
        page.add("keys_under_way", query.keys_under_way, name)
    if query.last_key_arrival is not None:
        page.add("last_key_arrival_batch", query.last_key_arrival, name)
    last = query.last
    if last is None:
        return
    page.add("last_batch_id", last.batch, name)
    page.add("last_batch_timestamp_seconds", last.finished_s, name)
    page.add("last_batch_duration_seconds", last.duration_s, name)
    # Spark reports 0 for the first batch's input rate; there is none yet
    if last.interval_s:
        page.add("input_rows_per_second", last.input_rows / last.interval_s, name)
    if last.duration_s:
        page.add("processed_rows_per_second", last.input_rows / last.duration_s, name)
    if last.backlog_rows is not None:
        page.add("backlog_rows", last.backlog_rows, name)


def _write_shuffle(page: _Page, name: str, shuffle: _Shuffle) -> None:
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


def _not_served(problem: str, remedy: str) -> str:
    return (
        f"{problem}; /metrics cannot be served, so the job was not started: no data was read, "
        f"changed or lost. {remedy}"
    )
