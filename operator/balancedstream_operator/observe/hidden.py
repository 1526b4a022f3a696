"""Work of the partitions that have no series of their own, by executor: pure.

Beyond a limit on series, the exporter shows the hottest partitions only, but sums over all. So the
hidden work of an interval is the operator's work less the work of partitions with samples at both
ends of the interval. A partition that becomes shown or hidden within it counts as hidden.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from balancedstream.core.balance.loads import share_out
from balancedstream.core.samples import HiddenSample, OperatorId, TaskSample
from balancedstream.core.wire import series as wire
from balancedstream_operator.observe.series import Interval, Series

_Values = Mapping[float, float]


def sample_hidden(
    found: Mapping[str, Sequence[Series]],
    intervals_of: Mapping[str, Sequence[Interval]],
    tasks: Iterable[TaskSample],
) -> Iterable[HiddenSample]:
    """Samples of the operators that hide partitions, for each interval and executor.

    The sums per executor miss the work of an executor that leaves before a scrape, and a shown
    partition that moved within an interval counts where it ran last. So these sums only share out
    the operator's work.

    Args:
        found: series of the sums, by name.
        intervals_of: query to its intervals.
        tasks: samples of the shown partitions in the same intervals.
    """
    shown_s: dict[tuple[OperatorId, float], dict[str, float]] = defaultdict(
        lambda: defaultdict(float)
    )
    shown_bytes: dict[tuple[OperatorId, float], dict[str, int]] = defaultdict(
        lambda: defaultdict(int)
    )
    for task in tasks:
        where = (task.query, task.operator), task.finished_s
        shown_s[where][task.executor] += task.work_s
        shown_bytes[where][task.executor] += task.state_bytes
    totals = _read_work(found, wire.OPERATOR_BUSY, wire.OPERATOR_STATE_LOAD)
    executors = _read_work(found, wire.EXECUTOR_BUSY, wire.EXECUTOR_STATE_LOAD)
    state_bytes = _read(found, wire.EXECUTOR_STATE_BYTES)
    for (operator, _), counts in _read(found, wire.PARTITIONS_HIDDEN).items():
        for interval in intervals_of.get(operator[0], ()):
            before_s, after_s = interval.before_s, interval.after_s
            hides = counts.get(before_s) or counts.get(after_s)
            total_s = totals.get((operator, ""), {})
            if not hides or before_s not in total_s or after_s not in total_s:
                continue
            shown = shown_s[operator, after_s]
            rest_s = (total_s[after_s] - total_s[before_s]) / interval.batches - sum(shown.values())
            shares = {
                # An executor without a sample before has joined since, with counters at 0.
                executor: (done_s[after_s] - done_s.get(before_s, 0.0)) / interval.batches
                - shown.get(executor, 0.0)
                for (key, executor), done_s in executors.items()
                if key == operator and after_s in done_s
            }
            for executor, work_s in share_out(max(0.0, rest_s), shares).items():
                held = state_bytes.get((operator, executor), {}).get(after_s, 0.0)
                yield HiddenSample(
                    query=operator[0],
                    operator=operator[1],
                    batch=interval.last_batch,
                    executor=executor,
                    work_s=work_s,
                    state_bytes=max(0, int(held) - shown_bytes[operator, after_s][executor]),
                    finished_s=after_s,
                )


def _read_work(
    found: Mapping[str, Sequence[Series]], busy: str, state_load: str
) -> dict[tuple[OperatorId, str], _Values]:
    """Busy seconds without the restore of state, from a driver's start to each scrape."""
    restore_s = _read(found, state_load)
    return {
        key: {
            time_s: value - restore_s.get(key, {}).get(time_s, 0.0)
            for time_s, value in values.items()
        }
        for key, values in _read(found, busy).items()
    }


def _read(
    found: Mapping[str, Sequence[Series]], name: str
) -> dict[tuple[OperatorId, str], _Values]:
    """A metric's values by time, for each operator and, if it has that label, executor."""
    return {
        (
            (series.labels[wire.QUERY], int(series.labels[wire.OPERATOR])),
            series.labels.get(wire.EXECUTOR, ""),
        ): dict(series.samples)
        for series in found.get(name, ())
    }
