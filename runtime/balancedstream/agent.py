"""The agent: balances any Spark application from a child process of its driver.

The plugin (`spark-plugin/`) starts it in the driver, and it ends when its standard input does. Its
settings are the application's `spark.balancedstream.*`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from pyspark.sql import SparkSession

from balancedstream.attaching import Attachment, attach
from balancedstream.core.policy import Mode, Policy
from balancedstream.engine.driver import PLUGIN, PREFIX, connect_driver, read_settings
from balancedstream.engine.settings import DYNAMIC_ALLOCATION
from balancedstream.errors import BalancedStreamError, InvalidInputError, PortInUseError
from balancedstream.live.plain import PlainView
from balancedstream.loop.ports import PlanChannel
from balancedstream.metrics.exporter import Exporter
from balancedstream.policies import read_policy
from balancedstream.record.records import RunInfo
from balancedstream.report import prepare_directory, say_outcome, write_report

MODES: tuple[Mode, ...] = get_args(Mode)
STREAM = f"{PREFIX}stream"
ADVICE = f"only says what it would do; with {PREFIX}mode=auto it acts"

EXIT_FAILED = 1
EXIT_HOPELESS = 78
"""To the plugin: another start would end the same way; standard error says why."""

LOOK_S = 1.0
"""How often the agent looks whether its loop still runs."""

DETACH_S = 2.0
"""The plugin waits 5 s for the agent, which also writes a report."""

READ_BYTES = 1024
"""Nothing is ever written to the agent."""


@dataclass(frozen=True)
class AgentOptions:
    """What the application's settings ask for.

    Attributes:
        mode: whether it acts (auto) or only says what it would do (advise).
        policy: all knobs; nothing in it does more than `mode`.
        stream: `NAMESPACE/NAME` of the BalancedStream whose plans to follow; empty to decide here.
        application: Spark's id of the application.
        scales: whether it may add and remove executors; with dynamic allocation Spark does.
        metrics_port: where /metrics is served; None for nowhere.
        metrics_address: address that /metrics is served on.
        report_dir: where the report goes; None for no report.
        notes: what a person should know of it.
    """

    mode: Mode = "advise"
    policy: Policy = field(default_factory=Policy)
    stream: str = ""
    application: str = ""
    scales: bool = True
    metrics_port: int | None = None
    metrics_address: str = "127.0.0.1"
    report_dir: Path | None = None
    notes: tuple[str, ...] = ()


def read_options(settings: Mapping[str, str]) -> AgentOptions:
    """Reads the application's Spark settings.

    Args:
        settings: all of them, by name.

    Raises:
        InvalidInputError: a setting is unknown or wrong; the message names it.

    >>> options = read_options({"spark.balancedstream.balance.act_above": "1.5"})
    >>> options.policy.balance.act_above, options.policy.balance.mode
    (1.5, 'advise')
    """
    own = {k.removeprefix(PREFIX): v for k, v in settings.items() if k.startswith(PREFIX)}
    # Both are the plugin's.
    own.pop(PLUGIN.removeprefix(PREFIX), None)
    own.pop("python", None)
    mode = _parse_mode(own.pop("mode", "advise"))
    file, port = own.pop("policy", ""), own.pop("metrics.port", "")
    stream = own.pop("stream", "")
    address, report = own.pop("metrics.address", "127.0.0.1"), own.pop("report", "")
    if port and not port.isdecimal():
        message = f"{PREFIX}metrics.port: must be a port, 0 to 65535, not {port!r}"
        raise InvalidInputError(message)
    for name in own:
        if "." not in name:
            message = f"{PREFIX}{name}: there is no such setting"
            raise InvalidInputError(message)
    policy, notes = read_policy(Path(file) if file else None, own), []
    # What the operator may do, the BalancedStream says.
    if mode == "advise" and not stream:
        policy = _only_advise(policy)
    scales = settings.get(DYNAMIC_ALLOCATION, "").lower() != "true"
    if not scales:
        policy = replace(policy, scaling=replace(policy.scaling, mode="off"))
        notes.append(
            f"{DYNAMIC_ALLOCATION}=true: Spark sets the number of executors, and partitions are "
            "placed on those that there are"
        )
    return AgentOptions(
        mode=mode,
        policy=policy,
        stream=stream,
        application=settings.get("spark.app.id", ""),
        scales=scales,
        metrics_port=int(port) if port else None,
        metrics_address=address,
        report_dir=Path(report) if report else None,
        notes=tuple(notes),
    )


def _parse_mode(text: str) -> Mode:
    for mode in MODES:
        if text == mode:
            return mode
    message = f"{PREFIX}mode: must be one of {', '.join(MODES)}, not {text!r}"
    raise InvalidInputError(message)


def _only_advise(policy: Policy) -> Policy:
    """The policy without its acts; what is off stays off."""
    balance, scaling = policy.balance, policy.scaling
    if balance.mode == "auto":
        balance = replace(balance, mode="advise")
    if scaling.mode == "auto":
        scaling = replace(scaling, mode="advise")
    return replace(policy, balance=balance, scaling=scaling)


def main() -> int:
    """Balances the driver's application until standard input ends; returns the exit status."""
    # Ctrl-C on a terminal is for the application.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        spark = connect_driver()
        options = read_options(read_settings(spark))
        if options.report_dir:
            prepare_directory(options.report_dir)
        with balancing(spark, options) as attachment:
            if not attachment.is_balancing:
                return EXIT_HOPELESS
            attachment.view.note(_introduce(options))
            return _wait(attachment)
    except BalancedStreamError as error:
        problem = str(error).rstrip(".")
        say(f"{problem}. The application runs on, not balanced; mend this and start it again.")
        return EXIT_HOPELESS


