"""What a Python worker loads: it starts for a task, and should not load the driver's parts."""

from __future__ import annotations

import subprocess
import sys

WORKER_MODULES = [
    "balancedstream.workers.decoding",
    "balancedstream.workers.files",
    "balancedstream.workers.garbage",
    "balancedstream.workers.names",
    "balancedstream.workers.reports",
    "balancedstream.workers.rows",
    "balancedstream.workers.schemas",
    "balancedstream.keyed.aggregates",
    "balancedstream.keyed.functions",
    "balancedstream.keyed.processors",
    "balancedstream.keyed.source",
    "balancedstream.keyed.tasks",
    "balancedstream.shuffling.joining",
    "balancedstream.shuffling.marking",
    "balancedstream.shuffling.routing",
    "balancedstream.shuffling.timing",
]


def test_a_worker_loads_nothing_of_the_engine_or_the_loop() -> None:
    code = (
        f"import sys, {', '.join(WORKER_MODULES)}\n"
        "print(*[m for m in sys.modules if m.startswith('balancedstream.')], sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = {name.split(".")[1] for name in done.stdout.split()}
    assert rooms == {"core", "errors", "keyed", "shuffling", "version", "workers"}
