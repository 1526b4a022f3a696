"""Reads a policy as users write it: as a YAML file, or as settings of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from balancedstream.core.policy import Policy, knobs, name_field, parse
from balancedstream.core.removed import REMOVED
from balancedstream.errors import InvalidInputError

MAX_BYTES = 2**16
"""A policy with all knobs, and comments, has a twentieth of it."""

_MOST = 2**63
"""No knob is as large, and Python does not write all numbers that it reads."""


_LISTS = frozenset(knob.path for knob in knobs() if knob.is_list)
"""Paths of the knobs that are lists of mappings."""


class _Loader(yaml.SafeLoader):
    """Reads no dates: a policy has none, and Python does not know all that YAML takes for one."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as PyYAML has it
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


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
    known = {knob.path for knob in knobs()} | {knob.path for knob in REMOVED}
    for knob, text in knob_texts.items():
        section, _, name = knob.partition(".")
        if knob not in known:
            message = f"{knob}: no such knob, `balancedstream policy` prints all"
            raise InvalidInputError(message)
        sections.setdefault(section, {})[name] = _parse_value(knob, text)
    return parse(sections)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            message = f"policy: has more than {MAX_BYTES} bytes, and so is something else"
            raise InvalidInputError(message)
        return _read_sections(yaml.compose(content.decode(), _Loader))
    except (OSError, UnicodeDecodeError) as error:
        message = f"policy: {path} cannot be read ({error})"
        raise InvalidInputError(message) from error
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        message = f"policy: is not YAML{where}: {error.problem or error.context} (in {path})"
        raise InvalidInputError(message) from error
    except yaml.YAMLError as error:
        # PyYAML's message has several lines.
        message = f"policy: is not YAML: {' '.join(str(error).split())} (in {path})"
        raise InvalidInputError(message) from error
    except RecursionError as error:
        message = f"policy: has brackets in brackets, instead of mappings of values (in {path})"
        raise InvalidInputError(message) from error
    except InvalidInputError as error:
        message = f"{error} (in {path})"
        raise InvalidInputError(message) from error


def _read_sections(root: yaml.Node | None) -> dict[str, Any]:
    """Section name to its fields; what is no mapping stays as it is, for `parse` to refuse."""
    if root is None or _is_null(root):
        return {}
    sections = _read_fields("policy", root)
    return {
        name: None
        if _is_null(node)
        else {
            field: _read_value(f"{name_field(name)}.{name_field(field)}", value)
            for field, value in _read_fields(name_field(name), node).items()
        }
        for name, node in sections.items()
    }


def _read_fields(path: str, node: yaml.Node) -> dict[str, yaml.Node]:
    """The entries of a mapping. PyYAML itself takes the last one of a name that is there twice."""
    if not isinstance(node, yaml.MappingNode):
        what = "a mapping of sections" if path == "policy" else "a mapping of its fields"
        message = f"{path}: must be {what}, not {_describe(node)}"
        raise InvalidInputError(message)
    entries: dict[str, yaml.Node] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            message = f"{path}: the name of a field must be a word, not {_describe(key)}"
            raise InvalidInputError(message)
        name = f"{path}.{name_field(key.value)}".removeprefix("policy.")
        if key.value in entries:
            message = f"{name}: is there twice, the second time in line {key.start_mark.line + 1}"
            raise InvalidInputError(message)
        entries[key.value] = value
    return entries


def _read_value(path: str, node: yaml.Node) -> object:
    if isinstance(node, yaml.SequenceNode) and path in _LISTS:
        return [_read_item(f"{path}[{i}]", item) for i, item in enumerate(node.value)]
    if not isinstance(node, yaml.ScalarNode):
        message = f"{path}: must be a single value, not {_describe(node)}"
        raise InvalidInputError(message)
    try:
        value = _Loader("").construct_object(node)
    except (ValueError, LookupError, yaml.YAMLError):
        # As of a number with more digits than Python reads, or a tag that does not fit.
        return node.value
    is_number = isinstance(value, int) and abs(value) < _MOST
    return value if value is None or is_number or isinstance(value, float) else node.value


def _read_item(path: str, node: yaml.Node) -> object:
    """An item of a list; what is no mapping stays as it is, for `parse` to refuse."""
    if not isinstance(node, yaml.MappingNode):
        return _read_value(path, node)
    entries = _read_fields(path, node)
    return {name: _read_value(f"{path}.{name_field(name)}", v) for name, v in entries.items()}


def _is_null(node: yaml.Node) -> bool:
    return node.tag == "tag:yaml.org,2002:null"


def _describe(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return f"{node.value!r:.80}"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


def _parse_value(knob: str, text: str) -> object:
    """A number or a list if it is one; whatever else it is, `parse` checks it."""
    try:
        node = yaml.compose(text, _Loader)
    except (yaml.YAMLError, RecursionError):
        return text
    if isinstance(node, yaml.ScalarNode) or (node is not None and knob in _LISTS):
        return _read_value(knob, node)
    return text
