"""Time series of a stream's driver, and the intervals between two scrapes of it: pure.

A Prometheus may hold the same driver several times: an HA pair without deduplication, or a pod that
two jobs scrape. Each copy is a target of its own, with its own times. All labels that the driver
did not set tell targets apart. `mine`, `found` and `partitions` are series of one target by name.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite

from balancedstream.core.samples import LARGEST, is_sound
from balancedstream.core.wire import series as wire

CUMULATIVE = (
    wire.BATCHES,
    wire.LAST_BATCH_ID,
    wire.BATCH_DURATION_SUM,
    wire.INPUT_ROWS,
    wire.DRIVER_SECONDS,
)
"""Metrics of a query that only grow while its driver runs."""

_NEEDED = (*CUMULATIVE, wire.LAST_BATCH_TIMESTAMP, wire.LAST_BATCH_DURATION)

_CHANGING = {wire.PARTITION_EXECUTOR, wire.HOT_KEY_BUSY}
"""Metrics of partitions with series that come and go."""

_PLACE = {wire.QUERY, wire.OPERATOR, wire.PARTITION}

_LABELS: Mapping[str, tuple[str, ...]] = {
    metric: metric.labels for metric in vars(wire).values() if isinstance(metric, wire.Metric)
}

_OF_DRIVER = frozenset(label for labels in _LABELS.values() for label in labels)

_EXPORTED = "exported_"
"""Prometheus puts this before a driver's label where the target has a label of the same name."""

_HIDDEN = {
    metric: tuple((f"{_EXPORTED}{label}", label) for label in labels)
    for metric, labels in _LABELS.items()
}
"""Metric to its labels, each as it is called there, and as the driver calls it."""

_NUMBERS = {wire.OPERATOR, wire.PARTITION}
"""Labels with numbers."""

_DIGITS = 10
"""Digits that no number of an operator or partition reaches."""

MOST_BATCHES_PER_S = 1000.0
"""Spark counts milliseconds, so a higher rate is a wrong measurement."""

Target = frozenset[tuple[str, str]]
"""The labels that all series of one scraped driver share."""


@dataclass(frozen=True, slots=True)
class Series:
    """One time series: its labels with `__name__`, and its samples (time, value), oldest first."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """Two scrapes of a query between which batches finished, and the number of the last one."""

    query: str
    before_s: float
    after_s: float
    batches: int
    last_batch: int


def group_by_name(all_series: Iterable[Series]) -> dict[str, list[Series]]:
    """Series by the name of their metric."""
    found: dict[str, list[Series]] = defaultdict(list)
    for series in all_series:
        found[_name(series)].append(series)
    return found


def find_targets(all_series: Iterable[Series]) -> set[Target]:
    """The targets of some series, by the labels of their `plan_epoch`.

    >>> a, b = ({"__name__": "balancedstream_plan_epoch", "replica": name} for name in "ab")
    >>> len(find_targets([Series(a, ()), Series(b, ()), Series(b, ())]))
    2
    """
    return {frozenset(_shared(s)) for s in all_series if _name(s) == wire.PLAN_EPOCH}


def group_by_target(
    all_series: Sequence[Series], targets: Iterable[Target] | None = None
) -> dict[Target, list[Series]]:
    """Series by their target; series of unknown targets are left out.

    Args:
        all_series: any order.
        targets: known ones; None takes them from the series of `plan_epoch`.

    >>> of_a = Series({"__name__": "balancedstream_plan_epoch", "replica": "a"}, ((1.0, 7.0),))
    >>> [dict(target) for target in group_by_target([of_a])]
    [{'replica': 'a'}]
    """
    if targets is None:
        targets = find_targets(all_series)
    # Labels of one target may be a part of another's.
    ranked = sorted(set(targets), key=lambda target: (-len(target), sorted(target)))
    found: dict[Target, list[Series]] = defaultdict(list)
    for series in all_series:
        labels = _shared(series)
        target = next((target for target in ranked if target <= labels), None)
        if target is not None:
            found[target].append(series)
    return found


MEMORY_METRICS = (
    wire.EXECUTOR_MEMORY,
    wire.EXECUTOR_MEMORY_LIMIT,
    wire.STATE_MEMORY_GROWTH,
    wire.STATE_READ,
    wire.STATE_READ_LEAST,
    wire.STATE_READ_MISSES,
    wire.STATE_READ_DELAY,
    wire.STATE_READ_BATCH,
)
"""Metrics of memory; a driver that knows too little has none of them."""

_OF_EXECUTORS = {
    wire.EXECUTOR_CORES,
    wire.STAGE_BUSY,
    wire.STAGE_TASKS,
    wire.STAGE_LONGEST_TASK,
    wire.SLOTS_HELD,
    *MEMORY_METRICS,
}
"""Metrics with series that end with an executor, or that a query begins to have with a stage; each
batch in Real-Time Mode may hold other slots."""


def find_scrapes(mine: Mapping[str, Sequence[Series]]) -> list[float]:
    """Times of a target's complete scrapes, oldest first."""
    counts = {time_s: count for s in mine.get(wire.EXECUTORS, ()) for time_s, count in s.samples}
    seen = Counter(time_s for s in mine.get(wire.EXECUTOR_CORES, ()) for time_s, _ in s.samples)
    times = {time_s for s in mine.get(wire.PLAN_EPOCH, ()) for time_s, _ in s.samples}
    scrapes = sorted(t for t in times if counts.get(t, seen[t]) == seen[t])
    lasting = (s for name, found in mine.items() if name not in _OF_EXECUTORS for s in found)
    return scrapes[:-1] if is_partial(lasting, scrapes) else scrapes


