"""A stream in simulated time that is scaled decision after decision settles near the oracle."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from balancedstream.core.balance.loads import measure, prune
from balancedstream.core.decisions import Decision
from balancedstream.core.observations import Observation
from balancedstream.core.past import Past
from balancedstream.core.policy import Policy, ScalingPolicy
from balancedstream.core.samples import BatchSample, StageSample, TaskSample
from balancedstream.core.scaling.executors import HOLD_S, ScalingDecision, decide
from balancedstream.core.wire.plan import Plan

ROW_S = 0.001
PARTITIONS = 96


@dataclass
class Stream:
    """A stream in simulated time, its partitions always balanced, scaled by `decide`.

    Rows arrive evenly at `rate`; a batch takes what waits, up to `cap`, and lasts as long as its
    busiest executor plus `overhead_s` of the driver's.
    """

    policy: Policy
    rate: float
    executors: int
    trigger_s: float = 10.0
    overhead_s: float = 0.0
    cap: float = math.inf
    tells_backlog: bool = True
    noise: Random | None = None
    now_s: float = 0.0
    waiting: float = 0.0
    batch: int = 0
    started_s: float | None = None
    batches: list[BatchSample] = field(default_factory=list)
    tasks: list[TaskSample] = field(default_factory=list)
    stages: list[StageSample] = field(default_factory=list)
    past: Past = Past()  # noqa: RUF009 - frozen
    changes: list[tuple[float, int, str]] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self._run_batch()
            decision = self._decide()
            changes = decision.executors != self.executors
            names = tuple(str(number) for number in range(decision.executors))
            plan = Plan(self.batch, names, {}) if changes else None
            past = replace(self.past, requested=self.executors)
            self.past = past.after(Decision({}, {}, decision, names, {}), plan, self.now_s, {})
            if changes:
                self.changes.append((self.now_s, decision.executors, decision.reason))
                self.executors = decision.executors

    @property
    def oracle(self) -> int:
        """The fewest executors that keep each batch within its trigger interval."""
        return max(1, math.ceil(self.rate * ROW_S / (1.0 - self.overhead_s / self.trigger_s)))

    def _run_batch(self) -> None:
        start_s = self.now_s
        if self.started_s is not None:
            start_s = max(self.now_s, self.started_s + self.trigger_s)
        self.waiting += (start_s - (self.started_s or 0.0)) * self.rate
        rows = min(self.waiting, self.cap)
        self.waiting -= rows
        busy_s = rows * ROW_S / PARTITIONS
        if self.noise:
            busy_s *= self.noise.uniform(0.8, 1.2)
        owners = [str(partition % self.executors) for partition in range(PARTITIONS)]
        duration_s = self.overhead_s + busy_s * math.ceil(PARTITIONS / self.executors)
        self.now_s = start_s + duration_s
        self.tasks += [
            TaskSample("q", 0, p, self.batch, owner, busy_s, int(rows / PARTITIONS), 0, self.now_s)
            for p, owner in enumerate(owners)
        ]
        shares = {owner: owners.count(owner) * busy_s for owner in owners}
        self.stages.append(
            StageSample("q", self.batch, "stateful", self.now_s, PARTITIONS, busy_s, shares)
        )
        self.stages = self.stages[-60:]
        interval_s = None if self.started_s is None else start_s - self.started_s
        self.batches.append(
            BatchSample(
                "q",
                self.batch,
                self.now_s,
                duration_s,
                int(rows),
                interval_s,
                self.waiting if self.tells_backlog else None,
                self.trigger_s,
                gaps_s=self.overhead_s,
            )
        )
        self.batches = [b for b in self.batches if b.finished_s > self.now_s - 1200]
        self.started_s = start_s
        self.batch += 1

    def _decide(self) -> ScalingDecision:
        live = {str(number): 1 for number in range(self.executors)}
        self.tasks = prune(self.tasks, self.policy, self.now_s)
        observation = Observation(
            self.now_s,
            live,
            batches=tuple(self.batches),
            stages=tuple(self.stages),
        )
        loads = measure(self.tasks, live, self.policy, self.now_s)
        return decide(self.past.recall(observation), loads, self.policy)


def relative(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_subnormal=False)


def run_step(stream: Stream, factor: float) -> list[int]:
    """Change the rate, let the loop act, then see it rest for 10 minutes; the counts it chose."""
    stream.run(240)
    stream.changes.clear()
    stream.rate *= factor
    stream.run(2400)
    counts = [count for _, count, _ in stream.changes]
    stream.changes.clear()
    stream.run(600)
    assert not stream.changes, f"no rest after a step of {factor}: {stream.changes}"
    return counts


@given(
    executors=st.integers(1, 6),
    fill=relative(0.7, 0.9),
    factor=st.one_of(relative(0.36, 1.0), relative(1.0, 4.0)),
    trigger_s=st.sampled_from([5.0, 10.0, 20.0]),
    overhead_s=st.sampled_from([0.2, 0.5]),
)
@settings(max_examples=12)
def test_a_step_in_load_ends_near_the_oracle_after_three_actions_at_most(
    executors: int, fill: float, factor: float, trigger_s: float, overhead_s: float
) -> None:
    stream = Stream(
        Policy(scaling=ScalingPolicy(max_executors=64)),
        rate=executors * fill / ROW_S,
        executors=executors,
        trigger_s=trigger_s,
        overhead_s=overhead_s,
    )
    counts = run_step(stream, factor)
    assert len(counts) <= 3, counts
    # Partitions are whole, so some counts are no better than fewer of them. Batches that take a
    # little longer than their trigger follow each other, and may meet the objective.
    assert stream.rate * ROW_S < stream.executors <= 1.5 * stream.oracle + 1, (
        counts,
        stream.oracle,
    )
    latency_s = stream.trigger_s + stream.batches[-1].duration_s
    assert latency_s <= 2.5 * stream.trigger_s


@given(
    executors=st.integers(1, 8),
    load=relative(0.5, 4.0),
    cap=st.sampled_from([math.inf, 100_000.0]),
    overhead_s=st.sampled_from([0.2, 1.0]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=8)
def test_noise_of_a_fifth_and_an_untold_backlog_bring_no_oscillation(
    executors: int, load: float, cap: float, overhead_s: float, seed: int
) -> None:
    stream = Stream(
        Policy(scaling=ScalingPolicy(max_executors=12)),
        rate=load / ROW_S,
        executors=executors,
        overhead_s=overhead_s,
        cap=cap,
        tells_backlog=False,
        noise=Random(seed),
    )
    stream.run(3600)
    counts = [executors] + [count for _, count, _ in stream.changes]
    directions = [after > before for before, after in pairwise(counts)]
    turns = sum(before != after for before, after in pairwise(directions))
    # An untold backlog is worked off with more than the rate needs; those are given back, once.
    # By chance, batches may cost so little for a while that one of those that stay is given, too.
    assert turns <= 3, (counts, f"seed {seed}")
    times_s = [at_s for at_s, _, _ in stream.changes]
    for (before, after), (at_s, next_s) in zip(
        pairwise(directions), pairwise(times_s), strict=True
    ):
        assert before == after or next_s - at_s >= HOLD_S


def test_what_a_scale_out_added_is_not_taken_back_for_want_of_memory() -> None:
    stream = Stream(
        Policy(scaling=ScalingPolicy(max_executors=8)),
        rate=2.2 / ROW_S,
        executors=2,
        overhead_s=0.2,
    )
    stream.run(7200)
    counts = [count for _, count, _ in stream.changes]
    assert (len(counts) <= 3, counts[-1]) == (True, 3), stream.changes