@contextmanager
def balancing(spark: SparkSession, options: AgentOptions) -> Iterator[Attachment]:
    """Balances the application as its settings say, with metrics and a report, until it is closed.

    Raises:
        InvalidInputError: the stream's plans cannot be had; nothing was attached.
    """
    with (
        _open_plans(options) as plans,
        closing(Exporter(stream=options.stream, spark_version=spark.version)) as exporter,
    ):
        attachment = attach(
            spark, options.policy, open_view=open_view, metrics=exporter, plans=plans
        )
        # Not before: an agent that has to go first listens on the same port.
        serve(exporter, options)
        for note in options.notes:
            attachment.view.note(note)
        yield attachment
        attachment.detach(DETACH_S)
        if options.report_dir:
            _write_report(attachment, options.report_dir)


@contextmanager
def _open_plans(options: AgentOptions) -> Iterator[PlanChannel | None]:
    """The plans that the operator makes, if it makes them.

    Raises:
        InvalidInputError: there is no way to them.
    """
    if not options.stream:
        yield None
        return
    try:
        from balancedstream.incluster import open_channel  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = (
            f"{STREAM}: the package {error.name} is missing; install balancedstream[kubernetes] in "
            f"{sys.executable}."
        )
        raise InvalidInputError(message) from error
    with open_channel(
        options.stream, STREAM, application=options.application, scales=options.scales
    ) as plans:
        yield plans


def _introduce(options: AgentOptions) -> str:
    if options.stream:
        return f"agent in process {os.getpid()}, follows plans of BalancedStream {options.stream}"
    says = f"advise: {ADVICE}" if options.mode == "advise" else "auto: it moves and scales"
    return f"agent in process {os.getpid()}, {says}"


def open_view(run: RunInfo) -> PlainView:
    """Lines among those of Spark's log."""
    return PlainView(run, prefix="balancedstream: ")


def serve(exporter: Exporter, options: AgentOptions) -> None:
    """Serves /metrics, if it is asked for; what prevents it is said, and prevents nothing else."""
    if options.metrics_port is None:
        return
    name = f"{PREFIX}metrics.port={options.metrics_port}"
    try:
        exporter.start(options.metrics_port, options.metrics_address)
    except PortInUseError:
        problem = f"{name} on {options.metrics_address} is in use; 0 picks a free one"
    except InvalidInputError:
        problem = f"{name} on {options.metrics_address} cannot be listened on"
    else:
        where = f"http://{options.metrics_address}:{exporter.port}"
        say(f"metrics: {where}/metrics, report: {where}/report")
        return
    say(f"{problem}. /metrics is not served, and everything else goes on.")


def _wait(attachment: Attachment) -> int:
    """Waits for the end of standard input; the loop may end before, by itself."""
    ended = threading.Event()

    def read() -> None:
        # Python aborts at its exit if another thread still reads from `sys.stdin`.
        while os.read(sys.stdin.fileno(), READ_BYTES):
            pass
        ended.set()

    threading.Thread(target=read, name="balancedstream-input", daemon=True).start()
    while not ended.wait(LOOK_S):
        if not attachment.is_balancing:
            # It may be the application's end, and the plugin is about to say so.
            return 0 if ended.wait(DETACH_S) else EXIT_FAILED
    return 0


def _write_report(attachment: Attachment, directory: Path) -> None:
    try:
        summary = write_report(attachment.history, directory)
    except OSError as error:
        say(f"the report could not be written to {directory}: {error.strerror}")
        return
    say(say_outcome(summary))
    say(f"report: {directory / 'report.html'}")


def say(text: str) -> None:
    """Writes a line among those of Spark's log."""
    print(f"balancedstream: {text}", file=sys.stderr)