def is_partial(lasting: Iterable[Series], scrapes: Sequence[float]) -> bool:
    """Whether the newest scrape lacks series that the second newest has.

    Samples that one Prometheus sends to another arrive in parts. For one scrape, a series that has
    ended looks the same.
    """
    if len(scrapes) < 2:
        return False
    return any(scrapes[-2] <= series.samples[-1][0] < scrapes[-1] for series in lasting)


def find_lasting(mine: Mapping[str, Sequence[Series]], executors: Collection[str]) -> list[Series]:
    """The series of stages and partitions that last as long as their query and executor."""
    hidden = mine.get(wire.PARTITIONS_HIDDEN, ())
    hiding = {_operator(s) for s in hidden if any(count for _, count in s.samples)}
    found = [s for name, of_name in mine.items() if name not in _CHANGING for s in of_name]
    # Where a partition ran last.
    infos = sorted(mine.get(wire.PARTITION_EXECUTOR, ()), key=lambda s: s.samples[-1][0])
    found += {(*_operator(s), s.labels[wire.PARTITION]): s for s in infos}.values()
    return [
        s
        for s in found
        if s.labels.get(wire.EXECUTOR, "") in {"", *executors}
        and (not s.labels.keys() >= _PLACE or _operator(s) not in hiding)
    ]


def find_intervals(mine: Mapping[str, Sequence[Series]]) -> list[Interval]:
    """Every interval in which batches of one run of a query finished; a reset starts a new run.

    A scrape without a sample that an interval needs counts as no scrape, and so does the newest one
    until all of it is there. A driver that starts anew between two scrapes can have counted further
    than before. Then the numbers of its batches grew by more than their count.
    """
    needed: dict[str, dict[tuple[str, str], dict[float, float]]] = defaultdict(dict)
    for name in _NEEDED:
        for series in mine.get(name, ()):
            part = series.labels.get(wire.PART, "")
            needed[series.labels[wire.QUERY]][name, part] = dict(series.samples)
    newest_s = max(find_scrapes(mine), default=-inf)
    intervals = []
    for query, values in needed.items():
        if not {(wire.BATCHES, ""), (wire.LAST_BATCH_ID, "")} <= values.keys():
            continue
        growing = [of_time for (name, _), of_time in values.items() if name in CUMULATIVE]
        counts, numbers = values[wire.BATCHES, ""], values[wire.LAST_BATCH_ID, ""]
        kept: list[Interval] = []
        times = sorted(t for t in set.intersection(*map(set, values.values())) if t <= newest_s)
        for before_s, after_s in pairwise(times):
            batches = int(counts[after_s] - counts[before_s])
            fell = any(of_time[after_s] < of_time[before_s] for of_time in growing)
            too_many = batches > MOST_BATCHES_PER_S * (after_s - before_s)
            if fell or too_many or numbers[after_s] - numbers[before_s] > batches:
                kept.clear()
            elif batches:
                kept.append(Interval(query, before_s, after_s, batches, int(numbers[after_s])))
        intervals += kept
    return intervals


