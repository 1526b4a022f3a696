"""Queries Prometheus for the metrics of a stream's driver; it blocks, so call it from a thread."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from prometheus_api_client import PrometheusApiClientException, PrometheusConnect
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from balancedstream.core.observations import MAX_DELAY_S
from balancedstream.core.policy import Policy
from balancedstream.core.scaling.demand import MIN_BATCHES
from balancedstream.core.scaling.workload import LATE
from balancedstream.core.wire import series as wire
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.kube.proxies import find_words
from balancedstream_operator.observe.batches import BATCH_METRICS
from balancedstream_operator.observe.endpoints import Endpoint, Subject, hide_userinfo
from balancedstream_operator.observe.http import (
    DEADLINE_S,
    AnswerBudget,
    AnswerBudgets,
    AnswerError,
    BoundedAdapter,
    BoundedSession,
)
from balancedstream_operator.observe.measurement import (
    PARTITION_METRICS,
    QUERY_METRICS,
    Measurement,
    measure,
)
from balancedstream_operator.observe.series import Series, find_oldest, find_pace_s, find_targets
from balancedstream_operator.observe.signing import AwsSignature, IdentityError
from balancedstream_operator.observe.stages import STAGE_METRICS

LOOK_BACK = 1.1
"""A little more than the window, to include the sample before it."""

SCRAPE_S = 60.0
"""Longest usual pause between scrapes; a window begins and ends between two of them."""

ALL_REPLICAS = {"dedup": "false"}
"""A parameter for Thanos, which otherwise may mix series of several replicas, so that no scrape is
whole. Other servers ignore it."""

WHOLE_ANSWERS = {"partial_response": "false", "deny_partial_response": "1"}
"""Parameters for Thanos and VictoriaMetrics, which otherwise answer without what they cannot reach:
a sum would be too low, and raise no minimum. Other servers ignore them."""

MAX_LOOK_BACK_S = 6 * 3600.0
"""The operator never fetches samples from further back, however slow batches are."""

MAX_SKEW_S = 120.0
"""The clocks of the operator and of Prometheus may differ by this much."""

_WORDS_CHARACTERS = 8192
"""Part of an answer without JSON that the operator searches for words."""

_NOT_PROMETHEUS = "its answer is not Prometheus' JSON"

QUERY_S = 5.0
"""Prometheus gives up a stream's own query after this long."""

MAX_COPIES = 32
"""Most targets of one driver. An HA pair in which two jobs scrape a pod makes four. Each restart of
a driver adds one if Prometheus labels series by container."""


