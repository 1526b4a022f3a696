"""The command line: `kubectl bst status | explain | approve | pause | resume | doctor`."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from balancedstream.core.printing import printable
from balancedstream.errors import BalancedStreamError
from balancedstream.version import __version__
from balancedstream_operator.api.resource import API_VERSION, KIND, Manifest, refuse
from balancedstream_operator.api.schema import write
from balancedstream_operator.api.status import read_status
from balancedstream_operator.kubectl.actions import Patience, approve, pause
from balancedstream_operator.kubectl.connection import Connection
from balancedstream_operator.kubectl.diagnosis import diagnose
from balancedstream_operator.kubectl.doctor import Doctor
from balancedstream_operator.kubectl.kubeconfig import Choice
from balancedstream_operator.kubectl.output import complain, finish, prepare, say, say_json
from balancedstream_operator.kubectl.screens import show_decisions, show_diagnosis, show_findings

EXIT_FOUND = 1
"""The command did its work: `doctor` found a problem, or the operator refused an approval."""

EXIT_ERROR = 2
"""The command could not do what it was asked for; standard error says why."""

EXIT_INTERRUPTED = 130
"""Ctrl-C, as shells count it; what was asked for may stand."""

TIMEOUT_S = 60.0

MIN_COLUMNS = 30
"""A terminal that says it has fewer does not know."""

_NAME = re.compile("[a-z0-9]([-.a-z0-9]*[a-z0-9])?")

_FLAGS = {
    "namespace": "of the streams",
    "kubeconfig": "a file, instead of KUBECONFIG",
    "context": "of the kubeconfig",
    "cluster": "of the kubeconfig",
    "user": "of the kubeconfig",
    "acts_as": "a user to impersonate",
    "as_uid": "of whom to impersonate",
}
"""Options of kubectl, and what each names."""

_SPELLED = {"acts_as": "as"}
"""Options whose name is a word of Python."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; whatever happens, it ends with one sentence, never with a stack trace."""
    prepare()
    try:
        arguments = _read_arguments(argv)
        connection = Connection(_read_choice(arguments))
        arguments.namespace = arguments.namespace or connection.namespace
        status: int = arguments.command(connection, arguments)
    except BalancedStreamError as error:
        complain(f"error: {error}")
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except SystemExit:
        finish()
        raise
    except Exception as error:
        complain(f"error: {_describe_defect(error)}")
        return EXIT_ERROR
    return status


def _describe_defect(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}, line {last.lineno}"
    return (
        f"{type(error).__name__}: {error} ({where}). This is a defect of kubectl bst "
        f"{__version__}; streams run on as they are. Please report it"
    )


def _read_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    given = argparse.Namespace(output=None, as_group=None, **dict.fromkeys(_FLAGS))
    arguments = _build_parser().parse_args(argv, given)
    name = getattr(arguments, "name", "")
    if name is not None and not _NAME.fullmatch(name):
        refuse("NAME", f"{name!r} is no name of a BalancedStream")
    if arguments.namespace and not _NAME.fullmatch(arguments.namespace):
        refuse("--namespace", f"{arguments.namespace!r} is no name of a namespace")
    if name and getattr(arguments, "all_namespaces", False):
        refuse("--all-namespaces", "one stream is in one namespace; give NAME with --namespace")
    return arguments


def _read_choice(arguments: argparse.Namespace) -> Choice:
    return Choice(
        kubeconfig=arguments.kubeconfig or "",
        context=arguments.context or "",
        cluster=arguments.cluster or "",
        user=arguments.user or "",
        acts_as=arguments.acts_as or "",
        groups=tuple(arguments.as_group or ()),
        uid=arguments.as_uid or "",
    )


