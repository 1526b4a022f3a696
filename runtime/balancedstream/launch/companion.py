"""Goes with a script in its own process: balances its sessions, and reports when it has ended.

Python runs the script in its usual way, after `startup/sitecustomize.py` has called this module. It
changes nothing until the script makes a Spark context, except that it stands ready:

- for the import of PySpark, to tune the contexts that the script makes and to attach to them;
- for the end: Python calls `atexit` handlers the last one first, so this one, which is the first,
  comes when the threads and the handlers of the script are through;
- once there is a Spark context, for SIGTERM and SIGHUP, as long as the script leaves them to the
  system: the report is written, and the signal then ends the process as it would have. No line of
  the script runs in between, once it has finished what it prints on a terminal.

The end is a thread's work. Another thread can call Spark while the main one is in a call, which a
signal interrupts; and whoever waits for a thread can stop waiting.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from balancedstream.errors import BalancedStreamError
from balancedstream.launch.imports import when_imported
from balancedstream.launch.run_options import RunOptions
from balancedstream.launch.saying import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from balancedstream.launch.attaching import Attachment
    from balancedstream.launch.kubernetes import ClusterPlanChannel
    from balancedstream.metrics.exporter import Exporter
    from balancedstream.record.history import History
    from balancedstream.record.records import RunInfo
    from balancedstream.record.spectators import Spectator

CONTEXT_MODULES = frozenset({"pyspark.context", "pyspark.core.context"})
"""Where `SparkContext` is, before Spark 4.0 and since."""

CONNECT_MODULE = "pyspark.sql.connect.session"

TERMINATION_LOG = Path("/dev/termination-log")
"""Kubernetes' `terminationMessagePath`; there is no such file anywhere else."""

MAX_LAST_WORDS = 2000

EXIT_REFUSED = 2
"""Of a script that was not started, and of one whose session was refused."""

LOG_HEADER = """\
# Below: what Spark's JVM and the Python workers that it started for process {pid} wrote to standard
# error. Executors that --local starts write to $SPARK_HOME/work/APPLICATION/EXECUTOR/stderr, which
# is removed when the run ends.
"""

STOP_QUERIES_S = 5.0
"""For the queries that still run. A sink that does not answer cannot be stopped; it ends with the
process, as it would without this."""

STOP_SPARK_S = 15.0

MAX_END_S = 25.0
"""After a signal, whose sender waits. Kubernetes does so for 30 s."""

AGAIN_S = 0.01
MOST_AGAIN = 200
"""A signal that finds the script at a line that it prints on a terminal comes again so much later,
and so often. A terminal may stand still."""

HELD_S = 0.5
"""How often a script that has ended looks whether its process may end, too."""

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def accompany(environment: Mapping[str, str]) -> None:
    """Begins, in the process that `run_app` made; a run that cannot begin ends here."""
    options = RunOptions.from_environment(environment)
    # Spark's Python workers are to be this very interpreter, not whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        Companion(options).begin()
    except Exception as error:
        said = error if isinstance(error, BalancedStreamError) else repr(error)
        say(f"{said} The script was not started.")
        # Python takes no other exit here for one.
        os._exit(EXIT_REFUSED)


