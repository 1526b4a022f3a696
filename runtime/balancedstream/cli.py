"""The command line, `balancedstream COMMAND`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO, get_args

from balancedstream.core.decisions import decide
from balancedstream.core.keys.text import KeyNaming
from balancedstream.core.observations import Observation, parse_observation
from balancedstream.core.policy import Policy, knobs, parse
from balancedstream.core.printing import printable
from balancedstream.core.removed import describe_removed
from balancedstream.core.sizing import parse_mib
from balancedstream.errors import BalancedStreamError, InvalidInputError, MissingPackageError
from balancedstream.estimate.command import STANDARD_OUTPUT, estimate
from balancedstream.launch.policies import read_policy
from balancedstream.launch.saying import say
from balancedstream.launch.sidecar import serve_drivers
from balancedstream.record.wording import plural
from balancedstream.version import __version__, say_install

PLUGIN_CLASS = "io.balancedstream.Plugin"
PLUGIN_JAR = Path(__file__).with_name("spark-plugin.jar")
"""`spark-plugin/` has its sources; the wheel's build makes it."""

EXIT_ERROR = 2
"""The command could not do what it was asked for; standard error says why."""


MAX_DIGITS = 9
MAX_SHOWN = 40

HOW_TO_RECORD = (
    "`balancedstream run --record DIR` writes such files: DIR/observation-00001.json, and so on. "
    "The files of a report are none."
)

EXIT_BROKEN_PIPE = 141
"""As a shell reports a command that SIGPIPE ended, which Python does not let happen."""


class Parser(argparse.ArgumentParser):
    """Refuses an unknown option with the usage of its own command, not with that of all."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As usual, but nothing is left over."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """As usual, but an error is no output where standard error is closed."""
        if sys.stderr is None:
            sys.exit(EXIT_ERROR)
        super().error(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; what goes wrong ends it with one sentence, never with a stack trace."""
    _write_any_text(sys.stdout, sys.stderr)
    try:
        try:
            arguments = _build_parser().parse_args(argv)
            status: int = arguments.command(arguments)
        finally:
            if sys.stdout is not None:  # it is None where the shell closed it
                sys.stdout.flush()
    except BalancedStreamError as error:
        say(str(error))
        return EXIT_ERROR
    except BrokenPipeError:
        # Who read has read enough, as `head` does.
        _discard_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        # Files have been read by now, by whom an error of theirs is said.
        _discard_output()
        say(f"the output cannot be written ({error})")
        return EXIT_ERROR
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return EXIT_ERROR
    return status


