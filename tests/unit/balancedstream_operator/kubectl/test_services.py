"""What stands behind the URL of a Prometheus, and what its answers mean."""

from __future__ import annotations

import pytest

from balancedstream_operator.kubectl.services import Service, check_answer, find_service

PROMETHEUS = Service("monitoring", "prometheus", "http", 9090, "", certain=True)
URL = "http://prometheus.monitoring.svc:9090"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://prometheus", ("system", "prometheus", 80)),
        ("http://prometheus.monitoring:9090", ("monitoring", "prometheus", 9090)),
        ("http://prometheus.monitoring.svc", ("monitoring", "prometheus", 80)),
        ("https://prometheus.monitoring.svc.cluster.local", ("monitoring", "prometheus", 443)),
        ("http://prometheus.monitoring.example", None),
        ("http://localhost:9090", None),
        ("http://10.0.0.7:9090", None),
        ("http://[fd00::1]:9090", None),
        ("http://prometheus:99999", None),
        ("http://[x", None),
        ("prometheus", None),
        ("", None),
    ],
)
def test_a_url_names_a_service_as_pods_call_it(
    url: str, expected: tuple[str, str, int] | None
) -> None:
    found = find_service(url, "system")
    assert (found and (found.namespace, found.name, found.port)) == expected


@pytest.mark.parametrize(
    ("status", "answer", "level", "says"),
    [
        (401, "Unauthorized", "unseen", "wants a login"),
        (403, {"error": "no tenant"}, "unseen", "wants a login"),
        (404, "not found", "problem", "does not answer as Prometheus does (HTTP 404)"),
        (200, "<html>", "problem", "does not answer as Prometheus does (HTTP 200)"),
        (200, {"status": "success", "data": []}, "problem", "does not answer as Prometheus does"),
        (
            503,
            {"kind": "Status", "message": "error trying to reach service: i/o timeout"},
            "unseen",
            "does not answer the API server: error trying to reach service: i/o timeout",
        ),
        (422, {"status": "error"}, "problem", "does not answer as Prometheus does (HTTP 422)"),
        (
            503,
            {"kind": "Status", "message": "no endpoints available for service"},
            "problem",
            "no endpoints available for service. See the pods of Service prometheus in namespace",
        ),
    ],
)
def test_what_is_no_answer_of_prometheus_says_what_to_look_at(
    status: int, answer: object, level: str, says: str
) -> None:
    found = check_answer(URL, PROMETHEUS, status, answer)
    assert found.level == level
    assert says in found.sentence
