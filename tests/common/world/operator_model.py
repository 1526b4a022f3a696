"""An operator's process: what `process.operator` does around the real passes, in virtual time."""

from __future__ import annotations

import copy
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from balancedstream_operator.api.annotations import read_goal
from balancedstream_operator.api.resource import KIND, Manifest, Stream
from balancedstream_operator.errors import ClusterError, StreamGoneError
from balancedstream_operator.kube.lease import RENEW_S, Lease, Tenure
from balancedstream_operator.kube.reading import bound_stream
from balancedstream_operator.plan.shares import Shares
from balancedstream_operator.process.following import WATCH_S
from balancedstream_operator.process.passes import Passes, choose_rest_s
from balancedstream_operator.settings import Caps, Settings
from world.api_model import NAMESPACE, KilledError, ModelCluster
from world.lease_model import NAME, open_client

if TYPE_CHECKING:
    from world.worlds import World

PASS_S = 0.3
"""How long a pass takes."""


@dataclass
class _Watched:
    """A BalancedStream as `operator._Watched` keeps it; a newer turn makes older ones void."""

    resource: Manifest
    passes: Passes
    turn: int = 0
    rests: bool = False


class OperatorProcess:
    """Watches BalancedStreams and makes passes, until it is killed.

    Args:
        world: whose streams.
        chance: of all that it is lucky or unlucky with.
        leased: whether it must hold the Lease to act.

    Attributes:
        cluster: the API server as this process reaches it.
        alive: whether it was not killed.
        acts: whether it makes passes.
        clock_off_s: how far its clock is ahead of all others.
    """

    def __init__(self, world: World, chance: random.Random, *, leased: bool = False) -> None:
        self._world = world
        self._chance = chance
        self.cluster = ModelCluster(world, chance)
        caps = Caps(executors=world.schedule.cap)
        self._settings = Settings("http://prometheus", asks_queries=True, caps=caps)
        self._shares = Shares(caps)
        self._watched: dict[str, _Watched] = {}
        self._last_event_s = 0.0
        self.alive = True
        self.acts = not leased
        self.clock_off_s = 0.0
        self._tenure = Tenure()
        # As the operator does, by a connection of its own.
        self._leases = ModelCluster(world, chance)
        self._lease = Lease(open_client(self._leases), NAMESPACE, NAME, f"{chance.random()}")
        world.api.watch(self._note)
        self._list()
        if leased:
            world.call_in(chance.uniform(0.0, RENEW_S), self._hold)

    def cut(self, is_cut: bool) -> None:
        """It reaches nothing, or all again."""
        self.cluster.cut = self._leases.cut = is_cut

    def kill(self) -> None:
        """It is gone, with all that it had in memory."""
        if self.alive:
            self.alive = False
            self._world.api.unwatch(self._note)

    def release(self) -> None:
        """It gives the Lease back if it can: it was told to end."""
        with suppress(ClusterError):
            self._lease.release()

    def _hold(self) -> None:
        """What `leases.hold` does, each time."""
        if not self.alive:
            return
        now_s = self._world.now_s
        left_s = self._tenure.left_s(now_s)
        held: bool | None = False
        if left_s is None or left_s > 0.0:
            try:
                held = self._lease.try_to_hold(now_s)
            except ClusterError:
                held = None
        turn = self._tenure.turn(held, now_s)
        if turn == "ends":
            self._world.oracles.note("an operator stops, because it may have lost the Lease")
            self.kill()
            self._world.restart_operator(self)
            return
        if turn == "begins":
            self.acts = True
            self._world.oracles.check_alone(self)
            for uid in self._watched:
                self._call_in(self._chance.uniform(0.1, 1.0), uid)
        self._world.call_in(RENEW_S, self._hold)

    def pass_now(self) -> None:
        """Makes the passes that would come next, at this very moment."""
        for uid, watched in list(self._watched.items()):
            self._run_pass(uid, watched.turn)

    def list_streams(self) -> bool:
        """Takes in what a list has, which does not tell what is gone; False if it reaches none."""
        weather = self._world.weather
        if weather.api_down or self.cluster.cut:
            return False
        if weather.forbidden:
            for watched in self._watched.values():
                watched.turn += 1
                watched.rests = True
            return False
        if weather.definition_gone:
            self._watched.clear()
            return False
        age_s = max(weather.api_stale_s, weather.list_age_s)
        for kind, name in list(self._world.api.objects):
            if kind == KIND:
                found = self._world.api.get_old(kind, name, age_s)
                if found is not None:
                    self._take_in("MODIFIED", found)
        for uid, watched in list(self._watched.items()):
            if watched.rests:
                # The first pass over one that was deleted meanwhile finds that out.
                watched.rests = False
                self._call_in(0.0, uid)
        return True

    def _list(self) -> None:
        """What `following.Follower` does at first, and whenever a watch ends."""
        if self.alive:
            self._world.call_in(WATCH_S if self.list_streams() else 5.0, self._list)

    def _note(self, what: str, manifest: Manifest) -> None:
        weather = self._world.weather
        deaf = weather.api_down or weather.list_age_s or self.cluster.cut
        deaf = deaf or weather.forbidden or weather.definition_gone
        if manifest["kind"] != KIND or deaf:
            return
        if weather.watch_loss and self._chance.random() < weather.watch_loss:
            return
        twice = weather.watch_repeats and self._chance.random() < weather.watch_repeats
        for _ in range(2 if twice else 1):
            lag_s = self._chance.uniform(0.01, 0.5) + weather.watch_lag_s * self._chance.random()
            # A watch keeps the order.
            self._last_event_s = max(self._last_event_s, self._world.now_s + lag_s)
            self._world.call_at(self._last_event_s, lambda: self._take_in(what, manifest))

    def _take_in(self, what: str, manifest: Manifest) -> None:
        uid = manifest["metadata"]["uid"]
        if not self.alive:
            return
        if what == "DELETED":
            self._watched.pop(uid, None)
            return
        manifest = bound_stream(copy.deepcopy(manifest))
        watched = self._watched.get(uid)
        if watched is None:
            metadata = manifest["metadata"]
            stream = Stream(metadata["namespace"], metadata["name"], uid)
            passes = Passes(
                stream,
                self.cluster,
                lambda _: self._world.prometheus,
                self._settings,
                lambda: [known.resource for known in self._watched.values()],
                shares=self._shares,
            )
            self._watched[uid] = _Watched(manifest, passes)
            if self.acts:
                self._call_in(self._chance.uniform(0.1, 1.0), uid)
            return
        changed = read_goal(watched.resource) != read_goal(manifest)
        watched.resource = manifest
        if (changed or watched.rests) and self.acts:
            watched.rests = False
            self._call_in(0.0, uid)

    def _call_in(self, delay_s: float, uid: str) -> None:
        watched = self._watched[uid]
        watched.turn += 1
        turn = watched.turn
        self._world.call_in(delay_s, lambda: self._run_pass(uid, turn))

    def _run_pass(self, uid: str, turn: int) -> None:
        watched = self._watched.get(uid)
        if not self.alive or watched is None or turn != watched.turn:
            return
        resource = watched.resource
        oracles = self._world.oracles
        oracles.begin_pass(resource)
        calls = self.cluster.calls
        try:
            done = watched.passes.run(resource, self._world.now_s + self.clock_off_s)
        except KilledError:
            self.kill()
            self._world.restart_operator(self)
            return
        except StreamGoneError:
            self._watched.pop(uid, None)
            return
        if done.status is not None:
            oracles.check_pass(resource, done.status, done)
        oracles.check_calls(self.cluster.calls - calls, done.failure)
        if uid in self._watched and self.alive:
            self._call_in(PASS_S + choose_rest_s(done.interval_s, PASS_S), uid)
