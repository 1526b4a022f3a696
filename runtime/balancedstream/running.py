"""Runs an unmodified PySpark script with every query that it starts balanced."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from pyspark.sql import SparkSession

from balancedstream.attaching import Attachment, attach
from balancedstream.core.keys import KeyNaming
from balancedstream.core.policy import Policy
from balancedstream.engine.engine import is_connection_lost
from balancedstream.engine.java import check_java
from balancedstream.engine.session import LocalExecutors, remove_work_folder, tuned_sessions
from balancedstream.errors import BalancedStreamError, InvalidInputError
from balancedstream.live.streams import open_terminal, open_view
from balancedstream.loop.ports import PlanChannel
from balancedstream.metrics.exporter import Exporter
from balancedstream.record.history import History
from balancedstream.record.records import RunInfo
from balancedstream.record.spectators import Spectator
from balancedstream.report import prepare_directory, publish_report

TERMINATION_LOG = Path("/dev/termination-log")
"""Kubernetes' `terminationMessagePath`; there is no such file anywhere else."""

MAX_LAST_WORDS = 2000

EXIT_INTERRUPTED = 130
"""What a shell expects of a command that was interrupted."""


class NoQueryError(BalancedStreamError):
    """The script ended without having started a streaming query."""


@dataclass(frozen=True)
class RunOptions:
    """What `balancedstream run` was asked for.

    Attributes:
        app: the script.
        args: its own arguments.
        local: executors to start on this machine; None leaves the script's master alone.
        policy: all knobs.
        report_dir: where the report goes; None for no report.
        record_dir: where observations go; None for nowhere.
        metrics_port: where /metrics is served; None for nowhere.
        metrics_address: address that /metrics is served on.
        hot_keys: whether /metrics shows hot keys as they are, hashed, or not at all.
        stream: `NAMESPACE/NAME` of the BalancedStream whose plans to follow; None to decide here.
        baseline_batches: batches to measure before anything moves or scales.
    """

    app: Path
    args: tuple[str, ...] = ()
    local: LocalExecutors | None = None
    policy: Policy = field(default_factory=Policy)
    report_dir: Path | None = None
    record_dir: Path | None = None
    metrics_port: int | None = None
    metrics_address: str = "127.0.0.1"
    hot_keys: KeyNaming = "plain"
    stream: str | None = None
    baseline_batches: int = 0


def run_app(options: RunOptions) -> int:
    """Runs the script to its end, balanced; returns the exit status that the script deserves.

    The report is written however the script ends: normally, by an error or by ctrl-C.

    Raises:
        BalancedStreamError: the run could not begin, or the script started no query.
    """
    if not options.app.is_file():
        message = f"no such script: {options.app}. Nothing was started."
        raise InvalidInputError(message)
    _check_baseline(options)
    check_java()
    for directory in filter(None, (options.report_dir, options.record_dir)):
        prepare_directory(directory)
    # Spark's Python workers are to be this very interpreter, not whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    exporter = None
    if options.metrics_port is not None:
        exporter = Exporter(stream=options.stream or "", hot_keys=options.hot_keys)
        exporter.start(options.metrics_port, options.metrics_address)
    try:
        with _open_plans(options.stream) as plans:
            return _Run(options, exporter, plans).execute()
    finally:
        if exporter:
            exporter.close()


def _check_baseline(options: RunOptions) -> None:
    batches = options.baseline_batches
    if batches < 0:
        message = f"--baseline: must be 0 or more batches, not {batches}. Nothing was started."
        raise InvalidInputError(message)
    if batches and options.stream:
        message = (
            f"--baseline: not with --stream {options.stream}, for which the operator makes the "
            "plans. Nothing was started. To measure first there, set spec.balancing.mode and "
            'spec.scaling.mode to "Off", and to Auto later.'
        )
        raise InvalidInputError(message)


@contextmanager
def _open_plans(stream: str | None) -> Iterator[PlanChannel | None]:
    """The plans for a driver pod, after executors of its predecessor are removed."""
    if stream is None:
        yield None
        return
    # Only a driver pod has the Kubernetes client installed.
    try:
        from balancedstream.incluster import open_channel  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = (
            f"--stream: the package {error.name} is missing; install balancedstream[kubernetes], "
            "or build the image on balancedstream-spark, which has it. Nothing was started."
        )
        raise InvalidInputError(message) from error

    with open_channel(stream, removes_leftovers=True) as plans:
        yield plans


