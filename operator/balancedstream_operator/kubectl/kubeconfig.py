"""Which cluster and user a kubeconfig names, by the rules of kubectl.

The client for Python has other rules: it takes the current context of the last file, wants one
where `--context` is given, and passes over `as` and over a credential plugin that fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from balancedstream_operator.errors import NoClusterError

_SECTIONS = {"clusters": "cluster", "contexts": "context", "users": "user"}
"""The lists of a kubeconfig, and where each of their entries has what it says."""

_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Paths, which are relative to the kubeconfig that has them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the command line says of the cluster and the user; empty for what the kubeconfig says.

    `kubeconfig` is a file; `acts_as`, `groups` and `uid` say whom to impersonate.
    """

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    user: str = ""
    acts_as: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A cluster, and how to come to it.

    `cluster` and `user` are entries of the kubeconfig, empty for no user; `headers` impersonate.
    """

    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    user_name: str
    namespace: str
    headers: tuple[tuple[str, str], ...] = ()


def choose(choice: Choice, environment: Mapping[str, str]) -> Chosen | None:
    """The cluster that kubectl would talk to; None if no kubeconfig names any.

    KUBECONFIG in `environment` names files, and HOME the folder of the usual one.

    Raises:
        NoClusterError: what is named is not there, or a file is no kubeconfig.
    """
    paths = _find_files(choice, environment)
    merged = _merge(paths)
    if not any(merged[section] for section in _SECTIONS) and not (choice.context or choice.cluster):
        return None
    name = choice.context or merged["current-context"]
    context: Mapping[str, Any] = {}
    if name:
        context = _find(merged, "contexts", name, "--context" if choice.context else "")
    elif not choice.cluster:
        known = ", ".join(sorted(merged["contexts"])) or "none"
        message = (
            "no context is chosen: kubectl config use-context NAME, or --context NAME. The "
            f"kubeconfig has: {known}"
        )
        raise NoClusterError(message)
    about = f"context {name}"
    cluster_name = choice.cluster or _text(context, "cluster", about)
    cluster = _find(merged, "clusters", cluster_name, "--cluster" if choice.cluster else about)
    server = _text(cluster, "server", f"cluster {cluster_name}")
    if not server.startswith(("http://", "https://")):
        message = f"cluster {cluster_name} of the kubeconfig has no server with https:// or http://"
        raise NoClusterError(message)
    user_name = choice.user or _text(context, "user", about)
    user: Mapping[str, Any] = {}
    if user_name:
        user = _find(merged, "users", user_name, "--user" if choice.user else about)
    return Chosen(
        cluster,
        user,
        user_name,
        _text(context, "namespace", about) or "default",
        tuple(impersonate(choice, user, f"user {user_name}")),
    )


def _find_files(choice: Choice, environment: Mapping[str, str]) -> list[Path]:
    if choice.kubeconfig:
        path = Path(choice.kubeconfig)
        if not path.exists():
            message = f"--kubeconfig: there is no file {choice.kubeconfig}"
            raise NoClusterError(message)
        return [path]
    named = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if not named:
        home = environment.get("HOME") or os.path.expanduser("~")
        named = [os.path.join(home, ".kube", "config")]
    return [path for path in map(Path, dict.fromkeys(named)) if path.exists()]


def _merge(paths: Iterable[Path]) -> dict[str, Any]:
    """All files as one: what is named first holds."""
    merged: dict[str, Any] = {"current-context": "", **{section: {} for section in _SECTIONS}}
    for path in paths:
        content = _read(path)
        merged["current-context"] = merged["current-context"] or _text(
            content, "current-context", str(path)
        )
        for section, inner in _SECTIONS.items():
            for entry in _list(content, section, path):
                name = _text(entry, "name", f"{section} of {path}")
                said = entry.get(inner) or {}
                if not isinstance(said, Mapping):
                    raise _no_kubeconfig(path, f"{inner} of {name} is no map")
                merged[section].setdefault(name, _resolve(said, path.parent))
    return merged


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise _no_kubeconfig(path, error.strerror or str(error)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise _no_kubeconfig(path, f"it is not YAML{where}") from error
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise _no_kubeconfig(path, "it is no map of clusters, contexts and users")
    return content


def _list(content: Mapping[str, Any], section: str, path: Path) -> list[Mapping[str, Any]]:
    entries = content.get(section) or []
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise _no_kubeconfig(path, f"{section} is no list of maps")
    return entries


def _resolve(said: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """An entry with absolute paths; a program without a slash is looked for on the PATH."""
    found = dict(said)
    for name in _PATHS:
        if isinstance(found.get(name), str) and found[name]:
            found[name] = str(Path(folder, found[name]).absolute())
    plugin = found.get("exec")
    if isinstance(plugin, Mapping) and os.sep in str(plugin.get("command", "")):
        found["exec"] = {**plugin, "command": str(Path(folder, plugin["command"]).absolute())}
    return found


def _find(merged: Mapping[str, Any], section: str, name: str, named_by: str) -> Mapping[str, Any]:
    entries: Mapping[str, Mapping[str, Any]] = merged[section]
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        what = f"{_SECTIONS[section]} {name or '(without a name)'}"
        by = f", which {named_by} names," if named_by else ""
        message = (
            f"{what}{by} is not in the kubeconfig, which has: {known}. Check KUBECONFIG and "
            "--context"
        )
        raise NoClusterError(message)
    return entries[name]


def _text(entry: Mapping[str, Any], name: str, where: str) -> str:
    value = entry.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        message = f"the kubeconfig cannot be used: {name} of {where} is no text"
        raise NoClusterError(message)
    return value


def _texts(values: object, name: str, where: str) -> tuple[str, ...]:
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        message = f"the kubeconfig cannot be used: {name} of {where} is no list of texts"
        raise NoClusterError(message)
    return tuple(values)


def impersonate(choice: Choice, user: Mapping[str, Any], where: str) -> Iterable[tuple[str, str]]:
    """The headers that impersonate whom the command line, or else the kubeconfig, names.

    Raises:
        NoClusterError: a group has no user, or a field of the user has another type.
    """
    acts_as = choice.acts_as or _text(user, "as", where)
    groups = choice.groups or _texts(user.get("as-groups"), "as-groups", where)
    uid = choice.uid or _text(user, "as-uid", where)
    if not acts_as:
        if choice.groups or choice.uid:
            message = "--as-group and --as-uid need --as, the user who is in that group"
            raise NoClusterError(message)
        return
    yield "Impersonate-User", acts_as
    yield from (("Impersonate-Group", group) for group in groups)
    if uid:
        yield "Impersonate-Uid", uid
    extra = user.get("as-user-extra") or {}
    if not isinstance(extra, Mapping):
        message = f"the kubeconfig cannot be used: as-user-extra of {where} is no object"
        raise NoClusterError(message)
    for name, values in extra.items():
        for value in _texts(values, f"as-user-extra.{name}", where):
            yield f"Impersonate-Extra-{name}", value


def _no_kubeconfig(path: Path, why: str) -> NoClusterError:
    return NoClusterError(f"{path} is no kubeconfig: {why}. Check KUBECONFIG and --kubeconfig")
