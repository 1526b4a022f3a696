"""Histories of simulated runs: a Zipf-skewed stream, balanced greedily while it runs.

Only the shape matters here (the balancer has tests of its own): skew, moves that settle a batch
later, a hot set that shifts, executors that are added, a backlog that drains, noise.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from balancedstream.core.decisions import DecisionKind
from balancedstream.record.history import History
from balancedstream.record.records import (
    BatchRecord,
    DecisionRecord,
    MoveRecord,
    OperatorBatchLoad,
    RunInfo,
    ScaleRecord,
)

STARTED_S = 1_700_000_000.0


@dataclass(frozen=True)
class Scenario:
    """What to simulate; the defaults are a small demo."""

    seed: int = 1
    batches: int = 60
    partitions: int = 16
    executors: int = 4
    keys: int = 200
    zipf: float = 1.0
    rows: int = 6_000
    row_cost_s: float = 0.002
    first_balance: int = 12
    shift_at: int | None = None
    grow_at: int | None = None
    grow_to: int = 6
    balance: bool = True
    query: str = "delays"
    operator_name: str = "stateStoreSave"
    backlog: bool = True


class Simulation:
    """Runs one scenario into a history."""

    def __init__(self, scenario: Scenario, history: History) -> None:
        self.scenario = scenario
        self.history = history
        self.random = random.Random(scenario.seed)
        self.live = [str(i) for i in range(scenario.executors)]
        # what Spark's early batches leave behind: even-ish counts, blind to load
        self.placement = [self.random.choice(self.live) for _ in range(scenario.partitions)]
        self.key_partition = [
            self.random.randrange(scenario.partitions) for _ in range(scenario.keys)
        ]
        self.now_s = STARTED_S
        self.backlog = 20.0 * scenario.rows if scenario.backlog else None

    def run(self) -> History:
        for batch in range(self.scenario.batches):
            if batch == self.scenario.grow_at:
                self._grow()
            if batch == self.scenario.shift_at:
                self.random.shuffle(self.key_partition)
            load = self._run_batch(batch)
            self._settle()
            self._decide(batch, load)
        self.history.end(self.now_s)
        return self.history

    def _run_batch(self, batch: int) -> OperatorBatchLoad:
        scenario = self.scenario
        weights = [1.0 / (rank + 1) ** scenario.zipf for rank in range(scenario.keys)]
        share = sum(weights)
        rows = round(scenario.rows * self.random.uniform(0.9, 1.1))
        busy_s = [0.02] * scenario.partitions
        for weight, partition in zip(weights, self.key_partition, strict=True):
            noise = self.random.uniform(0.85, 1.15)
            busy_s[partition] += rows * weight / share * scenario.row_cost_s * noise
        if batch == 0:  # Python workers start
            busy_s = [value + 2.0 for value in busy_s]
        busy_s = [round(value, 3) for value in busy_s]
        per_executor = dict.fromkeys(self.live, 0.0)
        for partition, executor in enumerate(self.placement):
            per_executor[executor] += busy_s[partition]
        mean_s = sum(busy_s) / len(self.live)
        load = OperatorBatchLoad(
            operator=0,
            name=scenario.operator_name,
            partition_busy_s=tuple(busy_s),
            partition_executor=tuple(self.placement),
            imbalance=max(per_executor.values()) / mean_s,
            bound=max(1.0, max(busy_s) / mean_s),
        )
        duration_s = 0.3 + max(per_executor.values()) + self.random.uniform(0.0, 0.3)
        self.now_s += duration_s
        if self.backlog is not None:
            arrived = duration_s * scenario.rows / 6.0
            self.backlog = max(0.0, self.backlog + arrived - rows)
        self.history.add_batch(
            BatchRecord(
                query=scenario.query,
                batch=batch,
                finished_s=self.now_s,
                duration_ms=round(duration_s * 1_000),
                input_rows=rows,
                backlog_rows=self.backlog,
                executors=len(self.live),
                loads=(load,),
            )
        )
        return load

    def _settle(self) -> None:
        for move in self.history.moves:
            if move.query == self.scenario.query and move.under_way():
                self.history.settle_move(
                    move.place,
                    settled_s=self.now_s,
                    restore_s=round(self.random.uniform(0.05, 0.4), 3),
                )

    def _decide(self, batch: int, load: OperatorBatchLoad) -> None:
        scenario = self.scenario
        if not scenario.balance or batch < scenario.first_balance:
            return
        if load.imbalance <= max(1.2, 1.05 * load.bound):
            self._note(
                "none",
                load,
                f"imbalance {load.imbalance:.2f} (bound {load.bound:.2f}) is low enough",
                0,
            )
            return
        if batch % 3:
            waits = f"imbalance {load.imbalance:.2f} is above 1.20, not yet for 3 batches"
            self._note("hold", load, waits, 0)
            return
        moves = self._greedy(load)
        reason = (
            f"imbalance {load.imbalance:.2f} is above 1.20 (bound {load.bound:.2f}): executor "
            f"{max(load.executor_busy_s(), key=load.executor_busy_s().__getitem__)} is hottest"
        )
        for partition, target in moves:
            self.history.add_move(
                MoveRecord(
                    query=scenario.query,
                    operator=0,
                    partition=partition,
                    source=self.placement[partition],
                    target=target,
                    decided_s=self.now_s,
                    reason=reason,
                    decided_after_batch=batch,
                )
            )
            self.placement[partition] = target
        self._note("move" if moves else "hold", load, reason, len(moves))

    def _greedy(self, load: OperatorBatchLoad) -> list[tuple[int, str]]:
        per_executor = dict.fromkeys(self.live, 0.0)
        for partition, executor in enumerate(self.placement):
            per_executor[executor] += load.partition_busy_s[partition]
        holder = list(self.placement)
        moves: dict[int, str] = {}
        for _ in range(8):
            hot = max(per_executor, key=per_executor.__getitem__)
            cold = min(per_executor, key=per_executor.__getitem__)
            gap_s = per_executor[hot] - per_executor[cold]
            fitting = [
                p for p, e in enumerate(holder) if e == hot and load.partition_busy_s[p] < gap_s
            ]
            if not fitting:
                break
            best = min(fitting, key=lambda p: abs(load.partition_busy_s[p] - gap_s / 2))
            per_executor[hot] -= load.partition_busy_s[best]
            per_executor[cold] += load.partition_busy_s[best]
            holder[best] = moves[best] = cold
        return [(p, e) for p, e in moves.items() if e != self.placement[p]]

    def _grow(self) -> None:
        before = len(self.live)
        self.live = [str(i) for i in range(self.scenario.grow_to)]
        self.history.add_scale(
            ScaleRecord(
                at_s=self.now_s,
                executors_before=before,
                executors_after=len(self.live),
                verdict="capacity",
                reason="utilization 0.93 over 3 min is above 0.85 and the backlog grows",
            )
        )
        self.history.add_decision(
            DecisionRecord(
                at_s=self.now_s,
                query="",
                operator=None,
                kind="scale",
                reason="utilization 0.93 over 3 min is above 0.85 and the backlog grows",
            )
        )

    def _note(self, kind: DecisionKind, load: OperatorBatchLoad, reason: str, moves: int) -> None:
        self.history.add_decision(
            DecisionRecord(
                at_s=self.now_s,
                query=self.scenario.query,
                operator=0,
                kind=kind,
                reason=reason,
                imbalance=load.imbalance,
                bound=load.bound,
                moves=moves,
            )
        )


def new_history(app: str = "flights.py") -> History:
    return History(
        RunInfo(
            app=app,
            started_s=STARTED_S,
            cores=2,
            spark_version="4.3.0",
            python_version="3.11.7",
            settings={"act_above": 1.2, "horizon_batches": 20, "mode": "auto"},
        )
    )
