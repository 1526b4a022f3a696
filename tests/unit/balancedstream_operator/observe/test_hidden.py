"""All work is known, and executors can be removed, where most partitions have no series.

The batches are told to a real exporter, its scrapes are measured, plans are chosen from them, and a
real realizer carries them out on an engine that only takes down what it is told.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from scraped import Scrapes
from scripted import RecordingSpectator, ScriptedEngine

from balancedstream.core.balance.loads import OperatorLoad
from balancedstream.core.past import Past
from balancedstream.core.policy import MigrationPolicy, Policy, ScalingPolicy
from balancedstream.core.samples import BatchSample, StageSample, TaskSample
from balancedstream.core.scaling.verdicts import Verdict
from balancedstream.core.wire.plan import Plan
from balancedstream.engine.events import BatchFinished, StatefulOperator
from balancedstream.loop.realizing import Realizer, Why
from balancedstream.metrics.catalogue import SERIES_PER_PARTITION
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.journal import Journal
from balancedstream.record.records import RunInfo
from balancedstream.record.spectators import Metrics
from balancedstream_operator.plan.planner import DecisionInput, PlanChoice, choose_plan

KEY = ("q", 0)
EXECUTORS = tuple(f"e{n:03}" for n in range(100))
CORES = 8
PERIOD_S = 10.0
SHOWN = 2_000
SIZES = [6_400, 30_000]


class Job:
    """A query whose executors are 80 % busy, under an operator; a scrape follows each batch."""

    def __init__(self, partitions: int, policy: Policy | None = None) -> None:
        self.chance = random.Random(partitions)
        self.policy = policy or Policy()
        self.costs_s = {p: self.chance.uniform(0.5, 1.5) for p in range(partitions)}
        busy_s = 0.8 * PERIOD_S * CORES * len(EXECUTORS) / sum(self.costs_s.values())
        self.costs_s = {p: cost_s * busy_s for p, cost_s in self.costs_s.items()}
        self.placement = {p: EXECUTORS[p % len(EXECUTORS)] for p in range(partitions)}
        self.engine = ScriptedEngine([], dict.fromkeys(EXECUTORS, CORES))
        journal = Journal(
            History(RunInfo("test", 0.0, 2, "4.3.0", "3.11")),
            RecordingSpectator(),
            Metrics(),
            lambda: self.now_s,
        )
        self.realizer = Realizer(self.engine, journal)
        self.exporter, self.scrapes = Exporter(stream="shop/clicks"), Scrapes()
        self.batch, self.now_s = 0, 1_000.0
        self.done_s: list[dict[str, float]] = []

    def run_batch(self) -> None:
        self.batch += 1
        self.now_s += PERIOD_S
        if self.engine.placed:
            self.placement |= self.engine.placed[-1]
        sample = BatchSample("q", self.batch, self.now_s, 8.0, 10_000, PERIOD_S, 0.0)
        tasks = tuple(
            TaskSample("q", 0, p, self.batch, e, self._vary(self.costs_s[p]), 1, 1_000, self.now_s)
            for p, e in self.placement.items()
        )
        done_s: Counter[str] = Counter()
        for task in tasks:
            done_s[task.executor] += task.busy_s  # type: ignore[assignment]
        self.done_s.append(dict(done_s))
        operator = StatefulOperator((0,), "StateStoreSave", len(tasks))
        self.realizer.finish_batch(BatchFinished("q", sample, tasks, (operator,), 0))
        self.realizer.retire_drained()
        longest_s = max(task.busy_s for task in tasks)
        stage = StageSample(
            "q", self.batch, "stateful", self.now_s, len(tasks), longest_s, dict(done_s)
        )
        self.exporter.on_batch(sample, tasks, self.engine.executors(), [stage])
        state = self.realizer.state()
        self.exporter.on_epoch(state.epoch)
        self.exporter.on_moves_under_way({key: len(to) for key, to in state.moving.items()})
        self.scrapes.scrape(self.exporter, self.now_s + 1.0)

    def decide(self, plan: Plan | None) -> PlanChoice:
        """What the operator does after this plan was applied."""
        measurement = self.scrapes.measure(self.now_s + 2.0)
        asked = len(plan.executors) if plan else len(EXECUTORS)
        given = DecisionInput(plan, Past(asked, planned_after={"q": 4} if plan else {}, moved=True))
        return choose_plan(measurement, self.policy, given, 2 if plan else 1)

    def _vary(self, cost_s: float) -> float:
        return cost_s * self.chance.uniform(0.9, 1.1)


def add_up(load: OperatorLoad) -> float:
    """Busy seconds a batch of all partitions, shown or hidden."""
    return sum(load.busy_s.values()) + sum(load.hidden_busy_s.values())


@pytest.mark.parametrize("partitions", SIZES)
def test_all_work_is_measured(partitions: int) -> None:
    job = Job(partitions)
    for _ in range(4):
        job.run_batch()
    load = job.decide(None).decision.loads[KEY]
    assert len(load.busy_s) == SHOWN
    for executor in EXECUTORS:
        truth_s = sum(done_s[executor] for done_s in job.done_s[1:]) / 3
        assert load.executor_busy_s[executor] == pytest.approx(truth_s, rel=1e-6)
    assert add_up(load) == pytest.approx(0.8 * PERIOD_S * CORES * len(EXECUTORS), rel=0.01)
    assert sum(load.busy_s.values()) < 0.5 * add_up(load), "most of it is hidden"
    assert sum(load.hidden_state_bytes.values()) == 1_000 * (partitions - SHOWN)


def test_the_work_of_hidden_partitions_keeps_the_executors_that_it_fills() -> None:
    job = Job(SIZES[0], Policy(scaling=ScalingPolicy(max_executors=200)))
    for _ in range(10):
        job.run_batch()
    scaling = job.decide(None).decision.scaling
    assert scaling.utilization == pytest.approx(0.8, rel=0.02)
    assert scaling.verdict in {Verdict.STEADY, Verdict.CAPACITY, Verdict.SURPLUS}
    assert scaling.executors >= 0.8 * 100


@pytest.mark.parametrize(("partitions", "budget_s"), [(6_400, 1.0), (30_000, 3600.0)])
def test_thirty_of_a_hundred_executors_are_drained_and_retired(
    partitions: int, budget_s: float
) -> None:
    job = Job(
        partitions,
        Policy(
            scaling=ScalingPolicy(min_executors=70, max_executors=70),
            migration=MigrationPolicy(budget_s=budget_s),
        ),
    )
    for _ in range(4):
        job.run_batch()
    plan = job.decide(None).plan
    assert plan is not None
    assert len(plan.executors) == 70
    assert len(plan.owners(*KEY)) == SHOWN
    job.realizer.apply(plan, Why({}, scaling="fewer are enough"))
    steps = 0
    while job.realizer.state().moving:
        job.run_batch()
        steps += 1
        choice = job.decide(plan)
        assert choice.plan is None, "nothing else is planned meanwhile"
        load = choice.decision.loads[KEY]
        assert add_up(load) == pytest.approx(0.8 * PERIOD_S * CORES * 100, rel=0.01)
    assert (steps > 1) == (budget_s == 1.0)
    assert set(job.engine.removed) == set(EXECUTORS) - set(plan.executors)
    assert set(job.placement.values()) == set(plan.executors)
    busy_s = Counter[str]()
    for partition, executor in job.placement.items():
        busy_s[executor] += job.costs_s[partition]  # type: ignore[assignment]
    assert max(busy_s.values()) <= 1.05 * sum(busy_s.values()) / 70


@pytest.mark.parametrize("partitions", SIZES)
def test_shown_partitions_leave_an_executor_that_hidden_ones_make_hot(partitions: int) -> None:
    job = Job(partitions)
    # The coldest partitions of the others join those of one executor.
    coldest = sorted(job.costs_s, key=job.costs_s.__getitem__)[: partitions // 150]
    job.placement |= dict.fromkeys(coldest, EXECUTORS[0])
    for _ in range(4):
        job.run_batch()
    decision = job.decide(None).decision
    load, balance = decision.loads[KEY], decision.balance[KEY]
    assert balance.imbalance_before > 1.2
    assert balance.imbalance_after < balance.imbalance_before - 0.05
    assert Counter(move.source for move in balance.moves).most_common(1)[0][0] == EXECUTORS[0]
    assert {move.partition for move in balance.moves} <= load.busy_s.keys()


def test_whatever_becomes_shown_or_hidden_moves_or_leaves_every_interval_has_all_work() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    exporter = Exporter(max_partition_series=10 * SERIES_PER_PARTITION)
    scrapes, done_s, scraped, now_s = Scrapes(), [0.0], [], 100.0
    executors = {"1": 1, "2": 1, "3": 2}
    placement = {p: chance.choice(sorted(executors)) for p in range(40)}
    heat = dict.fromkeys(placement, 1.0)
    for number in range(80):
        if chance.random() < 0.2:
            executors[str(number + 10)] = 1
        if len(executors) > 2 and chance.random() < 0.2:
            del executors[chance.choice(sorted(executors))]
        for p, executor in placement.items():
            # Some run their last batches on an executor that drains or was lost.
            if chance.random() < (0.05 if executor in executors else 0.6):
                placement[p] = chance.choice(sorted(executors))
            heat[p] *= chance.uniform(0.5, 2.0)
        costs_s = {p: heat[p] * chance.random() for p in placement}
        tasks = [
            TaskSample("q", 0, p, number, e, costs_s[p] + 0.25, 1, 10, 0.0, restore_s=0.25)
            for p, e in placement.items()
        ]
        sample = BatchSample("q", number, now_s, 2.0, 100, 5.0, 0.0)
        exporter.on_batch(sample, tasks, executors)
        done_s.append(done_s[-1] + sum(costs_s.values()))
        now_s += 5.0
        if chance.random() < 0.5:
            scrapes.scrape(exporter, now_s)
            scraped.append((now_s, number))
    found = scrapes.measure(scraped[-1][0])
    assert len(scraped) > 2
    for (_, before), (time_s, after) in pairwise(scraped):
        shown_s = [t.work_s for t in found.tasks if t.finished_s == time_s]
        hidden = [h for h in found.hidden if h.finished_s == time_s]
        assert {h.batch for h in hidden} == {after}
        assert all(h.work_s >= 0 for h in hidden)
        total_s = (sum(shown_s) + sum(h.work_s for h in hidden)) * (after - before)
        assert total_s == pytest.approx(done_s[after + 1] - done_s[before + 1], rel=1e-6)


def test_nothing_is_hidden_where_every_partition_has_series() -> None:
    exporter, scrapes = Exporter(), Scrapes()
    for number in (1, 2):
        tasks = [TaskSample("q", 0, p, number, "1", 1.0, 1, 10, 0.0) for p in range(3)]
        exporter.on_batch(BatchSample("q", number, 0.0, 2.0, 100, 5.0), tasks, {"1": 1})
        scrapes.scrape(exporter, 100.0 * number)
    assert scrapes.measure(201.0).hidden == ()


def test_an_operator_without_any_shown_partition_is_measured() -> None:
    exporter, scrapes = Exporter(max_partition_series=0), Scrapes()
    for number in (1, 2):
        tasks = [TaskSample("q", 0, p, number, "12"[p % 2], 1.0, 1, 10, 0.0) for p in range(3)]
        exporter.on_batch(BatchSample("q", number, 0.0, 2.0, 100, 5.0), tasks, {"1": 1, "2": 1})
        scrapes.scrape(exporter, 100.0 * number)
    found = scrapes.measure(201.0)
    assert found.tasks == ()
    assert [(h.executor, h.batch, h.state_bytes) for h in found.hidden] == [
        ("1", 2, 20),
        ("2", 2, 10),
    ]
    assert [h.work_s for h in found.hidden] == pytest.approx([2.0, 1.0])
