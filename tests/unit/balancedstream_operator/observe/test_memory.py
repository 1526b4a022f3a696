"""However many streams have large answers, the operator stays within the memory that it gets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from loopback import Request, Response, serve

from balancedstream.core.policy import Policy
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe import http as sessions
from balancedstream_operator.observe.endpoints import Endpoint, Subject
from balancedstream_operator.observe.http import AnswerBudgets
from balancedstream_operator.observe.prometheus import Prometheus
from balancedstream_operator.process.threads import OTHER_THREADS, THREADS

ROOT = Path(__file__).parents[4]
MIB = 2**20
NOW_S = 1_800_000_000.0

LOOK = rf"""
import re, sys, threading
from balancedstream.core.policy import Policy
from balancedstream_operator import main  # takes as much itself as an operator
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe.endpoints import Endpoint, Subject
from balancedstream_operator.observe.http import AnswerBudgets
from balancedstream_operator.observe.prometheus import Prometheus

prometheus = Prometheus(Endpoint(sys.argv[1], ()), AnswerBudgets())

def look():
    try:
        prometheus.observe(Subject("shop/clicks"), Policy(), {NOW_S})
    except MissingMeasurementsError as error:
        print(error)

threads = [threading.Thread(target=look) for _ in range({THREADS + OTHER_THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(re.search(r"VmHWM:\s*(\d+) kB", open("/proc/self/status").read())[1])
"""


def write_answer(size: int) -> str:
    """An answer of about so many bytes, in which no series is of a known driver."""
    values = [[NOW_S - 15.0 * n, f"123456.789{n}"] for n in range(20, 0, -1)]
    labels = {
        "__name__": "balancedstream_partition_busy_seconds_total",
        "stream": "shop/clicks",
        "query": "counts",
        "instance": "10.244.0.17:9404",
    }
    metrics = [{**labels, "partition": f"{p}"} for p in range(10)]
    entries = [{"metric": metric, "values": values} for metric in metrics]
    some = json.dumps(entries)[1:-1]
    result = ",".join([some] * (size // len(some)))
    return f'{{"status":"success","data":{{"resultType":"matrix","result":[{result}]}}}}'


def read_environment() -> dict[str, str]:
    """What the operator's image sets for the allocation of memory."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    found: list[tuple[str, str]] = re.findall(r"(MALLOC_\w+)=(\w+)", text)
    return dict(found)


def test_all_threads_can_take_large_answers_within_the_charts_limit() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "balancedstream" / "values.yaml").read_text("utf-8"))
    limit = int(chart["resources"]["limits"]["memory"].removesuffix("Mi")) * MIB
    answer = write_answer(7 * MIB)
    with serve(lambda _: Response(answer)) as url:
        ended = subprocess.run(
            [sys.executable, "-c", LOOK, url],
            env={**os.environ, **read_environment()},
            capture_output=True,
            text=True,
            check=True,
        )
    *said, peak = ended.stdout.splitlines()
    assert len(said) == THREADS + OTHER_THREADS
    assert any("no metrics of this stream" in line for line in said), said
    assert int(peak) * 1024 < limit / 2, f"{int(peak) // 1024} MiB"


class Halting:
    """Halfway through its answer, a server waits until it is told to go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def answer(self, request: Request) -> Response:
        if "half" not in request.path:
            return Response({"data": {"result": [], "x": "x" * len(request.path)}})
        return Response(self.write())

    def write(self) -> Iterator[list[str]]:
        yield ["x" * 100_000]
        self.go_on.wait(30.0)
        yield ["x" * 100_000]


def look(endpoint: Endpoint, budgets: AnswerBudgets) -> None:
    with pytest.raises(MissingMeasurementsError):
        Prometheus(endpoint, budgets).observe(Subject("shop/clicks"), Policy(), NOW_S)


def test_a_large_answer_waits_for_another_one_but_not_a_small_one_nor_one_of_the_operators_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "SMALL_BYTES", 1_000)
    halting, budgets = Halting(), AnswerBudgets()
    ended = {name: threading.Event() for name in ("first", "second", "small", "operator's")}

    def begin(name: str, url: str) -> threading.Thread:
        def run() -> None:
            look(Endpoint(url, of_the_operator=name == "operator's"), budgets)
            ended[name].set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    with serve(halting.answer) as url:
        threads = [begin("first", f"{url}/half")]
        while not budgets.others.has_large:
            assert threads[0].is_alive()
        threads += [begin(name, f"{url}/{'x' * 2_000}") for name in ("second", "operator's")]
        threads += [begin("small", url)]
        assert ended["small"].wait(30.0)
        assert ended["operator's"].wait(30.0)
        assert not ended["second"].wait(0.5)
        halting.go_on.set()
        assert ended["first"].wait(30.0)
        assert ended["second"].wait(30.0)
        for thread in threads:
            thread.join()
    assert not budgets.others.has_large


def test_a_look_gives_up_at_its_deadline_if_another_large_one_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "SMALL_BYTES", 1_000)
    budget = AnswerBudgets().others
    with budget.question():
        budget.take(2_000, deadline_s=0.0)
        other: list[BaseException] = []

        def wait() -> None:
            try:
                with budget.question():
                    budget.take(2_000, deadline_s=0.0)
            except sessions.AnswerError as error:
                other.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    assert str(other[0]) == "other streams' large answers came first; the next look asks again"
