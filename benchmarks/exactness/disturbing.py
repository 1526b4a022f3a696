"""Does to a running stream what a schedule says, and logs what happened.

The log has one JSON line a happening, `what` naming it: `batch` (`query`, `batch`, `handoffs`,
`ran_on` as [operator, partition, executor], `preparations` as [operator, partition, state,
failure]), `move` (`query`, `operator`, `targets` as [partition, executor]), `reassign` (`keys` as
their number, `strategy`, `ahead`), `retire`, `retired`, `added`, `kill-executor` (`loading` as the
number of partitions), `kill-driver` (`step`), `failed-task`, `skipped`.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import inputs
from pyspark.sql import SparkSession
from schedules import Action

from balancedstream.core.balance.hotspots import Move
from balancedstream.core.balance.migration import pair_exchanges
from balancedstream.core.keys.epochs import Wish
from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished, TaskFailed
from balancedstream.keyed.control import KeyControl
from balancedstream.keyed.storage import DEFAULT_NAME, Home, Operator

POLL_S = 0.2
STEP_POLL_S = 0.005
SHARE = 3
"""Keys a batch, where their state is handed over in shares."""


@dataclass(frozen=True)
class Keyed:
    """An operator whose keys are reassigned.

    Attributes:
        control: the driver's control of them.
        checkpoint: of its query.
        name_key: how a plan names the key of a number.
    """

    control: KeyControl
    checkpoint: Path
    name_key: Callable[[int], str]


class Disturber:
    """Applies one schedule from a thread of its own.

    Args:
        spark: whose application is disturbed.
        engine: attached to it; nothing else may wait on it meanwhile.
        actions: the schedule.
        executors: the most that the application can have.
        log: file that is appended to.
        keyed: operators whose keys are reassigned.
    """

    def __init__(
        self,
        spark: SparkSession,
        engine: SparkEngine,
        actions: Sequence[Action],
        executors: int,
        log: Path,
        *,
        keyed: Sequence[Keyed],
    ) -> None:
        self._application: str = spark.sparkContext.applicationId
        self._driver_pid: int = spark._jvm.java.lang.ProcessHandle.current().pid()
        self._engine = engine
        self._executors = executors
        self._keyed = keyed
        self._log = log.open("a")
        self._waiting = deque(actions)
        self._due: list[tuple[float, Action]] = []
        self._retiring: dict[str, int] = {}
        self._ran_on: dict[tuple[str, int], dict[int, str]] = {}
        self._loading: dict[tuple[str, int], dict[int, str]] = {}
        self._last_batch: dict[str, int] = {}
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="disturber", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends after what Spark already reported was taken down; raises what went wrong here."""
        self._stopping.set()
        self._thread.join()
        self._log.close()
        if self._failure:
            raise self._failure

    def _run(self) -> None:
        try:
            while True:
                event = self._engine.wait(POLL_S)
                match event:
                    case BatchFinished():
                        self._finish_batch(event)
                    case TaskFailed(executor=executor):
                        self._write("failed-task", executor=executor)
                    case None if self._stopping.is_set():
                        self._remove_retiring(before_batch=math.inf)
                        return
                if not self._stopping.is_set():
                    self._act(time.monotonic())
        except Exception as error:
            self._failure = error

    def _finish_batch(self, event: BatchFinished) -> None:
        batch = event.sample.batch
        for task in event.tasks:
            self._ran_on.setdefault((event.query, task.operator), {})[task.partition] = (
                task.executor
            )
        for ended in event.preparations:
            if ended.state != "loading":
                self._loading.get((event.query, ended.operator), {}).pop(ended.partition, None)
        self._last_batch[event.query] = batch
        self._write(**describe_batch(event))
        # With several queries the slowest one counts: then all of them have state to move.
        finished = min(self._last_batch.values())
        while self._waiting and self._waiting[0].after_batch <= finished:
            action = self._waiting.popleft()
            self._due.append((time.monotonic() + action.delay_s, action))
        self._remove_retiring(before_batch=batch)

    def _act(self, now_s: float) -> None:
        ready = [action for due_s, action in self._due if due_s <= now_s]
        self._due = [(due_s, action) for due_s, action in self._due if due_s > now_s]
        for action in ready:
            match action.what:
                case "move":
                    self._move(action)
                case "retire":
                    self._retire(action)
                case "add":
                    self._engine.set_executor_count(self._executors)
                    self._write("added")
                case "kill-executor":
                    self._kill_executor(action)
                case "kill-driver" if action.step and self._keyed:
                    threading.Thread(
                        target=self._kill_driver_at, args=(action.step,), daemon=True
                    ).start()
                case "kill-driver":
                    self._kill_driver()
                case "reassign":
                    self._reassign(action)

    def _move(self, action: Action) -> None:
        live = self._list_live()
        if not live:
            self._write("skipped", action="move", reason="no executor lives")
            return
        for query, operator in self._ran_on:
            targets = {p: live[rank % len(live)] for p, rank in action.moves}
            from_batch = self._last_batch[query] + 1 + action.ahead if action.ahead else None
            prepared = {p: live[rank % len(live)] for p, rank in action.prepared}
            if self._engine.can_prepare():
                # What the move before prepared, and was not due yet, is withdrawn.
                ran_on = self._ran_on[query, operator]
                moves = [
                    Move(p, ran_on.get(p, ""), target)
                    for p, target in prepared.items()
                    if ran_on.get(p) != target
                ]
                self._engine.prepare(
                    query,
                    operator,
                    prepared,
                    partners=pair_exchanges(moves),
                    from_batch=from_batch,
                )
                self._loading[query, operator] = {move.partition: move.target for move in moves}
            self._place(query, operator, targets, from_batch)

    def _reassign(self, action: Action) -> None:
        for keyed in self._keyed:
            partitions_of = {keyed.name_key(key): p for key, p in action.keys}
            (partitions,) = {len(ran_on) for ran_on in self._ran_on.values()}
            last_batch = max(self._last_batch.values())
            wish = Wish(
                keyed.control.find_routes(partitions_of, partitions),
                action.strategy,
                share=SHARE,
                effective_batch=last_batch + 1 + action.ahead if action.ahead else None,
            )
            keyed.control.want(wish)
            self._write(
                "reassign",
                keys=len(partitions_of),
                strategy=action.strategy,
                ahead=action.ahead,
            )

    def _retire(self, action: Action) -> None:
        live = self._list_live()
        if len(live) < 2:
            self._write("skipped", action="retire", reason=f"{len(live)} live")
            return
        victim = live.pop(action.rank % len(live))
        self._engine.drain(victim)
        self._write("retire", executor=victim)
        for (query, operator), ran_on in self._ran_on.items():
            leaving = [p for p, executor in ran_on.items() if executor == victim]
            self._place(query, operator, {p: live[p % len(live)] for p in leaving}, None)
        self._retiring[victim] = max(self._last_batch.values())

    def _remove_retiring(self, before_batch: float) -> None:
        for executor in [e for e, seen in self._retiring.items() if seen < before_batch]:
            del self._retiring[executor]
            self._engine.remove_executor(executor)
            self._write("retired", executor=executor)

    def _kill_executor(self, action: Action) -> None:
        live = self._list_live()
        if len(live) < 2:
            self._write("skipped", action="kill-executor", reason=f"{len(live)} live")
            return
        victim = live[action.rank % len(live)]
        pid = find_executor(self._application, victim)
        if pid is None:
            self._write("skipped", action="kill-executor", reason=f"{victim} is no process")
            return
        os.kill(pid, signal.SIGKILL)
        loading = sum(list(of.values()).count(victim) for of in self._loading.values())
        self._write("kill-executor", executor=victim, loading=loading)

    def _kill_driver_at(self, step: str) -> None:
        """Kills it the moment that a step of a handoff is seen, if one comes in time.

        Once the last file was read, Spark fires due timers in one more batch, without data; a
        driver that died before that waits for new data first, whoever looks on.
        """
        folders = [keyed.checkpoint for keyed in self._keyed]
        seen = [look_for_step(folder, step) for folder in folders]
        last = str(inputs.FILES - 1)
        while not self._stopping.is_set():
            if any((folder / "offsets" / last).exists() for folder in folders):
                return
            if any(
                look_for_step(f, step) > before for f, before in zip(folders, seen, strict=True)
            ):
                self._kill_driver(step)
            time.sleep(STEP_POLL_S)

    def _kill_driver(self, step: str = "") -> None:
        self._write("kill-driver", last_batch=dict(self._last_batch), step=step)
        os.kill(self._driver_pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _place(
        self, query: str, operator: int, targets: dict[int, str], from_batch: int | None
    ) -> None:
        self._engine.place(query, operator, targets, from_batch=from_batch)
        self._write(
            "move",
            query=query,
            operator=operator,
            targets=sorted(targets.items()),
            from_batch=from_batch,
        )

    def _list_live(self) -> list[str]:
        return sorted(self._engine.executors(), key=int)

    def _write(self, what: str, **values: Any) -> None:
        self._log.write(json.dumps({"what": what, **values}) + "\n")
        self._log.flush()


def look_for_step(checkpoint: Path, step: str) -> int:
    """How often a step of a handoff, one of `schedules.STEPS`, has been on the storage so far.

    Where files are removed again, the highest number in their names counts.
    """
    folder = checkpoint / "balancedstream" / DEFAULT_NAME
    home = Home(str(checkpoint), Operator())
    if step == "state-written":
        return max((int(p.name.partition("-")[0]) for p in folder.glob("handoffs/*")), default=-1)
    if step == "switch-written":
        written = (home.read_epoch(path.name) for path in folder.glob("epochs/[0-9]*"))
        return sum(1 for epoch in written if epoch.arrivals)
    counted = "commits" if step.endswith("committed") else "offsets"
    batches = [int(log.name) for log in checkpoint.glob(f"{counted}/[0-9]*")]
    # A batch in which nothing happens is planned with the epoch before it.
    epochs = {batch: home.read_epoch_of(batch).in_batch(batch) for batch in batches}
    if step.startswith("asked"):
        return sum(1 for epoch in epochs.values() if epoch.asked or epoch.touched)
    moved = [batch for batch, epoch in epochs.items() if epoch.arrivals]
    if step == "taken-in":
        # The state behind a batch is the version after its number.
        moved = [n for n in moved if any(checkpoint.glob(f"state/*/*/{n + 1}[._]*"))]
    return len(moved)


def describe_batch(event: BatchFinished) -> dict[str, Any]:
    """What the log says of a batch."""
    return {
        "what": "batch",
        "query": event.query,
        "batch": event.sample.batch,
        "handoffs": event.moved_partitions,
        "ran_on": [[t.operator, t.partition, t.executor] for t in event.tasks],
        "preparations": [[p.operator, p.partition, p.state, p.failure] for p in event.preparations],
    }


def find_executor(application: str, executor: str) -> int | None:
    """The process id of a local executor, or None where it has ended."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words:
            options = dict(itertools.pairwise(words))
            if options.get("--app-id") == application and options["--executor-id"] == executor:
                return int(folder.name)
    return None
