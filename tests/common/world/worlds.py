"""A world in virtual time: one stream, its operators and its driver, and all that they talk to.

Nothing here waits. Everything that happens is a call at a time, and the same seed makes the same
calls. While a driver runs, its virtual Spark moves the clock, from the driver's real loop.
"""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from simulation.spark import BatchRun

from balancedstream_operator.api.resource import API_VERSION, KIND, Manifest, Stream
from world.api_model import NAMESPACE, ApiServer
from world.driver_model import Driver
from world.faults import begin_fault
from world.goals import find_missing
from world.jobs_model import Jobs
from world.nodes_model import Nodes
from world.operator_model import OperatorProcess
from world.oracles import Oracles
from world.prometheus_model import ModelPrometheus
from world.schedules import Schedule
from world.spark_model import Application
from world.weather import Weather

BEGIN_S = 1000.0
"""The clock at the start: a time of 0 is like none."""

LOOK_S = 30.0
"""How often it is looked whether the desired state is reached."""

HOLD_S = 120.0
"""For how long it must stay."""


@dataclass
class Progress:
    """What of a query survives a driver."""

    read: float = 0.0
    batches: list[BatchRun] = field(default_factory=list)


class World:
    """Runs one schedule.

    Args:
        schedule: what the stream is, and what happens to it.

    Attributes:
        oracles: what was found.
        streams: how many there have been, each on the same checkpoint.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.job, self.trace = schedule.job, schedule.trace
        self.calls: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = count()
        self._now_s = BEGIN_S
        self._over = False
        self.weather = Weather()
        self.checkpoints = {query: Progress() for query in schedule.queries}
        self.driver: Driver | None = None
        self.stream = Stream(NAMESPACE, "clicks", "")
        self.oracles = Oracles(self)
        self.api = ApiServer(self)
        self.nodes = Nodes(self, self.draw("nodes"))
        self.jobs = Jobs(self, self.draw("jobs"))
        self.prometheus = ModelPrometheus(
            self, self.draw("prometheus"), schedule.scrape_s, schedule.replicas
        )
        self.streams = 0
        self.create_stream()
        self.operators: list[OperatorProcess] = []
        for number in range(schedule.operators):
            self.add_operator(self.draw(f"operator {number}"))
        for fault in schedule.faults:
            chance = self.draw(f"fault {fault.number}")
            self.call_at(BEGIN_S + fault.at_s, partial(begin_fault, self, fault, chance))
        self.call_at(BEGIN_S + schedule.faults_s, self._look)
        self._held_since_s = BEGIN_S
        self._held: object = "nothing yet"

    @property
    def now_s(self) -> float:
        """The clock."""
        return self.driver.application.now_s if self.driver else self._now_s

    @property
    def is_quiet(self) -> bool:
        """Whether the last fault is over."""
        return self.now_s >= BEGIN_S + self.schedule.faults_s

    def draw(self, name: str) -> random.Random:
        """A source of chance of its own, so that leaving out a fault changes nothing else."""
        return random.Random(f"{self.schedule.seed} {name}")

    def call_at(self, time_s: float, act: Callable[[], None]) -> None:
        """Has something done at a time."""
        heapq.heappush(self.calls, (max(time_s, self.now_s), next(self.numbers), act))

    def call_in(self, delay_s: float, act: Callable[[], None]) -> None:
        """Has something done after a time."""
        self.call_at(self.now_s + delay_s, act)

    def run(self) -> None:
        """Runs to the end."""
        while not self._over:
            driver = self.driver
            if driver is None:
                at_s, _, act = heapq.heappop(self.calls)
                self._now_s = max(self._now_s, at_s)
                act()
                continue
            driver.run()
            self._now_s = driver.application.now_s
            if self.driver is driver:
                self.driver = None

    def call_next(self, application: Application) -> None:
        """Does what comes next; the clock is the application's."""
        at_s, _, act = heapq.heappop(self.calls)
        application.now_s = max(application.now_s, at_s)
        act()

    def create_stream(self) -> None:
        """A user applies the BalancedStream."""
        made = self.api.put(
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"name": self.stream.name},
                "spec": self.schedule.spec,
            }
        )
        self.stream = Stream(NAMESPACE, self.stream.name, made["metadata"]["uid"])
        self.streams += 1

    def resource(self) -> Manifest | None:
        """The BalancedStream as it is now."""
        return self.api.get(KIND, self.stream.name)

    def start_driver(self, pod: Manifest, files: Mapping[str, str]) -> None:
        """A driver's process begins, with the executors of its Spark settings."""
        settings = files.get("spark-defaults.conf", "")
        given = re.search(r"spark\.executor\.instances=(\d+)", settings)
        least = int(given[1]) if given else 1
        set_to = re.search(r"shuffle\.partitions=(\d+)", settings)
        # A checkpoint keeps the number of its first batch.
        self.jobs.partitions = self.jobs.partitions or int(set_to[1] if set_to else 0)
        chance = self.draw(f"driver {self.nodes.restarts}")
        self._now_s = self.now_s
        self.driver = Driver(self, chance, pod, least)

    def end_driver(self) -> None:
        """A driver's process ends."""
        if self.driver is not None:
            self.driver.end()

    def add_operator(self, chance: random.Random) -> None:
        """Another process begins; where there are to be several, one acts, by a Lease."""
        leased = self.schedule.operators > 1
        self.operators.append(OperatorProcess(self, chance, leased=leased))

    def find_operator(self) -> OperatorProcess | None:
        """The operator that acts, or another one if none does."""
        return max(self.operators, key=lambda operator: operator.acts, default=None)

    def restart_operator(self, killed: OperatorProcess, pause_s: float = 0.0) -> None:
        """A new process takes the place of one that was killed."""
        self.operators.remove(killed)
        chance = self.draw(f"operator {next(self.numbers)}")
        pause_s = pause_s or chance.uniform(2.0, 30.0)
        self.call_in(pause_s, lambda: self.add_operator(chance))

    def list_executor_pods(self) -> list[Manifest]:
        """The pods of the driver's executors."""
        return self.driver.application.list_pods() if self.driver else []

    def _look(self) -> None:
        """Ends the world once what the spec asks for is reached and kept, or time is up."""
        missing, state = find_missing(self)
        if missing or state != self._held:
            self.oracles.note(f"look: {missing} {state}")
            self._held_since_s, self._held = self.now_s, state
        held_s = self.now_s - self._held_since_s
        done = not missing and held_s >= HOLD_S
        late = self.now_s >= BEGIN_S + self.schedule.length_s
        if done or late:
            if not done:
                why = missing or [f"it changed {held_s:.0f} s ago"]
                self.oracles.add("desired state not reached and kept", "; ".join(why))
            self._over = True
            self.end_driver()
            return
        self.call_in(LOOK_S, self._look)