class Prometheus:
    """One Prometheus server, or a server with the same API.

    Args:
        endpoint: where it is, and how to authenticate.
        budgets: of the process, for the memory of answers.
    """

    def __init__(self, endpoint: Endpoint, budgets: AnswerBudgets) -> None:
        self._endpoint = endpoint
        self._budgets = budgets
        self._shown = hide_userinfo(endpoint.url)
        self._budget = budgets.own if endpoint.of_the_operator else budgets.others
        self._connection, self._session = _connect(
            endpoint, self._budget, _read_answer, explains=endpoint.of_the_operator
        )

    def observe(self, subject: Subject, policy: Policy, now_s: float) -> Measurement:
        """Returns what the stream's driver measured recently.

        Raises:
            MissingMeasurementsError: Prometheus does not answer, or has no fresh metrics.
        """

        def fetch(metrics: Sequence[str], look_back_s: float) -> list[Series]:
            return self._fetch(metrics, subject, look_back_s, now_s)

        with self._budget.question():
            return fetch_measurement(fetch, subject, policy, now_s)

    def _fetch(
        self, metrics: Sequence[str], subject: Subject, look_back_s: float, now_s: float
    ) -> list[Series]:
        names = "|".join(metrics)
        matchers = ",".join([*_match_stream(subject), *_match_driver(subject)])
        found = self._query(f'{{__name__=~"{names}",{matchers}}}[{int(look_back_s) + 1}s]', now_s)
        if found or wire.PLAN_EPOCH not in metrics:
            return found
        # A series of another pod explains more than no series; one of any number is enough.
        matchers = ",".join(_match_stream(subject))
        return self._query(f"bottomk(1, {wire.PLAN_EPOCH}{{{matchers}}})[15s:1s]", now_s)

    def ask(self, query: str, now_s: float) -> float:
        """Returns what a query of a stream gives, which must be one number.

        Raises:
            MissingMeasurementsError: it gives no number, or Prometheus does not answer.
        """
        connection, _ = _connect(self._endpoint, self._budgets.queries, json.loads)
        try:
            with self._budgets.queries.question():
                found = connection.custom_query(
                    query, params={"time": now_s, "timeout": f"{QUERY_S:.0f}s", **WHOLE_ANSWERS}
                )
            return _read_number(found)
        except (OSError, HTTPError, RequestException, PrometheusApiClientException) as error:
            said = f"{_describe(error)}, for executors.minQuery"
            raise self._explain(said) from error
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise self._explain(_NOT_PROMETHEUS) from error

    def _query(self, expression: str, now_s: float) -> list[Series]:
        try:
            found = self._connection.custom_query(
                expression, params={"time": now_s, **ALL_REPLICAS}
            )
            series = [_check_series(entry) for entry in found]
        # The traceback holds the answer's memory; do not store these errors.
        except (OSError, HTTPError, RequestException, PrometheusApiClientException) as error:
            raise self._explain(_describe(error)) from error
        # A proxy may answer with anything: what is not JSON of Prometheus is a ValueError or worse.
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise self._explain(self._describe_rubbish(error)) from error
        self._check_clock()
        return series

    def _check_clock(self) -> None:
        """Refuses answers if the clocks differ: the samples would be hours old, or missing."""
        ahead_s = self._session.clock_ahead_s
        if abs(ahead_s) <= MAX_SKEW_S:
            return
        how = "behind" if ahead_s > 0.0 else "ahead of"
        said = (
            f"the clock of the operator's node is {abs(ahead_s):.0f} s {how} that of Prometheus, "
            "so it would take old samples for new ones: set the clocks right"
        )
        raise self._explain(said)

    def _describe_rubbish(self, error: Exception) -> str:
        """An answer without Prometheus' JSON; the words of the operator's own server are shown."""
        words = ""
        if self._endpoint.of_the_operator and isinstance(error, json.JSONDecodeError):
            words = find_words(error.doc[:_WORDS_CHARACTERS])
        return (
            f"{_NOT_PROMETHEUS}; a proxy's, perhaps. It says: {words}" if words else _NOT_PROMETHEUS
        )

    def _explain(self, said: str) -> MissingMeasurementsError:
        return MissingMeasurementsError(f"Prometheus at {self._shown} cannot be queried: {said}")


def _connect(
    endpoint: Endpoint,
    budget: AnswerBudget,
    read: Callable[[str], Any],
    *,
    explains: bool = False,
) -> tuple[PrometheusConnect, BoundedSession]:
    session = BoundedSession(dict(endpoint.credentials), budget, read, explains=explains)
    if endpoint.sigv4_region:
        session.auth = AwsSignature(endpoint.sigv4_region)
    url = endpoint.url.rstrip("/")
    # The client puts all of a query into the URL, and proxies let GET through.
    connection = PrometheusConnect(url, timeout=DEADLINE_S, method="GET", session=session)
    # The next pass is the retry: passes count failures, and retries here would hide them. An
    # adapter of one URL would miss other spellings of it.
    session.adapters.clear()
    for scheme in ("http://", "https://"):
        session.mount(scheme, BoundedAdapter(max_retries=Retry(total=0)))
    return connection, session


def _read_number(found: Any) -> float:
    """The number of a scalar, or of a vector's only series."""
    what = f"{len(found)} series" if found and isinstance(found, list) else "nothing"
    try:
        if len(found) == 2 and isinstance(found[1], str):
            return float(found[1])
        if len(found) == 1:
            what = "no number"
            return float(found[0]["value"][1])
    except (ValueError, KeyError, TypeError, IndexError):
        what = "no number"
    message = f"executors.minQuery gives {what}, and must give one number, as max(...) does"
    raise MissingMeasurementsError(message)


def _match_stream(subject: Subject) -> Iterator[str]:
    """Matchers of PromQL, whose strings are quoted as those of JSON are."""
    for name, value in ((wire.STREAM, subject.stream), *subject.labels):
        yield f"{name}={json.dumps(value, ensure_ascii=False)}"


def _match_driver(subject: Subject) -> Iterator[str]:
    """Matchers for most of what `Subject.owns` refuses; a label may be missing."""
    for name, value in (("namespace", subject.namespace), ("pod", subject.pod)):
        if value:
            yield f"{name}=~{json.dumps('|' + re.escape(value))}"
    if subject.ips:
        ours = "|".join(rf"{re.escape(ip)}(:\d+)?" for ip in subject.ips)
        yield f"instance=~{json.dumps(f'|.*[^0-9.:].*|{ours}')}"


