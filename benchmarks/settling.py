"""How soon a shift of the hot keys is balanced, by the thresholds that plans obey: simulated.

The stream is that of `placement.py`: four executors, 32 state partitions, uniform keys for two
batches, then a hot set, then another one. Measuring and deciding are the product's own code. Of a
batch only the tasks are modeled: a fixed time, a time for each row, and noise. A plan is prepared
during the next batch and its moves are in place in the one after that. No batch waits for a move,
as where state is loaded ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from harness.benchmark import prepare, run
from harness.results import Case
from placement import EXECUTORS, EXPONENTS, Workload

from balancedstream.core.balance.hotspots import Thresholds, diminish
from balancedstream.core.balance.imbalance import measure_imbalance
from balancedstream.core.balance.loads import measure, prune
from balancedstream.core.policy import Policy
from balancedstream.core.samples import TaskSample

SEEDS = 40

THRESHOLDS = ((1.20, 1.05), (1.10, 1.05), (1.10, 1.02), (1.05, 1.02))
"""`balance.act_above`, and the constant `stop_at`."""

NOISES = (0.04, 0.10)
"""Standard deviation of what a task takes, relative to what it should take."""

TASK_S = 0.03
BATCH_S = 0.6
"""What a task, and a batch, takes beside its rows."""

UP_TO_PLACED_BATCHES = 2
"""From the batch that a plan was decided on to the first one with its moves in place."""

CORES = {f"{executor}": 1 for executor in range(EXECUTORS)}


@dataclass(frozen=True)
class Batch:
    """One simulated micro-batch.

    Attributes:
        batch_s: how long it took.
        vanilla_s: how long it would have taken with every partition where it was at first.
        imbalance: hottest executor over the mean.
        bound: the least that any placement could have.
    """

    batch_s: float
    vanilla_s: float
    imbalance: float
    bound: float


def main() -> None:
    with prepare("settling", __doc__ or "") as benchmark:
        workload = Workload()
        cases: list[Case] = [
            {"noise": noise, "s": s, "act_above": act_above, "stop_at": stop_at}
            for noise in NOISES
            for s in ((1.0,) if benchmark.smoke else EXPONENTS)
            for act_above, stop_at in THRESHOLDS
        ]
        seeds = range(1, 2 if benchmark.smoke else SEEDS + 1)
        for case in benchmark.find_missing(cases):
            thresholds = Thresholds(
                act_above=float(case["act_above"]), stop_at=float(case["stop_at"])
            )
            runs = [
                Stream(workload, float(case["s"]), float(case["noise"]), seed) for seed in seeds
            ]
            measured = [run_stream(stream, thresholds) for stream in runs]
            settings = {**asdict(workload), "task_s": TASK_S, "batch_s": BATCH_S}
            benchmark.record(None, case, settings, measured)


def run_stream(stream: Stream, thresholds: Thresholds) -> dict[str, Any]:
    """Simulates all batches; gives one figure a batch of each kind, and counts."""
    batches = list(stream.run(thresholds))
    return {
        "batch_s": [round(batch.batch_s, 3) for batch in batches],
        "vanilla_s": [round(batch.vanilla_s, 3) for batch in batches],
        "imbalance": [round(batch.imbalance, 4) for batch in batches],
        "bound": [round(batch.bound, 4) for batch in batches],
        "moves": stream.moves,
        "plans": stream.plans,
    }


class Stream:
    """A stream whose partitions are moved while its hot keys change."""

    def __init__(self, workload: Workload, s: float, noise: float, seed: int) -> None:
        self.moves = 0
        self.plans = 0
        self._workload = workload
        self._noise = noise
        self._random = Random(seed)
        self._weights = [(rank + 1) ** -s for rank in range(workload.keys)]
        partitions = range(workload.partitions)
        self._partition_of = [self._random.choice(partitions) for _ in range(workload.keys)]
        self._at_first = {p: str(p % EXECUTORS) for p in partitions}

    def run(self, thresholds: Thresholds) -> Iterator[Batch]:
        """Runs the batches one after the other, and decides after each that no plan is due in."""
        placement, coming = dict(self._at_first), dict[int, str]()
        due = 0
        samples: list[TaskSample] = []
        for batch in range(self._workload.batches):
            moved: dict[int, str] = {}
            if coming and batch == due:
                moved, coming = coming, {}
                placement |= moved
            rows = self._draw_rows(batch)
            busy_s = {p: self._draw_busy_s(count) for p, count in enumerate(rows)}
            level = measure_imbalance(busy_s, placement, CORES)
            yield Batch(
                BATCH_S + find_longest_s(busy_s, placement),
                BATCH_S + find_longest_s(busy_s, self._at_first),
                level.imbalance,
                level.bound,
            )
            # The first batch measures the start of Python workers, not the load.
            if batch:
                samples += [
                    TaskSample(
                        "q", 0, p, batch, executor, busy_s[p], rows[p], 0, batch, moved=p in moved
                    )
                    for p, executor in placement.items()
                ]
            samples = prune(samples, Policy(), batch)
            if samples and not coming:
                coming = self._plan(samples, batch, thresholds)
                due = batch + UP_TO_PLACED_BATCHES

    def _plan(
        self, samples: list[TaskSample], batch: int, thresholds: Thresholds
    ) -> dict[int, str]:
        load = measure(samples, CORES, Policy(), batch)["q", 0]
        found = diminish(load.busy_s, load.placement, CORES, thresholds, scatter=load.scatter)
        moves = found.moves
        self.moves += len(moves)
        self.plans += bool(moves)
        return {move.partition: move.target for move in moves}

    def _draw_rows(self, batch: int) -> list[int]:
        """The rows of each partition in a batch."""
        workload, count = self._workload, self._workload.rows_per_batch
        uniform = batch < workload.uniform_batches
        ranks = self._random.choices(
            range(workload.keys), None if uniform else self._weights, k=count
        )
        shifted = batch >= workload.uniform_batches + workload.first_batches
        rows = [0] * workload.partitions
        for rank in ranks:
            rows[self._partition_of[(rank + shifted * workload.keys // 2) % workload.keys]] += 1
        return rows

    def _draw_busy_s(self, rows: int) -> float:
        usual_s = TASK_S + rows * self._workload.wait_ms / 1000
        return usual_s * self._random.lognormvariate(0.0, self._noise)


def find_longest_s(busy_s: dict[int, float], placement: dict[int, str]) -> float:
    """How long the executor with the most work takes, on its one core."""
    total_s = dict.fromkeys(CORES, 0.0)
    for partition, seconds in busy_s.items():
        total_s[placement[partition]] += seconds
    return max(total_s.values())


if __name__ == "__main__":
    run(main)
