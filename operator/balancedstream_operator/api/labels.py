"""Labels, annotations and pull secrets that a spec gives to all objects of a stream: pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from balancedstream_operator.api.resource import GROUP, NAME, refuse

_MAX_WORD = 63
_MAX_PREFIX = 253
"""Maximum number of characters: of a label's name and value, and of the domain before the name."""

_WORD = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_LABEL = f"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_WORD}=({_WORD})?"

_RESERVED = re.compile(
    rf"{re.escape(GROUP)}/.*|app\.kubernetes\.io/(name|instance|managed-by)|"
    r"spark-(role|version|app-[a-z]+|exec-[a-z]+)"
)


def is_label(key: str, value: str = "") -> bool:
    """Whether the API server accepts a key and a value as a label.

    The key of an annotation has the same form.

    >>> is_label("example.com/team", "shop"), is_label("team", "-")
    (True, False)
    """
    prefix, slash, name = key.rpartition("/")
    fits = len(name) <= _MAX_WORD and len(value) <= _MAX_WORD and len(prefix) <= _MAX_PREFIX
    return fits and bool(re.fullmatch(_LABEL, f"{prefix}{slash}{name}={value}", re.ASCII))


def check_metadata(labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
    """Refuses invalid labels and annotations, and names that the operator or Spark uses.

    Raises:
        InvalidInputError: a label or an annotation is refused; the message names the field.

    >>> check_metadata({"example.com/team": "shop"}, {"owner": "the web team"})
    """
    for key, value in labels.items():
        if not is_label(key, value):
            refuse("spec.labels", f"{key}={value} is no label")
    for key in annotations:
        if not is_label(key):
            refuse("spec.annotations", f"{key!r} is no name of an annotation")
    for name, keys in (("labels", labels), ("annotations", annotations)):
        for key in keys:
            if _RESERVED.fullmatch(key):
                refuse(f"spec.{name}.{key}", "the operator or Spark sets it")


def check_pull_secrets(names: Sequence[str]) -> None:
    """Refuses invalid and repeated names of Secrets.

    Raises:
        InvalidInputError: a name is refused; the message names the field.
    """
    for name in names:
        if not re.fullmatch(NAME, name) or names.count(name) > 1:
            refuse("spec.imagePullSecrets", f"{name!r} is no name of a Secret, or appears twice")
