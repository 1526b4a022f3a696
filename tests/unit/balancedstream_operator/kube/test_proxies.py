"""Whatever stands before Prometheus, GET goes through it, and the status says what it said."""

from __future__ import annotations

import gzip
import json
import time
from dataclasses import replace
from email.utils import formatdate

import pytest
from loopback import Request, Response, serve

from balancedstream.core.policy import Policy
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.kube.proxies import find_words
from balancedstream_operator.observe.endpoints import Endpoint, Subject
from balancedstream_operator.observe.http import AnswerBudgets
from balancedstream_operator.observe.prometheus import Prometheus

EMPTY = {"status": "success", "data": {"resultType": "matrix", "result": []}}
NOTHING_YET = "Prometheus has no"
LOGIN = "<html><head><title>t</title></head><body>Please <b>log in</b>\x1b[31m</body></html>"


def why_missing(url: str, *, own: bool) -> str:
    prometheus = Prometheus(Endpoint(url, of_the_operator=own), AnswerBudgets())
    with pytest.raises(MissingMeasurementsError) as raised:
        prometheus.observe(Subject("shop/clicks"), Policy(), time.time())
    return str(raised.value)


@pytest.mark.parametrize("status", [403, 405, 501])
def test_a_proxy_that_lets_only_get_through_is_no_matter(status: int) -> None:
    def answer(request: Request) -> Response:
        return Response(EMPTY) if request.method == "GET" else Response("no POST", status)

    with serve(answer) as url:
        assert "answered with status" not in why_missing(url, own=True)


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (Response("RBAC: access denied", 403), "403 (Forbidden): it wants other credentials"),
        (Response(LOGIN, 401), "401 (Unauthorized): it wants other credentials"),
        (Response("404 page not found", 404), "the path of the URL may be another one"),
        (Response("nope", 405), "a proxy before it takes no GET"),
        (Response("nope", 407), "a proxy before it wants credentials"),
        (Response("long", 414), "takes no URL that is so long"),
        (Response("slow down", 429), "it is asked too often"),
        (Response("Unsupported method", 501), "a proxy before it takes no GET"),
        (Response("<h1>bad gateway</h1>", 502), "a proxy before it does not reach it"),
        (Response("no healthy upstream", 503), "is not ready"),
        (Response("late", 504), "a proxy before it had no answer in time"),
        (Response({"status": "error", "error": "too many samples"}, 422), "too many samples"),
        (Response("odd", 599), "status 599. It says: odd"),
        (Response(LOGIN), "not Prometheus' JSON; a proxy's, perhaps. It says: Please log in"),
        (Response("", 302, {"Location": "https://me:pw@sso.example/in?token=1"}), "sso.example/in"),
        (Response("", 301, {"Location": "https://[:"}), "name the URL that answers"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.status),
)
def test_what_the_operators_own_server_says_is_shown_and_another_ones_only_by_its_status(
    response: Response, said: str
) -> None:
    with serve(lambda _: response) as url:
        own, other = why_missing(url, own=True), why_missing(url, own=False)
    assert said in own
    assert "\x1b" not in own
    assert "token=1" not in own
    assert "pw@" not in own
    for words in ("log in", "denied", "upstream", "sso.example", "samples", "It says"):
        assert words not in other
    assert ("status" in other) == (response.status != 200)


@pytest.mark.parametrize(
    "response",
    [
        Response(gzip.compress(json.dumps(EMPTY).encode()), 200, {"Content-Encoding": "gzip"}),
        Response(EMPTY, 200, {"Content-Type": "text/plain"}),
        Response(json.dumps(EMPTY).encode(), 200, {"Content-Type": ""}),
        Response(None, 200, {"Warning": "299 - cached"}),
    ],
    ids=["compressed", "of another type", "of no type", "in pieces"],
)
def test_an_answer_that_a_proxy_wraps_in_another_way_is_read(response: Response) -> None:
    def answer(_: Request) -> Response:
        return replace(response, body=iter([EMPTY])) if response.body is None else response

    with serve(answer) as url:
        assert "cannot be queried" not in why_missing(url, own=True)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"\x1f\x8b broken", {"Content-Encoding": "gzip"}),
        (b"\x00\x01", {"Content-Encoding": "br"}),
        (b"[" * 100_000, {}),
        (b"", {}),
        (b"\xef\xbb\xbf{}", {}),
        (b"NaN", {}),
        (b"null", {}),
    ],
)
def test_an_answer_that_cannot_be_read_is_one_sentence(
    body: bytes, headers: dict[str, str]
) -> None:
    with serve(lambda _: Response(body, 200, headers)) as url:
        assert "cannot be queried: " in why_missing(url, own=True)


@pytest.mark.parametrize(
    ("off_s", "age", "said"),
    [
        (7200.0, "0", " s behind that of Prometheus"),
        (-7200.0, "0", " s ahead of that of Prometheus"),
        (-600.0, "600", ""),
        (60.0, "0", ""),
    ],
)
def test_a_clock_that_is_hours_off_takes_no_old_samples_for_new_ones(
    off_s: float, age: str, said: str
) -> None:
    def answer(_: Request) -> Response:
        date = formatdate(time.time() + off_s, usegmt=True)
        return Response(EMPTY, 200, {"Date": date, "Age": age})

    with serve(answer) as url:
        found = why_missing(url, own=True)
    assert (said in found) if said else ("clock" not in found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<style>b{}</style><script>if (a<b) x()</script>ok", "ok"),
        ("<!-- secret --> a &lt;b&gt;", "a <b>"),
        ("<script>never ends", ""),
        ("x" * 900, "x" * 200),
        ("a\r\n\x9b31mb\u202ec", "a 31mb c"),
    ],
)
def test_words_of_a_page_are_short_and_harmless(text: str, words: str) -> None:
    assert find_words(text) == words
