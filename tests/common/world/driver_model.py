"""A driver's process: the real loop on a virtual Spark, and a watch that loses plans."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from simulation.running import RunFailedError, run_loop

from balancedstream.core.policy import Policy
from balancedstream.core.wire.objects import (
    ANSWER_KEY,
    PLAN_KEY,
    STOP_KEY,
    STOPPED_KEY,
    answer_name,
    plan_name,
)
from balancedstream.core.wire.plan import Answer
from balancedstream.core.wire.stopping import Stopped
from balancedstream.loop.ports import PlanChannel
from balancedstream.metrics.exporter import Exporter
from balancedstream_operator.api.resource import Manifest
from world.spark_model import Application

if TYPE_CHECKING:
    from world.worlds import World

LIST_S = 60.0
"""A driver lists its plan again this often."""

PAUSE_S = (1.0, 5.0)
"""Before it tries again what the API server did not do."""


class WatchedPlans(PlanChannel):
    """Plans come by a list and a watch, and answers go out, as `incluster.ClusterPlanChannel` does.

    Args:
        world: whose plans.
        chance: of what is lost.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._plan: str | None = None
        self._answer: Answer | None = None
        self._stop = ""
        self._stopped: Stopped | None = None
        self._sending = False
        self._closed = False
        self._last_event_s = 0.0
        world.api.watch(self._note)
        world.call_in(0.0, self._list)

    def close(self) -> None:
        """The process has ended."""
        if not self._closed:
            self._closed = True
            self._world.api.unwatch(self._note)

    def take_plan(self) -> str | None:
        """The newest plan that came since the last call; None if none did."""
        plan, self._plan = self._plan, None
        return plan

    def send_answer(self, answer: Answer) -> None:
        """Sends it within a second, or as soon as the API server is there."""
        self._world.oracles.check_answer(self, answer)
        self._answer = answer
        self._send_in(self._chance.uniform(0.0, 1.0))

    def find_stop(self) -> str:
        """The request to end all queries that holds now."""
        return self._stop

    def tell_stopped(self, stopped: Stopped) -> None:
        """Sends how far that is, as an answer."""
        if not self._closed:
            self._world.oracles.note(f"the driver says {stopped}")
            self._stopped = stopped
            self._send_in(self._chance.uniform(0.0, 1.0))

    def start_anew(self) -> None:
        """The process ends, and its container starts again."""
        self._world.call_in(0.0, self._crash)

    def _crash(self) -> None:
        if not self._closed:
            self._world.nodes.crash()

    def _is_cut(self) -> bool:
        weather = self._world.weather
        return weather.driver_cut or weather.api_down

    def _list(self) -> None:
        if self._closed:
            return
        if self._is_cut():
            self._world.call_in(self._chance.uniform(*PAUSE_S), self._list)
            return
        self._world.call_in(LIST_S, self._list)
        stale_s = self._world.weather.api_stale_s
        found = self._world.api.get_old("ConfigMap", plan_name(self._world.stream.name), stale_s)
        if found is not None:
            self._take_in(found)
        answered = self._world.api.get("ConfigMap", answer_name(self._world.stream.name)) or {}
        data, wanted = answered.get("data") or {}, self._read_wanted()
        if any(data.get(key) != text for key, text in wanted.items()):
            self._send_in(0.0)

    def _read_wanted(self) -> dict[str, str]:
        """What the ConfigMap of the answer is to have."""
        wanted = {ANSWER_KEY: self._answer.to_json()} if self._answer else {}
        return wanted | ({STOPPED_KEY: self._stopped.to_json()} if self._stopped else {})

    def _note(self, what: str, manifest: Manifest) -> None:
        weather = self._world.weather
        named = manifest["metadata"]["name"] == plan_name(self._world.stream.name)
        if not named or what == "DELETED" or self._is_cut():
            return
        if weather.watch_loss and self._chance.random() < weather.watch_loss:
            return
        twice = weather.watch_repeats and self._chance.random() < weather.watch_repeats
        for _ in range(2 if twice else 1):
            lag_s = self._chance.uniform(0.01, 1.0) + weather.watch_lag_s * self._chance.random()
            # A watch keeps the order.
            self._last_event_s = max(self._last_event_s, self._world.now_s + lag_s)
            self._world.call_at(self._last_event_s, lambda: self._take_in(manifest))

    def _take_in(self, manifest: Manifest) -> None:
        if self._closed:
            return
        data = manifest.get("data") or {}
        self._stop = data.get(STOP_KEY, "") if data else self._stop
        if data.get(PLAN_KEY):
            self._plan = data[PLAN_KEY]

    def _send_in(self, delay_s: float) -> None:
        if not self._sending:
            self._sending = True
            self._world.call_in(delay_s, self._send)

    def _send(self) -> None:
        self._sending = False
        wanted = self._read_wanted()
        if self._closed or not wanted:
            return
        name = answer_name(self._world.stream.name)
        if self._is_cut() or self._world.api.get("ConfigMap", name) is None:
            self._send_in(self._chance.uniform(*PAUSE_S))
            return
        data = (self._world.api.get("ConfigMap", name) or {}).get("data") or {}
        self._world.api.change("ConfigMap", name, data={**data, **wanted})


class Driver:
    """A process of a driver.

    Attributes:
        ip: of its pod.
        exporter: that Prometheus scrapes.
        application: its Spark.
    """

    def __init__(self, world: World, chance: random.Random, pod: Manifest, executors: int) -> None:
        self._world = world
        self.ip = str(pod["status"]["podIPs"][0]["ip"])
        self.exporter = Exporter(stream=str(world.stream))
        self.plans = WatchedPlans(world, chance)
        self.application = Application(world, chance, executors)

    def run(self) -> None:
        """Runs until somebody ends it, and the world with it."""
        try:
            run_loop(self.application, Policy(), self.exporter, self.plans)
        except RunFailedError as error:
            self._world.oracles.add("driver's loop failed", repr(error.__cause__))
        self.plans.close()

    def end(self) -> None:
        """Ends it, as a kill does."""
        self.application.killed = True
        self.plans.close()
