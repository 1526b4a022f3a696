"""The agent: balances any Spark application from another process than its driver's.

The plugin (`spark-plugin/`) starts it as a child of the driver, or has a sidecar start it. It ends
when its standard input does. Its settings are the application's `spark.balancedstream.*`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from balancedstream.engine.driver import (
    PREFIX,
    DriverSession,
    connect_driver,
    join_plugin,
    read_settings,
)
from balancedstream.errors import BalancedStreamError, InvalidInputError, PortInUseError
from balancedstream.launch.agent_options import STREAM, AgentOptions, read_options
from balancedstream.launch.attaching import Attachment, attach
from balancedstream.launch.saying import say
from balancedstream.listening import write_in_url
from balancedstream.live.plain import PlainView
from balancedstream.loop.ports import PlanChannel
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.records import RunInfo
from balancedstream.report import prepare_directory, publish_report
from balancedstream.version import say_install

ADVICE = f"only says what it would do; with {PREFIX}mode=auto it acts"

EXIT_FAILED = 1
EXIT_HOPELESS = 78
"""To the plugin: another start would end the same way; standard error says why."""

LOOK_S = 1.0
"""How often the agent looks whether its loop still runs."""

DETACH_S = 2.0
"""The plugin waits 10 s for the agent, which also writes a report."""

READ_BYTES = 1024
"""Nothing is ever written to the agent."""


def main() -> int:
    """Balances the driver's application until standard input ends; returns the exit status."""
    # Ctrl-C on a terminal is for the application.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        spark = connect_driver()
        options = read_options(read_settings(spark))
        with balancing(spark, options) as attachment:
            if not attachment.is_balancing:
                return EXIT_HOPELESS
            attachment.view.note(_introduce(options))
            return _wait(attachment)
    except BalancedStreamError as error:
        problem = str(error).rstrip(".")
        say(f"{problem}. The application runs on, not balanced; mend this and start it again.")
        return EXIT_HOPELESS


def check_report_dir(options: AgentOptions) -> AgentOptions:
    """The options; without a report if it cannot be written, which the agent says."""
    if options.report_dir is None:
        return options
    try:
        prepare_directory(options.report_dir)
    except InvalidInputError as error:
        cause = getattr(error.__cause__, "strerror", None) or error
        say(
            f"{PREFIX}report={options.report_dir} cannot be written to ({cause}). There will be no "
            "report, and everything else goes on."
        )
        return replace(options, report_dir=None)
    return options


@contextmanager
def balancing(spark: DriverSession, options: AgentOptions) -> Iterator[Attachment]:
    """Balances the application as its settings say, with metrics and a report, until it is closed.

    Raises:
        InvalidInputError: the stream's plans cannot be had; nothing was attached.
    """
    options = check_report_dir(options)
    with (
        _open_plans(options) as plans,
        closing(Exporter(stream=options.stream, spark_version=spark.version)) as exporter,
    ):
        attachment = attach(
            spark, options.policy, open_view=open_view, metrics=exporter, plans=plans
        )
        join_plugin(spark)
        # Not before: an agent that has to go first listens on the same port.
        serve(exporter, options)
        for note in options.notes:
            attachment.view.note(note)
        yield attachment
        attachment.detach(DETACH_S)
        if options.report_dir:
            publish_report(attachment.history, options.report_dir, say)


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
        from balancedstream.launch.kubernetes import open_channel  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = (
            f"{STREAM}: the package {error.name} is missing; install it with {sys.executable}, "
            f"{say_install('kubernetes')}"
        )
        raise InvalidInputError(message) from error
    with open_channel(
        options.stream, STREAM, application=options.application, scales=options.scales
    ) as plans:
        yield plans


def _introduce(options: AgentOptions) -> str:
    if options.stream:
        return f"agent in process {os.getpid()}, follows plans of BalancedStream {options.stream}"
    says = f"advise: {ADVICE}"
    if options.mode == "auto":
        scales = options.policy.scaling.acts
        says = "auto: it moves and scales" if scales else "auto: it moves, and does not scale"
    return f"agent in process {os.getpid()}, {says}"


def open_view(run: RunInfo) -> PlainView:
    """Lines among those of Spark's log."""
    return PlainView(run, prefix="balancedstream: ")


def serve(exporter: Exporter, options: AgentOptions) -> None:
    """Serves /metrics if a port is set; if that fails, the agent says so and goes on."""
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
        where = f"http://{write_in_url(options.metrics_address)}:{exporter.port}"
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


if __name__ == "__main__":
    sys.exit(main())
