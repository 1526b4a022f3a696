"""The command line: `kubectl bst status | explain | approve | pause | resume | doctor`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from balancedstream.errors import BalancedStreamError, InvalidInputError
from balancedstream.version import __version__
from balancedstream_operator.plugin.acting import Patience, approve, pause
from balancedstream_operator.plugin.connecting import Connection
from balancedstream_operator.plugin.diagnosing import diagnose
from balancedstream_operator.plugin.doctor import Doctor
from balancedstream_operator.plugin.screens import (
    show_decisions,
    show_diagnosis,
    show_findings,
)
from balancedstream_operator.resource import API_VERSION, KIND, Manifest

EXIT_FOUND = 1
"""The command did its work: `doctor` found a problem, or the operator refused an approval."""

EXIT_ERROR = 2
"""The command could not do what it was asked for; standard error says why."""

TIMEOUT_S = 60.0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; errors of ours end it with one sentence, never with a stack trace."""
    given = argparse.Namespace(namespace=None, context=None, output=None)
    arguments = _build_parser().parse_args(argv, given)
    try:
        connection = Connection(arguments.context)
        status: int = arguments.command(connection, arguments)
    except BalancedStreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_ERROR
    return status


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Options that kubectl's users put before or after the command; where both are, after wins."""
    for names, help_ in (
        (("-n", "--namespace"), "of the streams"),
        (("--context",), "of the kubeconfig"),
    ):
        name = names[-1].lstrip("-")
        parser.add_argument(*names, metavar=name.upper(), help=help_, default=argparse.SUPPRESS)
    parser.add_argument(
        "-o", "--output", choices=["json"], help="for programs", default=argparse.SUPPRESS
    )


def _build_parser() -> argparse.ArgumentParser:
    several = argparse.ArgumentParser(add_help=False)
    several.add_argument("name", nargs="?", default="", metavar="NAME", help="of one stream only")
    several.add_argument("-A", "--all-namespaces", action="store_true", help="all streams")
    one = argparse.ArgumentParser(add_help=False)
    one.add_argument("name", metavar="NAME", help="of the stream")
    waiting = argparse.ArgumentParser(add_help=False)
    waiting.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="to wait for the operator's answer (default: %(default)g)",
    )

    parser = argparse.ArgumentParser(
        prog="kubectl bst",
        description="BalancedStreams: what is wrong, what is being done, and what to do.",
    )
    _add_common(parser)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: object, help_: str, *parents: argparse.ArgumentParser) -> Any:
        command = commands.add_parser(name, help=help_, parents=parents)
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
    add("resume", _resume, "balance and scale a paused stream again", one, waiting)
    add("doctor", _examine, "check the installation and the streams, a line a finding", several)
    return parser


def _find_streams(connection: Connection, arguments: argparse.Namespace) -> list[Manifest]:
    namespace = arguments.namespace or connection.namespace
    if arguments.name:
        return [connection.get_stream(namespace, arguments.name)]
    found = connection.find(API_VERSION, KIND, "" if arguments.all_namespaces else namespace)
    return sorted(found, key=lambda s: (s["metadata"]["namespace"], s["metadata"]["name"]))


def _print_json(content: object) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))


def _width() -> int:
    return shutil.get_terminal_size().columns


def _show_status(connection: Connection, arguments: argparse.Namespace) -> int:
    streams = _find_streams(connection, arguments)
    found = [diagnose(stream, time.time()) for stream in streams]
    if arguments.output:
        _print_json([asdict(one) for one in found])
        return 0
    if not found:
        where = "" if arguments.all_namespaces else " in this namespace"
        print(f"There is no BalancedStream{where}.", file=sys.stderr)
    print("\n\n".join(show_diagnosis(one, _width()) for one in found))
    return 0


def _explain(connection: Connection, arguments: argparse.Namespace) -> int:
    stream = connection.get_stream(arguments.namespace or connection.namespace, arguments.name)
    if arguments.output:
        _print_json((stream.get("status") or {}).get("decisions") or [])
    else:
        print(show_decisions(stream, _width()))
    return 0


def _approve(connection: Connection, arguments: argparse.Namespace) -> int:
    answer = approve(
        connection,
        arguments.namespace or connection.namespace,
        arguments.name,
        arguments.proposal,
        Patience(arguments.timeout),
    )
    if arguments.output:
        _print_json(answer)
    else:
        print(answer.get("message", ""))
    return 0 if answer.get("result") == "CarriedOut" else EXIT_FOUND


def _pause(connection: Connection, arguments: argparse.Namespace) -> int:
    reason = arguments.reason.strip()
    if reason.lower() in {"", "false"}:
        message = f"--reason: {arguments.reason!r} does not pause a stream; say why it is paused"
        raise InvalidInputError(message)
    return _set_pause(connection, arguments, reason)


def _resume(connection: Connection, arguments: argparse.Namespace) -> int:
    return _set_pause(connection, arguments, "")


def _set_pause(connection: Connection, arguments: argparse.Namespace, reason: str) -> int:
    namespace, name = arguments.namespace or connection.namespace, arguments.name
    message = pause(connection, namespace, name, reason, Patience(arguments.timeout))
    if arguments.output:
        _print_json({"paused": bool(reason), "message": message})
    else:
        print(f"{namespace}/{name}: {message if reason else 'resumed'}")
    return 0


def _examine(connection: Connection, arguments: argparse.Namespace) -> int:
    streams = _find_streams(connection, arguments)
    namespace = "" if arguments.all_namespaces else arguments.namespace or connection.namespace
    findings = Doctor(connection, time.time()).examine(namespace, streams)
    if arguments.output:
        _print_json([asdict(found) for found in findings])
    else:
        print(show_findings(findings, _width()))
    return EXIT_FOUND if any(found.level == "problem" for found in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
