"""The command line of the operator: reads flags, wires the parts, and runs them until a signal."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from balancedstream.core.money import Price
from balancedstream.errors import InvalidInputError, MissingPackageError
from balancedstream_operator.errors import ClusterError, MissingMeasurementsError
from balancedstream_operator.kube.client import connect
from balancedstream_operator.kube.lease import Lease, hold
from balancedstream_operator.observe.signing import check_package
from balancedstream_operator.plan.shares import read_memory_mib
from balancedstream_operator.process.following import start_followers
from balancedstream_operator.process.health import serve_health
from balancedstream_operator.process.logs import start_logging
from balancedstream_operator.process.metrics import OperatorMetrics
from balancedstream_operator.process.operator import Operator
from balancedstream_operator.settings import Caps, Settings

HEALTH_PORT = 8080
METRICS_PORT = 8081


async def operate(
    settings: Settings, stop: asyncio.Event, lease_name: str = "", *, health_port: int = HEALTH_PORT
) -> None:
    """Looks after BalancedStreams until it is told to stop.

    Args:
        settings: which streams, their Prometheus, and what they may ask for.
        stop: set to end it.
        lease_name: of the Lease in the pod's namespace that the operator must hold to act; empty
            acts without one.
        health_port: for probes.
    """
    metrics = OperatorMetrics()
    metrics.start(METRICS_PORT)
    operator = Operator(settings, metrics, active=not lease_name)
    health = await serve_health(health_port, operator.explain_unready)
    followers = start_followers(connect(), settings.namespaces, operator)
    lease, held = None, None
    if lease_name:
        namespace = os.environ.get("POD_NAMESPACE", "default")
        identity = f"{os.environ.get('POD_NAME', socket.gethostname())}_{uuid.uuid4()}"
        lease = Lease(connect(), namespace, lease_name, identity)
        held = asyncio.create_task(hold(lease, operator.activate, lambda: os._exit(1)))
    await stop.wait()
    for follower in followers:
        follower.stop()
    operator.close()
    # Passes that still run must have ended before another operator begins; until then the Lease is
    # renewed.
    await asyncio.to_thread(operator.wait)
    if lease and held:
        held.cancel()
        with suppress(ClusterError):
            await asyncio.to_thread(lease.release)
    health.close()


def read_credentials(folder: Path | None, token_file: Path | None) -> dict[str, str]:
    """What authenticates to the operator's own Prometheus, by the keys of a Secret, as it is now.

    Args:
        folder: of a mounted Secret, whose files the kubelet replaces; None for none.
        token_file: with a token, which comes before that of the Secret; None for none.

    Raises:
        MissingMeasurementsError: a file cannot be read.
    """
    try:
        # Each key is a link to a file.
        paths = {path.name: path for path in folder.iterdir() if path.is_file()} if folder else {}
        if token_file:
            paths["token"] = token_file
        return {name: path.read_text("utf-8") for name, path in paths.items()}
    except (OSError, ValueError) as error:
        message = f"what authenticates the operator to Prometheus cannot be read: {error}"
        raise MissingMeasurementsError(message) from error


def read_settings(arguments: argparse.Namespace) -> Settings:
    """What the command line says of all streams."""
    labels = [text.partition("=")[::2] for text in arguments.prometheus_label]
    folder, token_file = (
        Path(given) if given else None
        for given in (arguments.prometheus_credentials, arguments.prometheus_token_file)
    )
    return Settings(
        arguments.prometheus_url,
        tuple(labels),
        tuple(arguments.allow_prometheus_url),
        partial(read_credentials, folder, token_file) if folder or token_file else dict,
        arguments.forbid_escalation,
        tuple(arguments.allow_service_account),
        ("",) if arguments.all_namespaces else tuple(arguments.namespace),
        arguments.prometheus_sigv4_region,
        asks_queries=arguments.allow_queries,
        caps=Caps(arguments.max_executors, arguments.max_cores, arguments.max_memory),
        price=read_price(arguments),
    )


def read_price(arguments: argparse.Namespace) -> Price | None:
    """The price of an executor-hour that the command line names; None if it names none.

    Raises:
        InvalidInputError: it is no price; the message names the field.
    """
    if not arguments.cost_executor_hour:
        return None
    return Price(arguments.cost_executor_hour, arguments.cost_currency)


def _read_limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        message = f"must be a whole number from 0, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _read_memory(text: str) -> int:
    try:
        return read_memory_mib(text)
    except ValueError:
        message = f"must be a size such as 256g, not {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the operator until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="balancedstream-operator",
        # The chart must know each option by its name.
        allow_abbrev=False,
        description="Keeps BalancedStreams balanced and right-sized.",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--all-namespaces", action="store_true", help="watch all namespaces")
    where.add_argument(
        "--namespace", action="append", metavar="NAMESPACE", help="watch this namespace; repeatable"
    )
    add = parser.add_argument
    several = partial(add, action="append", default=[])
    switch = partial(add, action="store_true")
    add("--prometheus-url", default="", metavar="URL", help="Prometheus for streams that name none")
    several(
        "--prometheus-label",
        metavar="NAME=VALUE",
        help="label that all series must have, such as that of the cluster; repeatable",
    )
    add(
        "--prometheus-credentials",
        metavar="FOLDER",
        help="a mounted Secret to authenticate to that Prometheus with",
    )
    add(
        "--prometheus-token-file",
        metavar="FILE",
        help="a file with a bearer token for that Prometheus, such as one of the ServiceAccount",
    )
    add(
        "--prometheus-sigv4-region",
        default="",
        metavar="REGION",
        help="of AWS, to sign requests to that Prometheus for (SigV4)",
    )
    several(
        "--allow-prometheus-url",
        metavar="URL",
        help="URL that streams may name, with all below it; * allows any; repeatable",
    )
    switch(
        "--forbid-escalation",
        help="refuse streams whose pods would get more rights than the operator's templates give",
    )
    several(
        "--allow-service-account",
        metavar="NAME",
        help="ServiceAccount that pods may run as even with --forbid-escalation; repeatable",
    )
    switch("--allow-queries", help="ask the queries of streams (executors.minQuery)")
    for name, what in (("executors", "executors"), ("cores", "cores of executors")):
        add(
            f"--max-{name}",
            type=_read_limit,
            default=0,
            metavar="N",
            help=f"{what} of all streams at most; 0 for any number",
        )
    add(
        "--max-memory",
        type=_read_memory,
        default=0,
        metavar="SIZE",
        help="memory of the executors of all streams at most, such as 256g",
    )
    add(
        "--cost-executor-hour",
        type=float,
        default=0.0,
        metavar="PRICE",
        help="price of an executor for an hour, to say what streams cost a day; 0 for none",
    )
    add("--cost-currency", default="", metavar="TEXT", help="currency of that price, such as EUR")
    add(
        "--lease",
        default="",
        metavar="NAME",
        help="act only while holding this Lease in the namespace of POD_NAMESPACE",
    )
    arguments = parser.parse_args(argv)
    if arguments.prometheus_sigv4_region:
        try:
            check_package()
        except MissingPackageError as error:
            parser.error(str(error))
    try:
        settings = read_settings(arguments)
    except InvalidInputError as error:
        parser.error(str(error))
    start_logging(os.environ.get("LOG_LEVEL", "INFO"), os.environ.get("LOG_FORMAT", "text"))
    asyncio.run(_run(settings, arguments.lease))


async def _run(settings: Settings, lease_name: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await operate(settings, stop, lease_name)


if __name__ == "__main__":
    main()
