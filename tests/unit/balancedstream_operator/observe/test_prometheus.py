"""Prometheus is asked for one stream; each answer is a measurement or says why there is none."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from loopback import Request, Response, serve

from balancedstream.core.policy import Policy, ScalingPolicy, WindowPolicy
from balancedstream.core.samples import BatchSample, TaskSample
from balancedstream.metrics.exporter import Exporter
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe.batches import BATCH_METRICS
from balancedstream_operator.observe.endpoints import Endpoint, Subject
from balancedstream_operator.observe.http import AnswerBudgets
from balancedstream_operator.observe.measurement import (
    PARTITION_METRICS,
    QUERY_METRICS,
)
from balancedstream_operator.observe.prometheus import Prometheus
from balancedstream_operator.observe.stages import STAGE_METRICS

STREAM = "shop/clicks"
SUBJECT = Subject(STREAM)
NOW_S = 1_000.0


def series(name: str, *samples: tuple[float, float], **labels: str) -> dict[str, Any]:
    metric = {"__name__": f"balancedstream_{name}", "instance": "10.0.0.7:9404", **labels}
    return {"metric": metric, "values": [[time_s, str(value)] for time_s, value in samples]}


def matrix(*found: dict[str, Any]) -> Response:
    return Response({"status": "success", "data": {"resultType": "matrix", "result": [*found]}})


class Scripted:
    """Answers each query with the series whose names it selects, and knows no other pods."""

    def __init__(self, *found: dict[str, Any]) -> None:
        self.queries: list[dict[str, str]] = []
        self._found = found

    def answer(self, request: Request) -> Response:
        assert (request.method, request.path) == ("GET", "/api/v1/query")
        self.queries.append(request.query)
        if request.query["query"].startswith("bottomk(1, "):
            return matrix()
        names = re.search(r'__name__=~"([^"]*)"', request.query["query"])
        assert names is not None
        chosen = [s for s in self._found if s["metric"]["__name__"] in names[1].split("|")]
        return matrix(*chosen)


def test_what_was_scraped_becomes_a_measurement() -> None:
    scripted = Scripted(
        series("plan_epoch", (975.0, 6.0), (990.0, 7.0)),
        series("executor_cores", (990.0, 2.0), executor="1"),
        series("batches_total", (975.0, 4.0), (990.0, 5.0), query="q"),
        series("last_batch_id", (975.0, 3.0), (990.0, 4.0), query="q"),
        series(
            "partition_busy_seconds_total",
            (975.0, 10.0),
            (990.0, 12.5),
            query="q",
            operator="0",
            partition="3",
        ),
        series(
            "partition_executor_info",
            (975.0, 1.0),
            (990.0, 1.0),
            query="q",
            operator="0",
            partition="3",
            executor="1",
        ),
        *(
            series(name, (975.0, 0.0), (990.0, 0.0), query="q", operator="0", partition="3")
            for name in ("partition_records_total", "partition_state_load_seconds_total")
        ),
    )
    with serve(scripted.answer) as url:
        found = Prometheus(Endpoint(url), AnswerBudgets()).observe(SUBJECT, Policy(), NOW_S)
    assert (found.scraped_s, found.epoch, found.executors) == (990.0, 7, {"1": 2})
    assert [(t.partition, t.executor, t.busy_s) for t in found.tasks] == [(3, "1", 2.5)]
    assert found.last_batches == {"q": 4}


def test_two_queries_ask_for_one_stream_and_look_back_as_far_as_the_policy_decides() -> None:
    policy = Policy(
        scaling=ScalingPolicy(window_s=50.0),
    )
    scripted = Scripted(series("plan_epoch", (990.0, 1.0)))
    with serve(scripted.answer) as url:
        Prometheus(Endpoint(url), AnswerBudgets()).observe(SUBJECT, policy, NOW_S)
    for query, metrics, look_back in (
        (scripted.queries[0], QUERY_METRICS, "451s"),
        (scripted.queries[1], PARTITION_METRICS, "56s"),
    ):
        names = "|".join(metrics)
        assert query["query"] == f'{{__name__=~"{names}",stream="{STREAM}"}}[{look_back}]'
        assert float(query["time"]) == NOW_S
        assert query["dedup"] == "false"


@pytest.mark.parametrize(
    ("pace", "name"), [("trigger", "trigger_interval"), ("batches", "last_batch_duration")]
)
def test_of_slow_batches_more_are_fetched(pace: str, name: str) -> None:
    scripted = Scripted(
        series("plan_epoch", (990.0, 1.0)), series(f"{name}_seconds", (990.0, 300.0), query="q")
    )
    with serve(scripted.answer) as url:
        Prometheus(Endpoint(url), AnswerBudgets()).observe(SUBJECT, Policy(), NOW_S)
    _, further, _ = scripted.queries
    names = "|".join((*BATCH_METRICS, *STAGE_METRICS))
    # Five batches to decide on, the one before them, and the one that runs.
    assert further["query"] == f'{{__name__=~"{names}",stream="{STREAM}"}}[1651s]', pace


def test_further_labels_are_matched_whatever_characters_are_in_them() -> None:
    scripted = Scripted(series("plan_epoch", (990.0, 1.0)))
    subject = Subject(STREAM, labels=(("cluster", 'a"b\\c'), ("tier", "1é")))
    with serve(scripted.answer) as url:
        Prometheus(Endpoint(url), AnswerBudgets()).observe(subject, Policy(), NOW_S)
    expected = f'stream="{STREAM}",cluster="a\\"b\\\\c",tier="1é"}}'
    assert all(expected in query["query"] for query in scripted.queries)


def matchers_of(query: str) -> dict[str, str]:
    """Regular expressions of labels in a query, as Prometheus reads them."""
    found = re.findall(r'(\w+)=~("(?:[^"\\]|\\.)*")', query)
    return {name: json.loads(quoted) for name, quoted in found if name != "__name__"}


@pytest.mark.parametrize(
    ("label", "value", "asked"),
    [
        ("pod", "", True),
        ("pod", "clicks-driver-0", True),
        ("pod", "evil-0", False),
        ("namespace", "shop", True),
        ("namespace", "shopping", False),
        ("instance", "", True),
        ("instance", "10.0.0.7", True),
        ("instance", "10.0.0.7:9404", True),
        ("instance", "10.0.0.71:9404", False),
        ("instance", "10.0.0.9:9404", False),
        ("instance", "node-3:9404", True),
        ("instance", "[fd00::7]:9404", True),
    ],
)
def test_what_another_pod_shows_is_not_fetched(label: str, value: str, asked: bool) -> None:
    scripted = Scripted(series("plan_epoch", (990.0, 1.0)))
    subject = Subject(STREAM, "shop", "clicks-driver-0", ("10.0.0.7", "fd00::7"))
    with serve(scripted.answer) as url:
        Prometheus(Endpoint(url), AnswerBudgets()).observe(subject, Policy(), NOW_S)
    for query in scripted.queries:
        pattern = matchers_of(query["query"])[label]
        assert bool(re.fullmatch(pattern, value)) is asked
    assert subject.owns({label: value} if value else {}) or not asked


def test_more_copies_than_a_driver_can_have_are_not_read_and_are_told() -> None:
    many = [series("plan_epoch", (990.0, 1.0), copy=str(number)) for number in range(20_000)]
    with (
        serve(Scripted(*many).answer) as url,
        pytest.raises(MissingMeasurementsError, match="has 20000 copies of the driver's metrics"),
    ):
        Prometheus(Endpoint(url), AnswerBudgets()).observe(SUBJECT, Policy(), NOW_S)


def test_a_stream_that_prometheus_does_not_know_has_no_measurement() -> None:
    with (
        serve(Scripted().answer) as url,
        pytest.raises(MissingMeasurementsError, match="Prometheus has no metrics of this stream"),
    ):
        Prometheus(Endpoint(url), AnswerBudgets()).observe(SUBJECT, Policy(), NOW_S)


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(Response({"status": "error", "error": "query timed out"}, 503), id="busy"),
        pytest.param(Response({"status": "error", "error": "bad data"}, 400), id="refused"),
        pytest.param(Response("<html>Log in</html>"), id="a page of a proxy"),
        pytest.param(Response("<html>Bad gateway</html>", 502), id="a proxy without a server"),
        pytest.param(Response({"status": "success"}), id="no data"),
        pytest.param(Response({"data": {"result": [{"metric": {}}]}}), id="no values"),
        pytest.param(Response({"data": {"result": 7}}), id="no list"),
        pytest.param(matrix({"metric": {}, "values": [["then", "much"]]}), id="no numbers"),
    ],
)
def test_an_answer_of_another_kind_is_a_missing_measurement_that_names_the_server(
    response: Response,
) -> None:
    with serve(lambda _: response) as url:
        with pytest.raises(MissingMeasurementsError) as raised:
            Prometheus(Endpoint(url), AnswerBudgets()).observe(SUBJECT, Policy(), NOW_S)
        assert str(raised.value).startswith(f"Prometheus at {url} cannot be queried: ")
        assert "\n" not in str(raised.value)


def test_a_server_that_cannot_be_reached_is_asked_once_and_is_a_missing_measurement() -> None:
    with serve(Scripted().answer) as url:
        pass
    with pytest.raises(MissingMeasurementsError, match=r"cannot be queried: .*refused"):
        Prometheus(Endpoint(url), AnswerBudgets()).observe(SUBJECT, Policy(), NOW_S)


def test_failures_are_not_retried_so_that_passes_count_them() -> None:
    asked = []

    def fail(request: Request) -> Response:
        asked.append(request.path)
        return Response({}, 503)

    with serve(fail) as url, pytest.raises(MissingMeasurementsError):
        Prometheus(Endpoint(url), AnswerBudgets()).observe(SUBJECT, Policy(), NOW_S)
    assert len(asked) == 1


class Keeping:
    """A Prometheus that scraped an exporter, and answers with what the range of a query covers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.sent = 0
        self._kept: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}

    def scrape(self, exporter: Exporter, at_s: float, instance: str = "10.0.0.7:9404") -> None:
        for family in exporter.collect():
            for sample in family.samples:
                labels = {"__name__": sample.name, "instance": instance, **sample.labels}
                self._kept.setdefault(tuple(sorted(labels.items())), []).append(
                    (at_s, sample.value)
                )

    def answer(self, request: Request) -> Response:
        asked = re.search(r'__name__=~"([^"]*)".*\[(\d+)s\]$', request.query["query"])
        assert asked is not None
        self.asked.append(asked[2])
        # Prometheus 3 leaves out a sample at the very start of a range.
        since_s = float(request.query["time"]) - float(asked[2])
        names = set(asked[1].split("|"))
        found = [
            {"metric": dict(key), "values": [[t, str(v)] for t, v in samples if t > since_s]}
            for key, samples in self._kept.items()
            if dict(key)["__name__"] in names
        ]
        found = [one for one in found if one["values"]]
        self.sent += sum(len(one["values"]) for one in found)
        return matrix(*found)