def keep_newest(intervals: Iterable[Interval], newest: int | None) -> dict[str, list[Interval]]:
    """The newest intervals of each query, oldest first; None keeps all."""
    found: dict[str, deque[Interval]] = defaultdict(lambda: deque(maxlen=newest))
    for interval in intervals:
        found[interval.query].append(interval)
    return {query: list(kept) for query, kept in found.items()}


def find_oldest(query_series: Iterable[Series], newest: int) -> float | None:
    """Time of the oldest scrape that the newest intervals of any query begin with.

    Args:
        query_series: series of batches, any order.
        newest: number of intervals of each query.

    Returns:
        Seconds since the Unix epoch; None if there is no interval.
    """
    targets = group_by_target(keep_readable(query_series))
    return min(
        (
            interval.before_s
            for series in targets.values()
            for kept in keep_newest(find_intervals(group_by_name(series)), newest).values()
            for interval in kept
        ),
        default=None,
    )


def find_pace_s(query_series: Iterable[Series]) -> float:
    """Seconds from one batch to the next of the slowest query; 0 if there is none."""
    return max(
        (
            s.samples[-1][1]
            for s in keep_readable(query_series)
            if _name(s) in {wire.TRIGGER_INTERVAL, wire.LAST_BATCH_DURATION}
        ),
        default=0.0,
    )


def keep_readable(all_series: Iterable[Series]) -> list[Series]:
    """The series that a driver can have written, with their sound samples.

    A value that is no number, such as Prometheus' stale marker, or that no driver writes, counts as
    a missing sample. A series without its labels is no driver's: somebody else's metrics must not
    end the balancing of the stream.

    >>> labels = {"__name__": "balancedstream_executor_cores", "executor": "1"}
    >>> keep_readable([Series(labels, ((1.0, 2.0), (2.0, float("nan"))))])[0].samples
    ((1.0, 2.0),)
    >>> keep_readable([Series({"__name__": "balancedstream_executor_cores"}, ((1.0, 2.0),))])
    []
    """
    sound = map(_restore_labels, map(_drop_unsound, all_series))
    return [s for s in sound if s.samples and _has_labels(s)]


def _drop_unsound(series: Series) -> Series:
    values = [value for _, value in series.samples]
    # A sum is finite only if all of it is.
    if isfinite(sum(values)) and (not values or (min(values) >= 0.0 and max(values) < LARGEST)):
        return series
    return Series(series.labels, tuple(s for s in series.samples if is_sound(s[1])))


def _restore_labels(series: Series) -> Series:
    """A series with the labels that the driver set, and without the target's of the same names."""
    labels = series.labels
    name = labels.get("__name__", "")
    foreign = _OF_DRIVER.intersection(labels).difference(_LABELS.get(name, ()))
    hidden = {exported: own for exported, own in _HIDDEN.get(name, ()) if exported in labels}
    if not (foreign or hidden):
        return series
    kept = {name: value for name, value in labels.items() if name not in foreign}
    restored = {name: kept.pop(exported) for exported, name in hidden.items()}
    return Series({**kept, **restored}, series.samples)


def _has_labels(series: Series) -> bool:
    # A driver has thousands of series, and a generator takes longer than what is in it.
    labels = series.labels
    for value in labels.values():
        if not (isinstance(value, str) and (value.isascii() or _is_unicode(value))):
            return False
    needed = _LABELS.get(labels.get("__name__", ""))
    if needed is None:
        return False
    for each in needed:
        found = labels.get(each)
        if not found:
            return False
        if each in _NUMBERS and not (
            found.isascii() and found.isdecimal() and len(found) < _DIGITS
        ):
            return False
    return True


def _is_unicode(text: str) -> bool:
    """Whether a text can be written: JSON may hold half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _name(series: Series) -> str:
    return series.labels["__name__"]


def _operator(series: Series) -> tuple[str, str]:
    return series.labels[wire.QUERY], series.labels[wire.OPERATOR]


def _shared(series: Series) -> set[tuple[str, str]]:
    return {label for label in series.labels.items() if label[0] != "__name__"}
