"""Ends the queries of a job when the operator wants their state written anew.

The driver's process stays until its pod is deleted, so that Kubernetes starts no other one.
"""

from __future__ import annotations

from contextlib import suppress

from balancedstream.core.wire.stopping import Stop, Stopped, find_stop
from balancedstream.errors import BalancedStreamError
from balancedstream.loop.ports import Engine, PlanChannel
from balancedstream.record.journal import Journal


class Stopping:
    """Does what the newest request to stop says.

    Args:
        engine: whose queries end.
        plans: brings requests.
        journal: records what came.
    """

    def __init__(self, engine: Engine, plans: PlanChannel, journal: Journal) -> None:
        self._engine = engine
        self._plans = plans
        self._journal = journal
        self._told: Stopped | None = None

    def look(self) -> None:
        """Goes on with what is asked for; called again and again."""
        asked = find_stop(self._plans.find_stop())
        told = self._told
        if told is not None and (asked is None or asked.id != told.id):
            self._told = None
            if told.checkpoints:
                self._journal.note("the queries are wanted again: the driver starts anew")
                self._plans.start_anew()
        elif asked is not None:
            self._follow(asked)

    def end(self) -> None:
        """The application is over. If the script has stopped it, its queries had ended before."""
        told = self._told
        if told is None or not told.checkpoints:
            return
        with suppress(Exception):  # Java may be gone, with a batch; then nothing is told.
            if self._engine.end_queries():
                self._tell(Stopped(told.id, checkpoints=told.checkpoints, done=True))

    def _follow(self, asked: Stop) -> None:
        told = self._told or Stopped(asked.id)
        if told.refused:
            return
        if not told.checkpoints:
            try:
                checkpoints = self._engine.find_checkpoints()
            except BalancedStreamError as error:
                self._tell(Stopped(asked.id, refused=str(error)))
                return
            if checkpoints:
                self._journal.note(
                    f"the state is to get {asked.partitions} partitions: each query ends after "
                    "the batch that it is at"
                )
            told = Stopped(asked.id, checkpoints=checkpoints)
        if told.checkpoints:
            # Also when it is done: a script may start its query again.
            ended = self._engine.end_queries()
            told = Stopped(asked.id, checkpoints=told.checkpoints, done=told.done or ended)
        self._tell(told)

    def _tell(self, stopped: Stopped) -> None:
        if stopped != self._told:
            self._told = stopped
            self._plans.tell_stopped(stopped)
