"""Reads a policy as users write it: as a YAML file, or as settings of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from balancedstream.core.policy import Policy, knobs, parse
from balancedstream.errors import InvalidInputError


def read_policy(path: Path | None, knob_texts: Mapping[str, str] | None = None) -> Policy:
    """The policy in a file, changed by single knobs.

    Args:
        path: of a YAML file, as `balancedstream policy` prints it; None for the defaults.
        knob_texts: path of a knob, such as `scaling.max_executors`, to its value as text.

    Raises:
        InvalidInputError: the file cannot be read, or the policy is none; the message names the
            field.
    """
    content = _read_yaml(path) if path else {}
    # Checked first, so that what is wrong in the file is said of the file.
    try:
        policy = parse(content)
    except InvalidInputError as error:
        message = f"{error} (in {path})"
        raise InvalidInputError(message) from error
    if not knob_texts:
        return policy
    sections = {name: dict(given or {}) for name, given in content.items()}
    known = {knob.path for knob in knobs()}
    for knob, text in knob_texts.items():
        section, _, name = knob.partition(".")
        if knob not in known:
            message = f"{knob}: no such knob, `balancedstream policy` prints all"
            raise InvalidInputError(message)
        sections.setdefault(section, {})[name] = _parse_value(text)
    return parse(sections)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        # PyYAML's message has several lines.
        message = f"policy: {path} is not YAML: {' '.join(str(error).split())}"
        raise InvalidInputError(message) from error
    except (OSError, UnicodeDecodeError) as error:
        message = f"policy: {path} cannot be read ({error})"
        raise InvalidInputError(message) from error
    return {} if content is None else content


def _parse_value(text: str) -> object:
    """A number if it is one; whatever else it is, `parse` checks it."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
