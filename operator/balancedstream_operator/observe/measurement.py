"""Turns Prometheus' series of one stream into the measurement that the core decides on: pure.

All samples of a scrape have the same time, and the exporter shows complete batches only. So a
series belongs to the newest scrape if it has a sample of that time, and differences
between two scrapes are exact: no rate is extrapolated. A sample that is missing costs its interval,
and never a pass. The first scrape of a driver is only a baseline, so no measurement contains the
start of its Python workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TypeVar

from balancedstream.core.balance.restoring import RestoreCost
from balancedstream.core.memory.use import Memory
from balancedstream.core.samples import (
    BatchSample,
    HiddenSample,
    KeySample,
    OperatorId,
    SlotHolder,
    StageSample,
    TaskSample,
)
from balancedstream.core.scaling.workload import waits_for_data
from balancedstream.core.wire import series as wire
from balancedstream_operator.api.status import LoadedAhead, Preparations
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe.batches import (
    BATCH_METRICS,
    find_longest,
    sample_batches,
    sample_last,
)
from balancedstream_operator.observe.driver_times import settle_times
from balancedstream_operator.observe.executor_memory import read_memory
from balancedstream_operator.observe.hidden import sample_hidden
from balancedstream_operator.observe.series import (
    MEMORY_METRICS,
    Series,
    find_intervals,
    find_lasting,
    find_scrapes,
    group_by_name,
    group_by_target,
    is_partial,
    keep_newest,
    keep_readable,
)
from balancedstream_operator.observe.stages import STAGE_METRICS, sample_stages
from balancedstream_operator.observe.tasks import TASK_METRICS, sample_keys, sample_tasks

QUERY_METRICS = (
    wire.PLAN_EPOCH,
    wire.EXECUTORS,
    wire.EXECUTOR_CORES,
    wire.EXECUTOR_LOSSES,
    wire.MOVE_FIXED_SECONDS,
    wire.MOVE_BYTES_PER_SECOND,
    wire.MOVE_KEY_SECONDS,
    wire.MOVES_UNDER_WAY,
    wire.MOVES_PREPARED,
    wire.MOVES_PREPARING,
    wire.PREPARATIONS,
    wire.PREPARED_BYTES,
    wire.PREPARED_SECONDS,
    *BATCH_METRICS,
    wire.SLOTS_NEEDED,
    wire.SLOTS_HELD,
    wire.QUERY_IDLE_TIMESTAMP,
    wire.KEYS_UNDER_WAY,
    wire.LAST_KEY_ARRIVAL,
    wire.SHUFFLE_TRUSTED,
    wire.SHUFFLE_UNTRUSTED_BATCHES,
    wire.SHUFFLE_ERROR,
    wire.SHUFFLE_EQUAL_ERROR,
    *STAGE_METRICS,
    *MEMORY_METRICS,
)
"""Metrics to fetch over the time that scaling looks back."""

PARTITION_METRICS = (
    *TASK_METRICS,
    wire.PARTITIONS_HIDDEN,
    wire.OPERATOR_BUSY,
    wire.OPERATOR_STATE_LOAD,
    wire.EXECUTOR_BUSY,
    wire.EXECUTOR_STATE_LOAD,
    wire.EXECUTOR_STATE_BYTES,
)
"""Metrics of partitions and keys, to fetch over the time that balancing looks back."""

STALE_SCRAPES = 3
"""This many scrapes may be missing before the newest one is too old."""

MIN_STALE_S = 10.0

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class ShuffleSample:
    """How good the estimates of a cost-aware shuffle are.

    Attributes:
        shuffle: its name.
        trusted: whether the next batch is routed by estimated costs, and not round robin.
        untrusted_batches: batches in a row that checked the estimates and did not trust them.
        error: of the estimates, as a fraction of the total cost; None before a batch checked them.
        equal_error: the same for the assumption that all rows cost the same.
    """

    shuffle: str
    trusted: bool
    untrusted_batches: int
    error: float | None
    equal_error: float | None


@dataclass(frozen=True)
class Measurement:
    """What a stream's driver measured, up to its newest scrape.

    Attributes:
        scraped_s: time of that scrape, seconds since the Unix epoch.
        epoch: of the plan that the driver has in force.
        executors: live executors, id to cores.
        tasks: one sample per partition and interval between scrapes in which batches finished: the
            mean of those batches; none from before keys last reached their target partitions.
        batches: one sample per batch; the batches between two scrapes share what changed evenly. A
            query that waits for data for longer than the samples reach has its last batch, without
            rows.
        last_batches: query to its last finished batch.
        finished_s: query to the time at which that batch finished, however long ago.
        longest_s: query to the seconds of the longest of its batches, or from one trigger to the
            next if that is longer.
        backlog_rows: query to the rows that waited for it then; without queries of unknown backlog.
        under_way: (query, operator) to the number of partitions that have not reached their
            executors.
        prepared: operators whose moves cost a batch nothing, because the driver loaded their state
            ahead.
        preparing: number of moves whose state executors load now, over all operators.
        preparations: state that executors loaded ahead of moves since the driver started; None for
            a driver of an older release.
        restore_cost: cost of moves, as the driver measured it.
        keys: one sample per hot key and scrape: of the last batch before it.
        keys_under_way: query to the number of keys that have not reached their partitions.
        shuffles: one sample per cost-aware shuffle, by name.
        stages: one sample per kind of stage and interval between scrapes in which batches finished:
            the mean of those batches.
        idle_s: query to the time at which Spark last said that it waits for data.
        losses: every cause to the number of executors lost by it within the time that scaling
            looks back; empty for a driver of an older release.
        hidden: work of the partitions without a sample in `tasks`, one sample per executor and
            interval; none for operators that hide no partition.
        holders: queries that hold slots; their batches are not in `batches`, because the time of
            their tasks says nothing of their load.
        memory: what the executors take of memory.
    """

    scraped_s: float
    epoch: int
    executors: Mapping[str, int]
    tasks: tuple[TaskSample, ...] = ()
    batches: tuple[BatchSample, ...] = ()
    last_batches: Mapping[str, int] = field(default_factory=dict)
    finished_s: Mapping[str, float] = field(default_factory=dict)
    longest_s: Mapping[str, float] = field(default_factory=dict)
    backlog_rows: Mapping[str, float] = field(default_factory=dict)
    under_way: Mapping[OperatorId, int] = field(default_factory=dict)
    prepared: tuple[OperatorId, ...] = ()
    preparing: int = 0
    preparations: Preparations | None = None
    restore_cost: RestoreCost = RestoreCost()  # noqa: RUF009 - frozen
    keys: tuple[KeySample, ...] = ()
    keys_under_way: Mapping[str, int] = field(default_factory=dict)
    shuffles: tuple[ShuffleSample, ...] = ()
    stages: tuple[StageSample, ...] = ()
    idle_s: Mapping[str, float] = field(default_factory=dict)
    losses: Mapping[str, int] = field(default_factory=dict)
    hidden: tuple[HiddenSample, ...] = ()
    holders: tuple[SlotHolder, ...] = ()
    memory: Memory = Memory()  # noqa: RUF009 - frozen


def measure(
    query_series: Iterable[Series],
    partition_series: Iterable[Series],
    now_s: float,
    *,
    stale_after_s: float | None = None,
    newest: int | None = None,
) -> Measurement:
    """Reads a measurement from the series of one stream.

    Args:
        query_series: of `QUERY_METRICS` and its driver, any order.
        partition_series: of `PARTITION_METRICS`, any order, as far back as `find_oldest` says.
        now_s: the current time, by the clock of the samples.
        stale_after_s: age from which the newest scrape is too old; None follows the scrapes.
        newest: number of intervals of each query that get samples of partitions and keys; None
            for all. A window of as many batches needs no others.

    Raises:
        MissingMeasurementsError: Prometheus has no samples, or no recent ones.

    >>> labels = {"__name__": "balancedstream_plan_epoch", "instance": "10.0.0.7:9404"}
    >>> measure([Series(labels, ((40.0, 6.0), (50.0, 7.0)))], [], now_s=55.0).epoch
    7
    """
    targets = group_by_target(keep_readable(query_series))
    if not targets:
        message = (
            "Prometheus has no metrics of this stream: check that its driver runs, and that "
            "Prometheus scrapes it"
        )
        raise MissingMeasurementsError(message)
    found = {target: group_by_name(series) for target, series in targets.items()}
    scrapes = {target: find_scrapes(mine) for target, mine in found.items()}
    # Of equally recent targets, the one with the fewest gaps.
    target = max(found, key=lambda t: (scrapes[t][-1:], len(scrapes[t]), sorted(t)))
    mine = settle_times(found[target])
    if not scrapes[target]:
        message = "every scrape of this stream in Prometheus misses some of its executors"
        raise MissingMeasurementsError(message)
    scraped_s = scrapes[target][-1]
    _check_fresh(scrapes[target], now_s, stale_after_s)
    current = group_by_name(
        Series(s.labels, ((time_s, value),))
        for series in mine.values()
        for s in series
        for time_s, value in s.samples
        if time_s == scraped_s
    )
    of_partitions = group_by_target(keep_readable(partition_series), found)
    partitions = group_by_name(of_partitions[target])
    executors = _newest_by(wire.EXECUTOR, current[wire.EXECUTOR_CORES], int)
    holders = _list_holders(current)
    held = {holder.query for holder in holders}
    intervals = shown = [i for i in find_intervals(mine) if i.query not in held]
    stages: dict[str, list[Series]] = {n: mine[n] for n in STAGE_METRICS if n in mine}
    if is_partial(find_lasting({**partitions, **stages}, executors), scrapes[target]):
        shown = [i for i in intervals if i.after_s < scraped_s]
    arrivals = _newest_by(wire.QUERY, current[wire.LAST_KEY_ARRIVAL], int)
    # Loads change when keys reach other partitions, and an interval may span both.
    level = keep_newest(
        (i for i in shown if i.last_batch - i.batches + 1 >= arrivals.get(i.query, 0)), newest
    )
    tasks = tuple(sample_tasks(partitions, level))
    batches = tuple(sample_batches(mine, intervals))
    idle_s = _newest_by(wire.QUERY, current[wire.QUERY_IDLE_TIMESTAMP], float)
    seen = {batch.query for batch in batches}
    resting = (
        batch
        for batch in sample_last(mine, current)
        if batch.query not in seen | held and waits_for_data(batch.query, idle_s, scraped_s)
    )
    return Measurement(
        scraped_s=scraped_s,
        epoch=int(_newest(current[wire.PLAN_EPOCH], default=0.0)),
        executors=executors,
        tasks=tasks,
        batches=(*batches, *resting),
        last_batches=_newest_by(wire.QUERY, current[wire.LAST_BATCH_ID], int),
        finished_s=_newest_by(wire.QUERY, current[wire.LAST_BATCH_TIMESTAMP], float),
        longest_s=find_longest(current, batches),
        backlog_rows=_newest_by(wire.QUERY, current[wire.BACKLOG_ROWS], float),
        under_way={
            (s.labels[wire.QUERY], int(s.labels[wire.OPERATOR])): int(s.samples[-1][1])
            for s in current[wire.MOVES_UNDER_WAY]
        },
        prepared=tuple(
            (s.labels[wire.QUERY], int(s.labels[wire.OPERATOR]))
            for s in current[wire.MOVES_PREPARED]
            if s.samples[-1][1] == 1.0
        ),
        preparing=sum(int(s.samples[-1][1]) for s in current[wire.MOVES_PREPARING]),
        preparations=_count_preparations(current),
        restore_cost=RestoreCost(
            _newest(current[wire.MOVE_FIXED_SECONDS], RestoreCost().fixed_s),
            _newest(current[wire.MOVE_BYTES_PER_SECOND], RestoreCost().bytes_per_s),
            _newest(current[wire.MOVE_KEY_SECONDS], RestoreCost().key_s),
        ),
        keys=tuple(sample_keys(partitions, level)),
        keys_under_way=_newest_by(wire.QUERY, current[wire.KEYS_UNDER_WAY], int),
        shuffles=tuple(_sample_shuffles(current)),
        stages=tuple(sample_stages(stages, shown)),
        idle_s=idle_s,
        losses={s.labels[wire.CAUSE]: _count_new(s) for s in mine.get(wire.EXECUTOR_LOSSES, ())},
        hidden=tuple(sample_hidden(partitions, level, tasks)),
        holders=holders,
        memory=read_memory(current, executors),
    )


def _list_holders(current: Mapping[str, Sequence[Series]]) -> tuple[SlotHolder, ...]:
    """The queries that hold slots, and how many of each executor."""
    held: dict[str, dict[str, int]] = {}
    for series in current[wire.SLOTS_HELD]:
        of_query = held.setdefault(series.labels[wire.QUERY], {})
        of_query[series.labels[wire.EXECUTOR]] = int(series.samples[-1][1])
    return tuple(
        SlotHolder(
            query := series.labels[wire.QUERY],
            "continuous" if series.labels[wire.TRIGGER] == "continuous" else "real-time",
            int(series.samples[-1][1]) or None,
            held.get(query, {}),
        )
        for series in current[wire.SLOTS_NEEDED]
    )


def _newest(all_series: Sequence[Series], default: float) -> float:
    return all_series[0].samples[-1][1] if all_series else default


def _newest_by(label: str, all_series: Sequence[Series], kind: type[_Number]) -> dict[str, _Number]:
    """The newest value for each value of a label, such as each query."""
    return {s.labels[label]: kind(s.samples[-1][1]) for s in all_series}


def _count_new(counter: Series) -> int:
    """By how much a counter has grown; it begins at 0 again with a new driver."""
    values = [value for _, value in counter.samples]
    steps = (after - before if after >= before else after for before, after in pairwise(values))
    return int(sum(steps))


def _count_preparations(current: Mapping[str, Sequence[Series]]) -> Preparations | None:
    """State loaded ahead, by outcome; None for a driver of an older release."""
    moves = _newest_by(wire.OUTCOME, current[wire.PREPARATIONS], int)
    sizes = _newest_by(wire.OUTCOME, current[wire.PREPARED_BYTES], int)
    spent_s = _newest_by(wire.OUTCOME, current[wire.PREPARED_SECONDS], float)
    found = {
        outcome: LoadedAhead(
            moves=moves[outcome],
            state_bytes=sizes.get(outcome, 0),
            seconds=round(spent_s.get(outcome, 0.0), 3),
        )
        for outcome in ("used", "wasted", "failed")
        if outcome in moves
    }
    return Preparations(**found) if found else None


def _check_fresh(scrapes: Sequence[float], now_s: float, stale_after_s: float | None) -> None:
    gaps = [after - before for before, after in pairwise(scrapes)]
    limit_s = max(MIN_STALE_S, STALE_SCRAPES * median(gaps)) if gaps else 60.0
    limit_s = limit_s if stale_after_s is None else stale_after_s
    age_s = now_s - scrapes[-1]
    if age_s > limit_s:
        message = (
            f"the newest scrape of this stream is {age_s:.0f} s old: its driver is gone, or does "
            "not answer Prometheus"
        )
        raise MissingMeasurementsError(message)


def _sample_shuffles(current: Mapping[str, Sequence[Series]]) -> Iterable[ShuffleSample]:
    trusted, untrusted_batches, errors, equal_errors = (
        _newest_by(wire.SHUFFLE, current.get(name, ()), float)
        for name in (
            wire.SHUFFLE_TRUSTED,
            wire.SHUFFLE_UNTRUSTED_BATCHES,
            wire.SHUFFLE_ERROR,
            wire.SHUFFLE_EQUAL_ERROR,
        )
    )
    for shuffle in sorted(trusted):
        yield ShuffleSample(
            shuffle=shuffle,
            trusted=bool(trusted[shuffle]),
            untrusted_batches=int(untrusted_batches.get(shuffle, 0.0)),
            error=errors.get(shuffle),
            equal_error=equal_errors.get(shuffle),
        )