def _read_answer(text: str) -> Any:
    """An answer of Prometheus, with a `Series` in the place of each JSON object of one."""
    return json.loads(text, object_hook=_take_series)


def _take_series(entry: dict[str, Any]) -> Series | dict[str, Any]:
    """A series at once from its JSON, because Python's lists of samples take far more memory."""
    if not (isinstance(entry.get("metric"), dict) and isinstance(entry.get("values"), list)):
        return entry
    samples = tuple((float(time_s), float(value)) for time_s, value in entry["values"])
    return Series(entry["metric"], samples)


def _check_series(entry: Any) -> Series:
    if not isinstance(entry, Series):
        message = "no series"
        raise TypeError(message)
    return entry


def fetch_measurement(
    fetch: Callable[[Sequence[str], float], list[Series]],
    subject: Subject,
    policy: Policy,
    now_s: float,
) -> Measurement:
    """Fetches the series that a measurement needs, and measures.

    `fetch` gives the series of metrics, by their names, over a number of seconds.

    Raises:
        MissingMeasurementsError: there are no fresh metrics.
    """
    scaling = policy.scaling
    late_s = subject.stale_after_s or 0.0
    far_s = late_s + LOOK_BACK * max(scaling.window_s, MAX_DELAY_S) + 2 * SCRAPE_S
    found = fetch(QUERY_METRICS, far_s)
    queries = _keep_own(found, subject)
    if found and not queries:
        message = (
            "Prometheus has metrics of this stream from other pods than its driver only. If that "
            "has just started, the next scrape helps; otherwise check which pods claim to be it, "
            "and set spec.metrics.labels where several clusters share one Prometheus. The first "
            f"has {_describe_pod(min(found, key=lambda series: len(series.labels)))}"
        )
        raise MissingMeasurementsError(message)
    copies = len(find_targets(queries))
    if copies > MAX_COPIES:
        message = (
            f"Prometheus has {copies} copies of the driver's metrics, and more than {MAX_COPIES} "
            f"are not read: see in which labels the series of {wire.PLAN_EPOCH} differ"
        )
        raise MissingMeasurementsError(message)
    # As many batches as scaling asks for, the one before them, and the one that runs.
    pace_s = find_pace_s(queries)
    needed_s = min(late_s + LOOK_BACK * (MIN_BATCHES + 2) * pace_s, MAX_LOOK_BACK_S)
    if needed_s > far_s:
        slow = (*BATCH_METRICS, *STAGE_METRICS)
        queries = [s for s in queries if s.labels["__name__"] not in slow]
        queries += _keep_own(fetch(slow, needed_s), subject)
    # The last batch of a slow query counts until its next one is late, and shows with its interval.
    near_s = late_s + LOOK_BACK * max(policy.scaling.window_s, (LATE + 1.0) * pace_s)
    # Most series of a driver are those of its partitions, so fetch as few samples as possible.
    oldest_s = find_oldest(queries, policy.window.batches)
    if oldest_s is not None:
        near_s = min(near_s, now_s - oldest_s)
    near_s = min(near_s, MAX_LOOK_BACK_S)
    return measure(
        queries,
        _keep_own(fetch(PARTITION_METRICS, near_s), subject),
        now_s,
        stale_after_s=subject.stale_after_s,
        newest=policy.window.batches,
    )


def _keep_own(found: Iterable[Series], subject: Subject) -> list[Series]:
    return [series for series in found if subject.owns(series.labels)]


def _describe_pod(series: Series) -> str:
    """The labels that tell where a series comes from."""
    labels = sorted(series.labels.items())
    shown = [f"{name}={value}" for name, value in labels if name not in {wire.STREAM, "__name__"}]
    return ", ".join(shown)[:300] or "no labels"


def _describe(error: BaseException) -> str:
    """The cause of an error, without words of the server or of the credentials."""
    if isinstance(error, AnswerError | IdentityError):
        return str(error)
    while error.__context__ is not None:
        error = error.__context__
    said = type(error).__name__
    if isinstance(error, OSError) and not isinstance(error, RequestException):
        said += f": {error.strerror or error}"
    # A server that does not accept the client's certificate often just hangs up.
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLCertVerificationError):
        said += "; it may want another certificate of the client, tls.crt and tls.key"
    return said.partition("\n")[0][:300]