class Companion:
    """Goes with one script."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._process = os.getpid()
        self._errors = sys.stderr
        self._exporter: Exporter | None = None
        self._plans: ClusterPlanChannel | None = None
        self._open_view: Callable[[RunInfo], Spectator] | None = None
        self._view: Spectator | None = None
        self._session: SparkSession | None = None
        self._attachment: Attachment | None = None
        self._applications: list[str] = []
        self._is_refused = False
        self._times_again = 0
        self._until_reported = ExitStack()
        self._until_ended = ExitStack()
        self._over = threading.Event()
        self._reported = threading.Event()
        self._ended = threading.Event()

    def begin(self) -> None:
        """Serves metrics, follows plans, and waits for the script to import PySpark.

        Raises:
            BalancedStreamError: the run cannot begin.
        """
        options = self._options
        if options.metrics_port is not None:
            from balancedstream.metrics.exporter import Exporter  # noqa: PLC0415

            self._exporter = Exporter(stream=options.stream or "", hot_keys=options.hot_keys)
            self._exporter.start(options.metrics_port, options.metrics_address)
            self._until_ended.callback(self._exporter.close)
        if options.stream is not None:
            from balancedstream.launch.kubernetes import open_channel  # noqa: PLC0415

            channel = open_channel(options.stream, removes_leftovers=True)
            self._plans = self._until_ended.enter_context(channel)
        atexit.register(self._end_with_python)
        when_imported(CONTEXT_MODULES, self._await_context)

    def _await_context(self, module: ModuleType) -> None:
        """Opens what goes with Spark contexts before the script makes its first one."""
        made: Any = module.SparkContext
        usual = made.__init__

        @wraps(usual)
        def first(context: Any, *args: Any, **kwargs: Any) -> None:
            made.__init__ = usual
            if os.getpid() == self._process:
                self._open_sessions()
            made.__init__(context, *args, **kwargs)

        made.__init__ = first

    def _open_sessions(self) -> None:
        # The script has imported PySpark by now; one that does not needs none of this.
        from balancedstream.engine.session.session import tuned_sessions  # noqa: PLC0415
        from balancedstream.live.streams import open_terminal  # noqa: PLC0415

        threading.Thread(target=self._end, name="balancedstream end", daemon=True).start()
        if _is_main_thread():  # Python takes a handler from no other one
            for number in SIGNALS:
                # One that is ignored, as under nohup, stays so.
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, self._end_by_signal)
        log = self._find_log()
        self._open_view = self._until_reported.enter_context(open_terminal(log))
        hooks = tuned_sessions(
            self._options.local, self._begin_session, self._note, log, self._refusing
        )
        self._until_ended.enter_context(hooks)

    def _find_log(self) -> Path | None:
        """Spark's log goes beside the report; on a terminal it would tear the live view."""
        directory = self._options.report_dir
        if directory is None:
            if not sys.stderr.isatty():
                return None
            directory = Path(tempfile.mkdtemp(prefix="balancedstream-"))
        log = directory / "spark.log"
        with suppress(OSError), log.open("a", encoding="utf-8") as file:
            file.write(LOG_HEADER.format(pid=os.getpid()))
        self._note(f"Spark's log: {log}")
        return log

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Ends a script that asks for a session which `run` cannot give, as `sys.exit` does."""
        try:
            yield
        except BalancedStreamError as error:
            self._note(str(error))
            self._is_refused = True
            raise SystemExit(EXIT_REFUSED) from None

    def _begin_session(self, session: SparkSession) -> None:
        from balancedstream.launch.attaching import attach  # noqa: PLC0415

        if _is_main_thread() and _is_pysparks(signal.getsignal(signal.SIGINT)):
            # PySpark's own handler also cancels all jobs, over a connection that is in use; before
            # Spark 4.2, that is an error and no interrupt.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        policy = self._options.policy
        local = self._options.local
        if local and policy.scaling.max_executors == 0 and local.least < local.most:
            limits = replace(policy.scaling, min_executors=local.least, max_executors=local.most)
            policy = replace(policy, scaling=limits)
        before = self._attachment
        if before is not None:
            before.end_loop()
        self._session = session
        self._applications.append(str(session.sparkContext.applicationId))
        try:
            self._attachment = attach(
                session,
                policy,
                open_view=self._show,
                metrics=self._exporter,
                record_dir=self._options.record_dir,
                plans=self._plans,
                baseline_batches=self._options.baseline_batches,
                history=before.history if before else None,
            )
        except Exception as error:
            # It is no error of the script, which is waiting for its session.
            self._note(f"balancing could not begin ({error!r}): the script runs on, not balanced")

    def _show(self, run: RunInfo) -> Spectator:
        """One view for all sessions of the script."""
        if self._view is None:
            assert self._open_view is not None  # noqa: S101 - mypy
            self._view = self._open_view(run)
        return self._view

    def _note(self, text: str) -> None:
        """Says something on the view while there is one, and on standard error otherwise."""
        if self._view is not None:
            self._view.note(text)
            return
        say(text, self._errors)

    def _end_with_python(self) -> None:
        """The script is over, with its threads and its own handlers."""
        if os.getpid() != self._process:
            return
        while self._plans is not None and self._plans.is_held():
            time.sleep(HELD_S)
        # Nobody's impatience must cost the report.
        numbers = (signal.SIGINT, *SIGNALS)
        before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
        if self._options.stream is not None:
            _leave_last_words(getattr(sys, "last_value", None))
        if self._open_view is None:
            self._describe_missing_session()
            self._until_ended.close()
            return
        self._over.set()
        self._reported.wait()
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        self._ended.wait(STOP_SPARK_S)

    def _end_by_signal(self, number: int, frame: FrameType | None) -> None:
        """Writes the report, and lets the signal do what it does."""
        if os.getpid() == self._process and self._open_view is not None:
            if self._comes_again(number, frame):
                return
            for each in (signal.SIGINT, *SIGNALS):
                signal.signal(each, signal.SIG_IGN)
            self._over.set()
            self._ended.wait(MAX_END_S)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _comes_again(self, number: int, frame: FrameType | None) -> bool:
        """Sends a signal once more, later, if the end would wait for what it interrupted."""
        from balancedstream.live.streams import is_printing  # noqa: PLC0415

        if self._times_again == MOST_AGAIN or not is_printing(frame):
            return False
        self._times_again += 1
        main = threading.main_thread().ident
        again = threading.Timer(AGAIN_S, signal.pthread_kill, (main, number))
        again.daemon = True
        try:
            again.start()
        except RuntimeError:  # Python ends, and starts no thread any more
            return False
        return True

    def _end(self) -> None:
        self._over.wait()
        try:
            self._stop_balancing()
        except Exception as error:
            self._note(f"the end of the run failed: {error!r}")
        finally:
            self._reported.set()
        try:
            self._stop_spark()
        finally:
            self._ended.set()

    def _stop_balancing(self) -> None:
        """Stops the queries, takes in their last batches, writes the report."""
        from balancedstream.report import publish_report  # noqa: PLC0415

        if self._plans is not None:
            self._plans.leave()
        with self._until_reported:
            self._while_alive(self._stop_queries)
            if self._attachment:
                self._attachment.detach()
        self._view = None
        if self._attachment is None:
            self._describe_missing_session()
            return
        history = self._attachment.history
        if self._options.report_dir:
            publish_report(history, self._options.report_dir, self._note, explain_cores(history))
        elif not history.queries:
            self._note(
                "no batch of a streaming query finished, so there was nothing to balance. A batch "
                "job needs no `balancedstream run`."
            )

    def _describe_missing_session(self) -> None:
        if self._session is not None:
            return  # and why nothing was balanced is said
        if self._is_refused or getattr(sys, "last_value", None) is not None:
            return  # what ended the script is the last word
        what = "made no Spark session in its process"
        if CONNECT_MODULE in sys.modules:
            what += "; the plugin balances the queries of a Spark Connect server"
        self._note(f"{self._options.app} {what}: there was nothing to balance.")

    def _while_alive(self, call: Callable[[SparkSession], None]) -> None:
        """Spark may be gone already, by the script's own hand or killed with its terminal."""
        from balancedstream.engine.engine import is_connection_lost  # noqa: PLC0415

        session = self._session
        if session is None or session.sparkContext._jsc is None:
            return
        try:
            call(session)
        except Exception as error:
            if not is_connection_lost(error):
                raise
            self._note("Spark is gone already; the checkpoint holds what was committed")

    def _stop_queries(self, session: SparkSession) -> None:
        from balancedstream.engine.session.session import stop_queries  # noqa: PLC0415

        for name, has_ended in stop_queries(session, STOP_QUERIES_S):
            said = "it is stopped" if has_ended else "its batch goes on until the process ends"
            self._note(f"query {name} still ran; {said}")

    def _stop_spark(self) -> None:
        from balancedstream.engine.session.session import remove_work_folder  # noqa: PLC0415

        with self._until_ended:
            self._while_alive(lambda session: session.stop())
        if self._options.local:
            for application in self._applications:
                remove_work_folder(application)


def explain_cores(history: History) -> list[str]:
    """Says what balance cannot do where executors outnumber cores."""
    most = max((batch.executors for batch in history.batches), default=0)
    cores = history.run.cores
    if most <= cores:
        return []
    return [
        f"{most} executors shared {cores} cores: balance shortens the batch as far as the work "
        "waits (for a service, for storage); work that computes cannot get faster than the cores."
    ]


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_pysparks(handler: Any) -> bool:
    return str(getattr(handler, "__module__", "")).startswith("pyspark.")


def _leave_last_words(error: BaseException | None) -> None:
    """Says what ended the container where Kubernetes looks; the log's end is a Java stack."""
    if error is None or isinstance(error, KeyboardInterrupt):
        return
    lines = str(error).partition("JVM stacktrace")[0].splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith(("at ", "...")))
    with suppress(OSError):
        TERMINATION_LOG.write_text(f"{type(error).__name__}: {text}"[:MAX_LAST_WORDS], "utf-8")
