"""Asks Prometheus for what a stream's driver measured; blocks, so call it from a thread."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_api_client import PrometheusApiClientException, PrometheusConnect
from requests.exceptions import RequestException
from urllib3.util.retry import Retry

from balancedstream.core.policy import Policy
from balancedstream_operator.measurements import (
    PARTITION_METRICS,
    PREFIX,
    QUERY_METRICS,
    Measurement,
    MissingMeasurementsError,
    Series,
    measure,
)

TIMEOUT_S = 10
"""The client's own default is none at all: a Prometheus that hangs would hold a thread for ever."""

LOOK_BACK = 1.1
"""A little more than is decided on, so that the first interval has its beginning."""


class Prometheus:
    """One Prometheus server.

    Args:
        url: where its HTTP API is.
    """

    def __init__(self, url: str) -> None:
        # A retry is the next pass: failures are counted there, and must not hide here.
        self._connection = PrometheusConnect(
            url, timeout=TIMEOUT_S, retry=Retry(total=0), method="POST"
        )
        self._url = url

    def observe(self, stream: str, policy: Policy, now_s: float) -> Measurement:
        """What the stream's driver showed lately.

        Args:
            stream: `namespace/name`, the value of the label `stream`.
            policy: says how far to look back.
            now_s: time of the question, seconds since the Unix epoch.

        Raises:
            MissingMeasurementsError: the server cannot be asked, or has nothing of use.
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
        # A proxy may answer with anything: what is no JSON of Prometheus' is a ValueError or worse.
        except (
            RequestException,
            PrometheusApiClientException,
            ValueError,
            KeyError,
            TypeError,
        ) as error:
            message = f"Prometheus at {self._url} cannot be asked: {_find_root(error)}"
            raise MissingMeasurementsError(message) from error
        return [
            Series(
                entry["metric"],
                tuple((float(time_s), float(value)) for time_s, value in entry["values"]),
            )
            for entry in found
        ]


def _find_root(error: BaseException) -> str:
    """The innermost cause: the outer ones repeat the whole question."""
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]
