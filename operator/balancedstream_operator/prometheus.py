"""Queries Prometheus for the metrics of a stream's driver; it blocks, so call it from a thread."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_api_client import PrometheusApiClientException, PrometheusConnect
from requests.exceptions import RequestException
from urllib3.util.retry import Retry

from balancedstream.core.policy import Policy
from balancedstream_operator.measurements import (
    PARTITION_METRICS,
    QUERY_METRICS,
    Measurement,
    MissingMeasurementsError,
    measure,
)
from balancedstream_operator.scrapes import PREFIX, Series

TIMEOUT_S = 10
"""The client has no default, and a Prometheus that hangs would block a thread forever."""

LOOK_BACK = 1.1
"""A little more than the window, so that the sample before it is there, too."""


class Prometheus:
    """One Prometheus server.

    Args:
        url: of its HTTP API.
    """

    def __init__(self, url: str) -> None:
        # The next pass is the retry: passes count failures, and retries here would hide them.
        self._connection = PrometheusConnect(
            url, timeout=TIMEOUT_S, retry=Retry(total=0), method="POST"
        )
        self._url = url

    def observe(self, stream: str, policy: Policy, now_s: float) -> Measurement:
        """Returns what the stream's driver measured recently.

        Args:
            stream: `namespace/name`, the value of the label `stream`.
            policy: its windows say how far to look back.
            now_s: time of the query, seconds since the Unix epoch.

        Raises:
            MissingMeasurementsError: Prometheus cannot be queried, or has no fresh metrics.
        """
        scaling = policy.scaling
        far_s = LOOK_BACK * max(scaling.window_s, scaling.scale_in_delay_s)
        near_s = LOOK_BACK * policy.window.window_s
        return measure(
            self._fetch(QUERY_METRICS, stream, far_s, now_s),
            self._fetch(PARTITION_METRICS, stream, near_s, now_s),
            now_s,
        )

    def _fetch(
        self, metrics: Sequence[str], stream: str, look_back_s: float, now_s: float
    ) -> list[Series]:
        names = "|".join(PREFIX + metric for metric in metrics)
        selector = f'{{__name__=~"{names}",stream="{stream}"}}[{int(look_back_s) + 1}s]'
        try:
            found = self._connection.custom_query(selector, params={"time": now_s})
            return [
                Series(
                    entry["metric"],
                    tuple((float(time_s), float(value)) for time_s, value in entry["values"]),
                )
                for entry in found
            ]
        # A proxy may answer with anything: what is not JSON of Prometheus is a ValueError or worse.
        except (
            RequestException,
            PrometheusApiClientException,
            ValueError,
            KeyError,
            TypeError,
        ) as error:
            message = f"Prometheus at {self._url} cannot be queried: {_find_root(error)}"
            raise MissingMeasurementsError(message) from error


def _find_root(error: BaseException) -> str:
    """The innermost cause; the outer ones repeat the whole query."""
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]
