"""The command line: `balancedstream run | explain | policy | plugin | sidecar`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn, get_args

from balancedstream.core.decisions import decide
from balancedstream.core.keys import KeyNaming
from balancedstream.core.observations import Observation, parse_observation
from balancedstream.core.policy import Policy, knobs, parse
from balancedstream.errors import BalancedStreamError, InvalidInputError, MissingPackageError
from balancedstream.policies import read_policy
from balancedstream.sidecar import serve_drivers
from balancedstream.version import __version__

PLUGIN_CLASS = "io.balancedstream.Plugin"
PLUGIN_JAR = Path(__file__).with_name("spark-plugin.jar")
"""`spark-plugin/` has its sources; the wheel's build makes it."""

EXIT_ERROR = 2
"""The command could not do what it was asked for; standard error says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; errors of ours end it with one sentence, never with a stack trace."""
    arguments = _build_parser().parse_args(argv)
    try:
        status: int = arguments.command(arguments)
    except BalancedStreamError as error:
        print(f"balancedstream: {error}", file=sys.stderr)
        return EXIT_ERROR
    return status


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="balancedstream",
        description="Keeps PySpark streaming jobs balanced and right-sized while they run.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run a PySpark script, balanced")
    run.add_argument(
        "--local",
        metavar="MIN:MAX",
        help="start that many executor processes on this machine; the number follows the load",
    )
    run.add_argument(
        "--policy", type=Path, metavar="FILE", help="YAML, as `balancedstream policy` prints it"
    )
    run.add_argument(
        "--baseline",
        type=int,
        default=0,
        metavar="BATCHES",
        help="measure this many batches of each query, after its first, before anything moves or "
        "scales, so that the report can compare before with after; not with --stream "
        "(default: %(default)s)",
    )
    run.add_argument(
        "--report", type=Path, metavar="DIR", help="write report.html and report.json there"
    )
    run.add_argument(
        "--record", type=Path, metavar="DIR", help="keep what was seen there, for `explain`"
    )
    run.add_argument(
        "--metrics-port", type=int, metavar="PORT", help="serve /metrics for Prometheus there"
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
    run.add_argument("app", type=Path, metavar="APP", help="the script")
    run.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="its own arguments")
    run.set_defaults(command=_run)

    explain = commands.add_parser("explain", help="say what is decided on an observation, and why")
    explain.add_argument("observation", type=Path, metavar="OBSERVATION.json")
    explain.add_argument("--policy", type=Path, metavar="FILE", help="instead of the recorded one")
    explain.set_defaults(command=_explain)

    show = commands.add_parser("policy", help="print every knob with its default, as a policy file")
    show.set_defaults(command=_print_policy)

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
    sidecar.set_defaults(command=_serve_drivers)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    # `explain` and `policy` need no Spark, and answer at once.
    try:
        from balancedstream.engine.session import LocalExecutors  # noqa: PLC0415
        from balancedstream.running import RunOptions, run_app  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = (
            f"`run` needs the package {error.name}, which is not installed. Nothing was started. "
            "Install it with: pip install 'balancedstream[spark]'"
        )
        raise MissingPackageError(message) from error

    options = RunOptions(
        app=arguments.app,
        args=tuple(arguments.args),
        local=LocalExecutors.parse(arguments.local) if arguments.local else None,
        policy=read_policy(arguments.policy),
        report_dir=arguments.report,
        record_dir=arguments.record,
        metrics_port=arguments.metrics_port,
        metrics_address=arguments.metrics_address,
        hot_keys=arguments.hot_keys,
        stream=arguments.stream,
        baseline_batches=arguments.baseline,
    )
    return run_app(options)


def _explain(arguments: argparse.Namespace) -> int:
    recorded_policy, observation = _read_observation(arguments.observation)
    policy = read_policy(arguments.policy) if arguments.policy else recorded_policy
    decision = decide(observation, policy)
    executors = ", ".join(f"{e} ({c} cores)" for e, c in sorted(observation.executors.items()))
    print(f"executors: {executors}")
    for (query, operator), balance in sorted(decision.balance.items()):
        load = decision.loads[query, operator]
        print(f"\nquery {query}, operator {operator}: {decision.say_why((query, operator))}")
        for executor, busy_s in sorted(load.executor_busy_s.items()):
            held = sorted(p for p, e in load.placement.items() if e == executor)
            print(f"  executor {executor}: {busy_s:.3f} s a batch, partitions {held}")
        for way in decision.key_moves((query, operator)):
            print(f"  move key {way.key}: partition {way.source} -> {way.target}")
        for move in balance.moves:
            busy_s = load.busy_s.get(move.partition, 0.0)
            state_bytes = load.state_bytes.get(move.partition, 0)
            print(
                f"  move partition {move.partition} ({busy_s:.3f} s, {state_bytes:,} bytes of "
                f"state): {move.source or 'nowhere'} -> {move.target}"
            )
    scaling = decision.scaling
    print(f"\nexecutors: {scaling.executors} wanted ({scaling.verdict}): {scaling.reason}")
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


def _serve_drivers(arguments: argparse.Namespace) -> NoReturn:
    serve_drivers(arguments.folder)


def _read_observation(path: Path) -> tuple[Policy, Observation]:
    try:
        content: Any = json.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        message = f"observation: {path} cannot be read ({error})"
        raise InvalidInputError(message) from error
    except ValueError as error:
        message = f"observation: {path} is not JSON ({error})"
        raise InvalidInputError(message) from error
    if isinstance(content, dict) and "observation" in content:
        policy = parse(content.get("policy", {}))
        return policy, parse_observation(json.dumps(content["observation"]))
    wanted = ", ".join(f.name for f in fields(Observation))
    message = f"observation: {path} has no field `observation` (with {wanted})"
    raise InvalidInputError(message)


if __name__ == "__main__":
    sys.exit(main())
