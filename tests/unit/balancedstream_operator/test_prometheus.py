"""Prometheus is asked for one stream; each answer is a measurement or says why there is none."""

from __future__ import annotations

import re
from typing import Any

import pytest
from loopback import Request, Response, serve

from balancedstream.core.policy import Policy, ScalingPolicy, WindowPolicy
from balancedstream_operator.endpoints import Endpoint, Subject
from balancedstream_operator.measurements import (
    PARTITION_METRICS,
    QUERY_METRICS,
    MissingMeasurementsError,
)
from balancedstream_operator.prometheus import Prometheus
from balancedstream_operator.scrapes import PREFIX

STREAM = "shop/clicks"
SUBJECT = Subject(STREAM)
NOW_S = 1_000.0


def series(name: str, *samples: tuple[float, float], **labels: str) -> dict[str, Any]:
    metric = {"__name__": PREFIX + name, "instance": "10.0.0.7:9404", **labels}
    return {"metric": metric, "values": [[time_s, str(value)] for time_s, value in samples]}


def matrix(*found: dict[str, Any]) -> Response:
    return Response({"status": "success", "data": {"resultType": "matrix", "result": [*found]}})


class Scripted:
    """Answers each query with the series whose names it selects."""

    def __init__(self, *found: dict[str, Any]) -> None:
        self.queries: list[dict[str, str]] = []
        self._found = found

    def answer(self, request: Request) -> Response:
        assert (request.method, request.path) == ("POST", "/api/v1/query")
        self.queries.append(request.query)
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
            for name in ("partition_records_total", "partition_state_restore_seconds_total")
        ),
    )
    with serve(scripted.answer) as url:
        found = Prometheus(Endpoint(url)).observe(SUBJECT, Policy(), NOW_S)
    assert (found.scraped_s, found.epoch, found.executors) == (990.0, 7, {"1": 2})
    assert [(t.partition, t.executor, t.busy_s) for t in found.tasks] == [(3, "1", 2.5)]
    assert found.last_batches == {"q": 4}


def test_two_queries_ask_for_one_stream_and_look_back_as_far_as_the_policy_decides() -> None:
    policy = Policy(
        scaling=ScalingPolicy(window_s=100.0, scale_in_delay_s=600.0),
        window=WindowPolicy(window_s=50.0),
    )
    scripted = Scripted(series("plan_epoch", (990.0, 1.0)))
    with serve(scripted.answer) as url:
        Prometheus(Endpoint(url)).observe(SUBJECT, policy, NOW_S)
    for query, metrics, look_back in (
        (scripted.queries[0], QUERY_METRICS, "661s"),
        (scripted.queries[1], PARTITION_METRICS, "56s"),
    ):
        names = "|".join(PREFIX + metric for metric in metrics)
        assert query["query"] == f'{{__name__=~"{names}",stream="{STREAM}"}}[{look_back}]'
        assert float(query["time"]) == NOW_S


def test_further_labels_are_matched_whatever_characters_are_in_them() -> None:
    scripted = Scripted(series("plan_epoch", (990.0, 1.0)))
    subject = Subject(STREAM, labels=(("cluster", 'a"b\\c'), ("tier", "1é")))
    with serve(scripted.answer) as url:
        Prometheus(Endpoint(url)).observe(subject, Policy(), NOW_S)
    expected = f'stream="{STREAM}",cluster="a\\"b\\\\c",tier="1é"}}'
    assert all(expected in query["query"] for query in scripted.queries)


def test_a_stream_that_prometheus_does_not_know_has_no_measurement() -> None:
    with (
        serve(Scripted().answer) as url,
        pytest.raises(MissingMeasurementsError, match="Prometheus has no metrics of this stream"),
    ):
        Prometheus(Endpoint(url)).observe(SUBJECT, Policy(), NOW_S)


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
            Prometheus(Endpoint(url)).observe(SUBJECT, Policy(), NOW_S)
        assert str(raised.value).startswith(f"Prometheus at {url} cannot be queried: ")
        assert "\n" not in str(raised.value)


def test_a_server_that_cannot_be_reached_is_asked_once_and_is_a_missing_measurement() -> None:
    with serve(Scripted().answer) as url:
        pass
    with pytest.raises(MissingMeasurementsError, match=r"cannot be queried: .*refused"):
        Prometheus(Endpoint(url)).observe(SUBJECT, Policy(), NOW_S)


def test_failures_are_not_retried_so_that_passes_count_them() -> None:
    asked = []

    def fail(request: Request) -> Response:
        asked.append(request.path)
        return Response({}, 503)

    with serve(fail) as url, pytest.raises(MissingMeasurementsError):
        Prometheus(Endpoint(url)).observe(SUBJECT, Policy(), NOW_S)
    assert len(asked) == 1