def run_driver(exporter: Exporter, keeping: Keeping, chance: random.Random) -> float:
    """Two queries that finish batches at different times; returns the time of the last scrape."""
    now_s = 1_000.0
    numbers = {"fast": 0, "slow": 0}
    for _ in range(40):
        now_s += 5.0
        for query, often in (("fast", 0.7), ("slow", 0.15)):
            if chance.random() > often:
                continue
            number, numbers[query] = numbers[query], numbers[query] + 1
            exporter.on_batch(
                BatchSample(query, number, now_s - 1.0, 3.0, 40, 5.0),
                [
                    TaskSample(query, 0, p, number, chance.choice("12"), p + 1.0, 10, 100, now_s)
                    for p in range(4)
                ],
                {"1": 1, "2": 1},
            )
        keeping.scrape(exporter, now_s)
    return now_s


def test_no_older_scrape_of_partitions_is_fetched_than_the_window_looks_at() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    keeping = Keeping()
    now_s = run_driver(Exporter(stream=STREAM), keeping, random.Random(seed)) + 2.0
    policy = Policy(window=WindowPolicy(batches=2))
    with serve(keeping.answer) as url:
        found = Prometheus(Endpoint(url), AnswerBudgets()).observe(SUBJECT, policy, now_s)
        sent, keeping.sent = keeping.sent, 0
        with pytest.MonkeyPatch.context() as patch:
            # Everything that there is.
            patch.setattr("balancedstream_operator.observe.prometheus.find_oldest", lambda *_: None)
            full = Prometheus(Endpoint(url), AnswerBudgets()).observe(SUBJECT, policy, now_s)
    assert found == full
    assert int(keeping.asked[1]) <= int(keeping.asked[3]) == 199
    assert sent <= keeping.sent


def test_the_copy_of_an_ha_pair_that_needs_most_says_how_far_to_look_back() -> None:
    keeping = Keeping()
    exporter = Exporter(stream=STREAM)
    for number in range(12):
        at_s = 1_000.0 + 10.0 * number
        exporter.on_batch(
            BatchSample("q", number, at_s, 3.0, 40, 10.0),
            [TaskSample("q", 0, 0, number, "1", 1.0, 10, 100, at_s)],
            {"1": 1},
        )
        keeping.scrape(exporter, at_s + 1.0, "a:9404")
        if number % 3 == 0:
            keeping.scrape(exporter, at_s + 2.0, "b:9404")
    with serve(keeping.answer) as url:
        Prometheus(Endpoint(url), AnswerBudgets()).observe(SUBJECT, Policy(), 1_115.0)
    # Of b's last three intervals the first one begins at 1,002 s, of a's at 1,081 s.
    assert keeping.asked[1] == "114"