class _Run:
    """One script on its way."""

    def __init__(
        self, options: RunOptions, exporter: Exporter | None, plans: PlanChannel | None
    ) -> None:
        self._options = options
        self._exporter = exporter
        self._plans = plans
        self._attachment: Attachment | None = None
        self._session: SparkSession | None = None
        self._open_view: Callable[[RunInfo], Spectator] = open_view
        self._ended = False

    def execute(self) -> int:
        signal.signal(signal.SIGTERM, _interrupt)
        log = self._find_log()
        with (
            open_terminal(log) as self._open_view,
            tuned_sessions(self._options.local, self._begin, self._note, log),
        ):
            status = self._run_script()
            self._stop()
        if self._attachment is None:
            message = (
                f"{self._options.app} ended without asking for a Spark session "
                "(SparkSession.builder.getOrCreate()): there was nothing to balance."
            )
            raise NoQueryError(message)
        if status == 0 and not self._attachment.history.queries:
            message = (
                f"{self._options.app} ended without finishing a batch of a streaming query: there "
                "was nothing to balance. A batch job needs no `balancedstream run`."
            )
            raise NoQueryError(message)
        return status

    def _find_log(self) -> Path | None:
        """Spark's log goes beside the report; on a terminal it would tear the live view."""
        directory = self._options.report_dir
        if directory is None:
            if not sys.stderr.isatty():
                return None
            directory = Path(tempfile.mkdtemp(prefix="balancedstream-"))
        self._note(f"Spark's log: {directory / 'spark.log'}")
        return directory / "spark.log"

    def _begin(self, session: SparkSession) -> None:
        self._session = session
        if threading.current_thread() is threading.main_thread():
            # PySpark's own handler also cancels all jobs, over a connection that is in use; before
            # Spark 4.2, that is an error and no interrupt.
            signal.signal(signal.SIGINT, _interrupt)
        policy = self._options.policy
        local = self._options.local
        if local and policy.scaling.max_executors == 0 and local.least < local.most:
            limits = replace(policy.scaling, min_executors=local.least, max_executors=local.most)
            policy = replace(policy, scaling=limits)
        self._attachment = attach(
            session,
            policy,
            open_view=self._open_view,
            metrics=self._exporter,
            record_dir=self._options.record_dir,
            plans=self._plans,
            baseline_batches=self._options.baseline_batches,
        )

    def _note(self, text: str) -> None:
        """Says something on the view while there is one, and on standard error otherwise."""
        if self._attachment and not self._ended:
            self._attachment.view.note(text)
        else:
            print(f"balancedstream: {text}", file=sys.stderr)

    def _run_script(self) -> int:
        app = self._options.app
        sys.argv = [str(app), *self._options.args]
        sys.path.insert(0, str(app.resolve().parent))
        try:
            runpy.run_path(str(app), run_name="__main__")
        except KeyboardInterrupt:
            self._note("interrupted: the queries are stopped after their current batch")
            return EXIT_INTERRUPTED
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except BalancedStreamError:
            raise
        except Exception as error:
            traceback.print_exc()
            if self._options.stream:
                _leave_last_words(error)
            return 1
        return 0

    def _stop(self) -> None:
        """Stops the queries, takes in their last batches, writes the report, stops Spark."""
        # From here on an impatient second ctrl-C must not cost the report.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        session = self._session
        if session is not None:
            self._while_alive(lambda: self._stop_queries(session))
        if self._attachment:
            self._attachment.detach()
            self._ended = True
            if self._options.report_dir:
                history = self._attachment.history
                directory = self._options.report_dir
                publish_report(history, directory, self._note, explain_cores(history))
        if session is not None:
            self._while_alive(lambda: self._stop_spark(session))

    def _while_alive(self, call: Callable[[], None]) -> None:
        """Spark may be gone already, by the script's own hand or killed with its terminal."""
        try:
            call()
        except Exception as error:
            if not is_connection_lost(error):
                raise
            self._note("Spark is gone already; the checkpoint holds what was committed")

    def _stop_queries(self, session: SparkSession) -> None:
        if session.sparkContext._jsc is None:
            return
        for query in session.streams.active:
            self._note(f"query {query.name or query.id} still ran; it is stopped")
            query.stop()

    def _stop_spark(self, session: SparkSession) -> None:
        if session.sparkContext._jsc is None:
            return
        application_id = session.sparkContext.applicationId
        session.stop()
        if self._options.local:
            remove_work_folder(application_id)


def explain_cores(history: History) -> list[str]:
    """Says what balance cannot do where executors outnumber cores.

    Args:
        history: of the run.
    """
    most = max((batch.executors for batch in history.batches), default=0)
    cores = history.run.cores
    if most <= cores:
        return []
    return [
        f"{most} executors shared {cores} cores: balance shortens the batch as far as the work "
        "waits (for a service, for storage); work that computes cannot get faster than the cores."
    ]


def _leave_last_words(error: Exception) -> None:
    """Says what ended the container where Kubernetes looks; the log's end is a Java stack."""
    lines = str(error).partition("JVM stacktrace")[0].splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith(("at ", "...")))
    try:
        TERMINATION_LOG.write_text(f"{type(error).__name__}: {text}"[:MAX_LAST_WORDS], "utf-8")
    except OSError:
        return


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    """Ctrl-C, and SIGTERM, as Kubernetes sends it, end a run."""
    raise KeyboardInterrupt