def _write_any_text(*streams: TextIO) -> None:
    """Makes streams show the code of a character that their encoding lacks."""
    for stream in streams:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Python flushes standard output once more when it ends, and would say that it cannot."""
    with suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="balancedstream",
        description="Keeps PySpark streaming jobs balanced and right-sized while they run.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run a PySpark script, balanced",
        description="Runs a PySpark script as Python does, and balances every query that it "
        "starts. The exit status is the script's own; 2 if the script was not started.",
    )
    run.add_argument(
        "--local",
        metavar="MIN:MAX",
        help="start that many executor processes on this machine; the number follows the load; N "
        "is the same as N:N. Each has spark.executor.cores cores (default: 1) and "
        "spark.executor.memory (default: 1g)",
    )
    run.add_argument(
        "--policy", type=Path, metavar="FILE", help="YAML, as `balancedstream policy` prints it"
    )
    run.add_argument(
        "--baseline",
        type=_parse_count,
        default=0,
        metavar="BATCHES",
        help="measure this many batches of each query, at least 5, after its first, before "
        "anything moves or scales, so that the report can compare before with after; not with "
        "--stream (default: %(default)s)",
    )
    run.add_argument(
        "--report", type=Path, metavar="DIR", help="write report.html and report.json there"
    )
    run.add_argument(
        "--record", type=Path, metavar="DIR", help="keep what was seen there, for `explain`"
    )
    run.add_argument(
        "--metrics-port",
        type=_parse_count,
        metavar="PORT",
        help="serve /metrics for Prometheus there, and /report, a page that shows the run so far; "
        "0 picks a free port",
    )
    run.add_argument(
        "--metrics-address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to serve /metrics on; 0.0.0.0 for all, IPv6 included (default: %(default)s)",
    )
    run.add_argument(
        "--hot-keys",
        choices=get_args(KeyNaming),
        default="plain",
        help="how /metrics names hot keys (default: %(default)s)",
    )
    run.add_argument(
        "--stream",
        metavar="NAMESPACE/NAME",
        help="in a driver pod: follow the plans that the operator makes for this BalancedStream",
    )
    run.add_argument(
        "-m", action="store_true", dest="is_module", help="APP is a module, as of `python -m`"
    )
    run.add_argument(
        "app",
        nargs=argparse.PARSER,
        metavar="APP",
        help="the script, or a folder or archive with a __main__.py; then its own arguments",
    )
    run.set_defaults(command=_run)

    foretell = commands.add_parser(
        "estimate",
        help="say what balancing would bring a job, from Spark's event logs of it",
        description="Reads Spark's event logs of Structured Streaming applications, and says for "
        "each query how uneven its executors were, how long batches would have taken if balanced, "
        "and what limits them; and how many executors would have been enough. Needs no Spark. The "
        "exit status is 2 if a log could not be used.",
    )
    foretell.add_argument(
        "logs",
        nargs="+",
        type=Path,
        metavar="EVENT-LOG",
        help="a file of spark.eventLog.dir, or a folder eventlog_v2_... in it; that of an "
        "application that still runs, too",
    )
    foretell.add_argument(
        "--json",
        nargs="?",
        type=Path,
        const=STANDARD_OUTPUT,
        metavar="FILE",
        help="write the estimate as JSON to this file, which ends in .json; without FILE, print "
        "JSON instead of text",
    )
    foretell.set_defaults(command=_estimate)

    explain = commands.add_parser("explain", help="say what is decided on an observation, and why")
    explain.add_argument("observation", type=Path, metavar="OBSERVATION.json")
    explain.add_argument("--policy", type=Path, metavar="FILE", help="instead of the recorded one")
    explain.set_defaults(command=_explain)

    show = commands.add_parser("policy", help="print every knob with its default, as a policy file")
    show.set_defaults(command=_print_policy)

    repartition = commands.add_parser(
        "repartition",
        help="change the number of state partitions of a query that is stopped",
        description="Has Spark (4.2 or newer) write the state in a query's checkpoint anew for "
        "another number of state partitions, and compares all of it with the state before. The "
        "query must be stopped; one that is seen to write is refused, but one that only waits for "
        "rows leaves no trace. If this is interrupted, the same command finishes it. The exit "
        "status is 2 if it was refused or not finished, and a sentence says what is there.",
    )
    repartition.add_argument(
        "checkpoints",
        nargs="+",
        metavar="CHECKPOINT",
        help="the query's checkpointLocation, on this machine; of several, one after the other",
    )
    repartition.add_argument(
        "--partitions", type=_parse_count, metavar="N", help="state partitions wanted"
    )
    repartition.add_argument(
        "--undo",
        action="store_true",
        help="go back to the batch before, as long as the query has committed none since; only "
        "for checkpoints of format 2; with --partitions N only if that was to N, so that the same "
        "command may be typed again",
    )
    repartition.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and change nothing"
    )
    repartition.add_argument(
        "--sample-above",
        metavar="SIZE",
        help="of more state than this, such as 10g, compare a sample of the keys, and count all "
        "(default: compare all)",
    )
    repartition.set_defaults(command=_repartition)

    plugin = commands.add_parser(
        "plugin", help="print the options of spark-submit that balance any application"
    )
    plugin.set_defaults(command=_print_plugin)

    sidecar = commands.add_parser(
        "sidecar", help="in a driver's pod: balance the application for a plugin without a Python"
    )
    sidecar.add_argument(
        "folder", type=Path, metavar="FOLDER", help="the driver's spark.balancedstream.sidecar"
    )
    sidecar.set_defaults(command=lambda arguments: serve_drivers(arguments.folder))
    return parser


def _parse_count(text: str) -> int:
    # Python refuses to read thousands of digits, and argparse would show them all.
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        message = f"must be a whole number from 0 on, not {text[:MAX_SHOWN]!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _run(arguments: argparse.Namespace) -> NoReturn:
    app, *args = arguments.app[1:] if arguments.app[0] == "--" else arguments.app
    # `explain` and `policy` answer at once.
    try:
        from balancedstream.engine.session.local import LocalExecutors  # noqa: PLC0415
        from balancedstream.launch.run_options import RunOptions  # noqa: PLC0415
        from balancedstream.launch.running import run_app  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = (
            f"`run` needs the package {error.name}, which is not installed. Nothing was started. "
            f"Install it, {say_install('spark')}"
        )
        raise MissingPackageError(message) from error

    options = RunOptions(
        app=app,
        args=tuple(args),
        is_module=arguments.is_module,
        local=None if arguments.local is None else LocalExecutors.parse(arguments.local),
        policy=read_policy(arguments.policy),
        report_dir=arguments.report,
        record_dir=arguments.record,
        metrics_port=arguments.metrics_port,
        metrics_address=arguments.metrics_address,
        hot_keys=arguments.hot_keys,
        stream=arguments.stream,
        baseline_batches=arguments.baseline,
    )
    run_app(options)


def _repartition(arguments: argparse.Namespace) -> int:
    if arguments.partitions is None and not arguments.undo:
        message = "one of --partitions and --undo is needed. Nothing was changed."
        raise InvalidInputError(message)
    sample_above_bytes = None
    if arguments.sample_above is not None:
        try:
            sample_above_bytes = parse_mib(arguments.sample_above) * 1024**2
        except ValueError as error:
            message = f"--sample-above: {error}. Nothing was changed."
            raise InvalidInputError(message) from error
    try:
        from balancedstream.launch.repartition import (  # noqa: PLC0415
            RepartitionOptions,
            repartition_each,
        )
    except ModuleNotFoundError as error:
        message = (
            f"`repartition` needs the package {error.name}, which is not installed. Nothing was "
            f"changed. Install it, {say_install('spark')}"
        )
        raise MissingPackageError(message) from error

    repartition_each(
        [
            RepartitionOptions(
                checkpoint=checkpoint,
                partitions=arguments.partitions or 0,
                dry_run=arguments.dry_run,
                undo=arguments.undo,
                sample_above_bytes=sample_above_bytes,
            )
            for checkpoint in arguments.checkpoints
        ]
    )
    return 0


def _estimate(arguments: argparse.Namespace) -> int:
    return 0 if estimate(arguments.logs, arguments.json, say, Policy()) else EXIT_ERROR


def _show(text: str) -> None:
    """Prints a line with names that others chose."""
    print(printable(text))


def _explain(arguments: argparse.Namespace) -> int:
    recorded_policy, observation = _read_observation(arguments.observation)
    policy = read_policy(arguments.policy) if arguments.policy else recorded_policy
    if policy.removed:
        say(describe_removed(policy.removed))
    decision = decide(observation, policy)
    executors = ", ".join(
        f"{e} ({plural(c, 'core')})" for e, c in sorted(observation.executors.items())
    )
    _show(f"executors: {executors}")
    for (query, operator), balance in sorted(decision.balance.items()):
        load = decision.loads[query, operator]
        print()
        _show(f"query {query}, operator {operator}: {decision.describe_reason((query, operator))}")
        for executor, busy_s in sorted(load.executor_busy_s.items()):
            held = sorted(p for p, e in load.placement.items() if e == executor)
            _show(f"  executor {executor}: {busy_s:.3f} s a batch, partitions {held}")
        for way in decision.key_moves((query, operator)):
            _show(f"  move key {way.key}: partition {way.source} -> {way.target}")
        for move in balance.moves:
            busy_s = load.busy_s.get(move.partition, 0.0)
            state_bytes = load.state_bytes.get(move.partition, 0)
            _show(
                f"  move partition {move.partition} ({busy_s:.3f} s, {state_bytes:,} bytes of "
                f"state): {move.source or 'nowhere'} -> {move.target}"
            )
    scaling = decision.scaling
    print()
    _show(f"executors: {scaling.executors} wanted ({scaling.verdict}): {scaling.reason}")
    return 0


def _print_policy(arguments: argparse.Namespace) -> int:
    section = ""
    for knob in knobs():
        head, _, name = knob.path.partition(".")
        if head != section:
            print(f"{'' if not section else chr(10)}{head}:")
            section = head
        unit = f" [{knob.unit}]" if knob.unit else ""
        print(f"  # {knob.sentence}{unit}")
        print(f"  # {knob.allowed}")
        print(f"  {name}: {knob.default_text}")
    return 0


def _print_plugin(arguments: argparse.Namespace) -> int:
    if not PLUGIN_JAR.exists():
        message = (
            f"{PLUGIN_JAR} is missing: there was no Java compiler when this was installed from "
            "its sources. Install a JDK, 17 or newer, and install again; or install a wheel."
        )
        raise MissingPackageError(message)
    print(f"--conf spark.jars={PLUGIN_JAR}")
    print(f"--conf spark.plugins={PLUGIN_CLASS}")
    # In an environment, the plugin finds the Python that its jar belongs to.
    if not PLUGIN_JAR.is_relative_to(sys.prefix):
        print(f"--conf spark.balancedstream.python={sys.executable}")
    return 0


def _read_observation(path: Path) -> tuple[Policy, Observation]:
    try:
        content: Any = json.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        message = f"observation: {path} cannot be read ({error})"
        raise InvalidInputError(message) from error
    except (ValueError, RecursionError) as error:
        message = f"observation: {path} is not JSON, or was cut off ({error}). {HOW_TO_RECORD}"
        raise InvalidInputError(message) from error
    if isinstance(content, dict) and "observation" in content:
        policy = parse(content.get("policy", {}))
        return policy, parse_observation(json.dumps(content["observation"]))
    message = f"observation: {path} has no field `observation`. {HOW_TO_RECORD}"
    raise InvalidInputError(message)


if __name__ == "__main__":
    sys.exit(main())