def _read_seconds(text: str) -> float:
    """A time to wait, as kubectl takes it.

    >>> _read_seconds("90"), _read_seconds("2m")
    (90.0, 120.0)
    """
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)(s|m|h)?", text)
    if not found:
        message = f"{text!r} is no time, such as 90, 90s or 2m"
        raise argparse.ArgumentTypeError(message)
    return float(found[1]) * {"m": 60.0, "h": 3600.0}.get(found[2], 1.0)


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Options of kubectl; where they stand before and after the command, after wins."""
    for name, help_ in _FLAGS.items():
        option = f"--{_SPELLED.get(name, name).replace('_', '-')}"
        names = ("-n", option) if name == "namespace" else (option,)
        metavar = option.lstrip("-").upper()
        parser.add_argument(
            *names, dest=name, metavar=metavar, help=help_, default=argparse.SUPPRESS
        )
    parser.add_argument(
        "--as-group",
        action="append",
        metavar="AS-GROUP",
        help="a group of whom to impersonate; repeatable",
        default=argparse.SUPPRESS,
    )
    parser.add_argument(
        "-o", "--output", choices=["json"], help="for programs", default=argparse.SUPPRESS
    )


def _build_parser() -> argparse.ArgumentParser:
    several = argparse.ArgumentParser(add_help=False)
    several.add_argument("name", nargs="?", metavar="NAME", help="of one stream only")
    several.add_argument("-A", "--all-namespaces", action="store_true", help="all streams")
    one = argparse.ArgumentParser(add_help=False)
    one.add_argument("name", metavar="NAME", help="of the stream")
    waiting = argparse.ArgumentParser(add_help=False)
    waiting.add_argument(
        "--timeout",
        type=_read_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="to wait for the operator's answer, such as 90, 90s or 2m (default: %(default)g)",
    )

    parser = argparse.ArgumentParser(
        prog="kubectl bst",
        allow_abbrev=False,
        description="BalancedStreams: what is wrong, what is being done, and what to do.",
    )
    _add_common(parser)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: object, help_: str, *parents: argparse.ArgumentParser) -> Any:
        command = commands.add_parser(name, help=help_, parents=parents, allow_abbrev=False)
        _add_common(command)
        command.set_defaults(command=run)
        return command

    add("status", _show_status, "what is wrong, what is being done, what to do", several)
    add("explain", _explain, "the last decisions, why, and what was measured after them", one)
    command = add("approve", _approve, "carry out what mode Advise proposes, once", one, waiting)
    command.add_argument(
        "proposal", nargs="?", default="", metavar="PROPOSAL", help="its id; default: that of now"
    )
    command = add("pause", _pause, "hold a stream as it is", one, waiting)
    command.add_argument("--reason", default="true", metavar="TEXT", help="for who finds it paused")
    add("resume", _set_pause, "balance and scale a paused stream again", one, waiting)
    add("doctor", _examine, "check the installation and the streams, a line a finding", several)
    return parser


def _find_streams(connection: Connection, arguments: argparse.Namespace) -> list[Manifest]:
    if arguments.name:
        return [connection.get_stream(arguments.namespace, arguments.name)]
    namespace = "" if arguments.all_namespaces else arguments.namespace
    found = connection.find(API_VERSION, KIND, namespace)
    return sorted(found, key=lambda s: (s["metadata"]["namespace"], s["metadata"]["name"]))


def _width() -> int:
    return max(shutil.get_terminal_size().columns, MIN_COLUMNS)


def _show_status(connection: Connection, arguments: argparse.Namespace) -> int:
    streams = _find_streams(connection, arguments)
    found = [diagnose(stream, time.time()) for stream in streams]
    if arguments.output:
        say_json([asdict(one) for one in found])
        return 0
    if not found:
        where = "" if arguments.all_namespaces else " in this namespace"
        complain(f"There is no BalancedStream{where}.")
        return 0
    say("\n\n".join(show_diagnosis(one, _width()) for one in found))
    return 0


def _explain(connection: Connection, arguments: argparse.Namespace) -> int:
    stream = connection.get_stream(arguments.namespace, arguments.name)
    if arguments.output:
        say_json([write(made) for made in read_status(stream).decisions])
    else:
        say(show_decisions(stream, _width()))
    return 0


def _approve(connection: Connection, arguments: argparse.Namespace) -> int:
    answer = approve(
        connection,
        arguments.namespace,
        arguments.name,
        arguments.proposal,
        Patience(arguments.timeout),
    )
    if arguments.output:
        say_json(write(answer))
    else:
        say(printable(answer.message))
    return 0 if answer.result == "CarriedOut" else EXIT_FOUND


def _pause(connection: Connection, arguments: argparse.Namespace) -> int:
    reason = arguments.reason.strip()
    if reason.lower() in {"", "false"}:
        refuse("--reason", f"{arguments.reason!r} does not pause a stream; say why it is paused")
    return _set_pause(connection, arguments, reason)


def _set_pause(connection: Connection, arguments: argparse.Namespace, reason: str = "") -> int:
    namespace, name = arguments.namespace, arguments.name
    message = pause(connection, namespace, name, reason, Patience(arguments.timeout))
    if arguments.output:
        say_json({"paused": bool(reason), "message": message})
    else:
        say(printable(f"{namespace}/{name}: {message if reason else 'resumed'}"))
    return 0


def _examine(connection: Connection, arguments: argparse.Namespace) -> int:
    streams = _find_streams(connection, arguments)
    namespace = "" if arguments.all_namespaces else arguments.namespace
    findings = Doctor(connection, time.time()).examine(namespace, streams)
    if arguments.output:
        say_json([asdict(found) for found in findings])
    else:
        say(show_findings(findings, _width()))
    return EXIT_FOUND if any(found.level == "problem" for found in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
