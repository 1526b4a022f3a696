"""Queries of NEXMark from elsewhere under forced moves: each has an answer that is known there.

After every batch of every query, random state partitions are placed on random executors. The
queries, their data and their answers come from a folder that is not part of the repository; each
query's outcome is one JSON line, and a query that has one for the seed is not run again:

    python benchmarks/exactness/nexmark_folder.py --seed 0 --out nexmark.jsonl [q5 q8 ...]

Exit status 1 if any query gave another answer, or a stateful one was never moved.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import random
import re
import runpy
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, TextIO

# What the benchmarks share is beside this folder.
sys.path.append(str(Path(__file__).parents[1]))

from comparison import summarize
from disturbing import describe_batch
from outcomes import read_commit, read_lines, write_outcome
from sessions import open_disturbed

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import ApplicationEnded, BatchFinished, QueryEnded
from balancedstream.engine.session.session import remove_work_folder

EXECUTORS = 3
PARTITIONS = 6
POLL_S = 0.2
KEPT_BATCHES = 3
"""So long prepared moves have until others take their place: a load takes more than one batch."""

COUNTED = ("batches", "moves", "settled", "prepared", "handoffs")
END_TIMEOUT_S = 30.0
VERDICT = re.compile(r"(?P<query>q\d+): (?P<verdict>\w+)")


class Mover:
    """Moves random partitions after nearly every batch, from a thread of its own.

    Args:
        engine: attached to the session that the queries get; nothing else may wait on it.
        seed: of all moves.
    """

    def __init__(self, engine: SparkEngine, seed: int) -> None:
        self._engine = engine
        self._seed = seed
        self._happened: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._ended: dict[str, threading.Event] = defaultdict(threading.Event)
        self._prepares: dict[tuple[str, int], bool] = defaultdict(lambda: True)
        self._kept_until: dict[tuple[str, int], int] = defaultdict(int)
        self._chance: dict[str, random.Random] = {}
        self._thread = threading.Thread(target=self._run, name="mover", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """Waits until the application is over."""
        self._thread.join()

    def finish(self, query: str) -> list[dict[str, Any]]:
        """What happened to a query, once it has ended."""
        self._ended[query].wait(END_TIMEOUT_S)
        return self._happened[query]

    def _run(self) -> None:
        while True:
            match self._engine.wait(POLL_S):
                case BatchFinished() as event:
                    self._happened[event.query].append(describe_batch(event))
                    self._move(event)
                case QueryEnded(query=query):
                    self._ended[query].set()
                case ApplicationEnded():
                    return

    def _move(self, event: BatchFinished) -> None:
        query = event.query
        chance = self._chance.setdefault(query, random.Random(f"{query} {self._seed}"))
        live = sorted(self._engine.executors(), key=int)
        for operator in event.operators:
            if event.sample.batch < self._kept_until[query, operator.id]:
                continue
            chosen = chance.sample(range(operator.partitions), operator.partitions // 2)
            targets = {p: chance.choice(live) for p in sorted(chosen)}
            place = query, operator.id
            if self._engine.can_prepare():
                prepares = self._prepares[place] = not self._prepares[place]
                # None withdraws what was prepared before and has not moved yet.
                self._engine.prepare(*place, targets if prepares else {})
                if prepares:
                    self._kept_until[place] = event.sample.batch + KEPT_BATCHES
            self._engine.place(*place, targets)
            self._happened[query].append(
                {
                    "what": "move",
                    "query": query,
                    "operator": operator.id,
                    "targets": list(targets.items()),
                }
            )


class Verdicts(io.TextIOBase):
    """Standard output of NEXMark's own program: shown, and each verdict taken down.

    Attributes:
        outcomes: of the queries so far.
    """

    def __init__(self, shown: TextIO, mover: Mover, seed: int, out: Path) -> None:
        self.outcomes: list[str] = []
        self._shown = shown
        self._mover = mover
        self._seed = seed
        self._out = out
        self._commit = read_commit()
        self._began_s = time.monotonic()
        self._line = ""

    def write(self, text: str) -> int:
        self._shown.write(text)
        self._line += text
        if text.endswith("\n"):
            match = VERDICT.match(self._line)
            if match:
                with contextlib.redirect_stdout(self._shown):
                    self._judge(match["query"], self._line.strip(), match["verdict"] == "OK")
            self._line = ""
        return len(text)

    def _judge(self, query: str, line: str, equal: bool) -> None:
        happened = summarize(self._mover.finish(query))
        outcome = "equal" if equal else "different"
        if equal and happened["moves"] and not happened["settled"]:
            outcome = "unmoved"
        self.outcomes.append(outcome)
        now_s = time.monotonic()
        write_outcome(
            self._out,
            {
                "kind": "nexmark",
                "query": query,
                "seed": self._seed,
                "outcome": outcome,
                "difference": None if equal else line,
                **{k: happened[k] for k in COUNTED},
                "seconds": round(now_s - self._began_s, 1),
                "commit": self._commit,
            },
        )
        self._began_s = now_s


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with its run_all.py")
    parser.add_argument("--seed", type=int, help="of the moves (default: a fresh one)")
    parser.add_argument("--out", type=Path, required=True, help="file of outcomes, appended to")
    parser.add_argument("queries", nargs="*", help="such as q5 q8 (default: all)")
    args = parser.parse_args()
    if not (args.data / "run_all.py").exists():
        parser.error(f"--data: there is no run_all.py in {args.data}; nothing was run")
    seed = random.SystemRandom().randrange(2**32) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)

    folder = str(args.data.resolve())
    sys.path.insert(0, folder)
    known = importlib.import_module("queries").QUERIES
    done = {
        line["query"]
        for line in read_lines(args.out)
        if line["kind"] == "nexmark" and line["seed"] == seed
    }
    names = [name for name in args.queries or known if name not in done]
    if not names:
        return
    os.environ["NEXMARK_EXTERNAL"] = "1"
    spark, engine = open_disturbed(PARTITIONS, EXECUTORS)
    application = spark.sparkContext.applicationId
    while len(engine.executors()) < EXECUTORS:
        engine.wait(POLL_S)
    mover = Mover(engine, seed)
    mover.start()
    verdicts = Verdicts(sys.stdout, mover, seed, args.out)
    with tempfile.TemporaryDirectory(prefix="nexmark-", ignore_cleanup_errors=True) as work:
        sys.argv = ["run_all.py", "--data", f"{folder}/data", "--work", work, *names]
        with contextlib.redirect_stdout(verdicts), contextlib.suppress(SystemExit):
            runpy.run_path(f"{folder}/run_all.py", run_name="__main__")
    mover.join()
    remove_work_folder(application)
    sys.exit(0 if verdicts.outcomes == ["equal"] * len(names) else 1)


if __name__ == "__main__":
    main()
