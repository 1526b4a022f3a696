"""What servers, and proxies before them, say instead of an answer, in words for people: pure.

The words of the operator's own server are shown. Of one that a stream names only the status is, and
what that means: whoever names a server must not read by the operator what they could not read
themselves.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from balancedstream.core.printing import printable

SHOWN_CHARACTERS = 200

_HIDDEN = re.compile(r"<(script|style|head)\b.*?(</\1\s*>|\Z)|<!--.*?(-->|\Z)", re.DOTALL | re.I)
_TAG = re.compile(r"<[^<>]*>")

_ADVICE = {
    401: "it wants other credentials",
    403: "it wants other credentials, or a proxy before it does not let this request through",
    404: "the path of the URL may be another one, such as with /prometheus at its end",
    405: "a proxy before it takes no GET of a query",
    407: "a proxy before it wants credentials",
    413: "a proxy before it takes no query that is so long",
    414: "a proxy before it takes no URL that is so long",
    429: "it is asked too often",
    431: "a proxy before it takes no headers that are so long",
    501: "a proxy before it takes no GET of a query",
    502: "a proxy before it does not reach it",
    503: "it, or a proxy before it, is not ready",
    504: "a proxy before it had no answer in time",
}


def explain_status(status: int, headers: Mapping[str, str], body: bytes, *, own: bool) -> str:
    """What an answer with another status than 200 means.

    The words of the `body` are shown if the server is the operator's `own`.

    >>> explain_status(405, {}, b"<h1>no GET here</h1>", own=True)
    'it answered with status 405 (Method Not Allowed): a proxy before it takes no GET of a query. \
It says: no GET here'
    """
    try:
        name = f" ({HTTPStatus(status).phrase})"
    except ValueError:
        name = ""
    said = f"it answered with status {status}{name}"
    if 300 <= status < 400:
        where = _describe_place(headers.get("Location", "")) if own else ""
        said += f": it sends{where} elsewhere, which is not followed: name the URL that answers"
    elif status in _ADVICE:
        said += f": {_ADVICE[status]}"
    words = find_words(body.decode("utf-8", "replace")) if own else ""
    return f"{said}. It says: {words}" if words else said


def find_words(text: str) -> str:
    """The first words of a page, or of a text, without what a terminal would act on.

    >>> find_words("<html><head><title>x</title></head><p>Please&nbsp;log <b>in</b>!")
    'Please log in !'
    """
    plain = html.unescape(_TAG.sub(" ", _HIDDEN.sub(" ", text)))
    words = " ".join(printable(plain).split())
    return words[:SHOWN_CHARACTERS]


def _describe_place(location: str) -> str:
    """Where a redirect leads to, without what may be secret in it."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return ""
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else ""
    found = find_words(f"{shown}{parts.path}")
    return f" to {found}," if found else ""
