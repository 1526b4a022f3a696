"""Becomes a Python that runs the script, with `companion.py` in its process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from balancedstream.engine.session.java import check_java
from balancedstream.errors import InvalidInputError, MissingPackageError
from balancedstream.launch.run_options import RunOptions
from balancedstream.report import prepare_directory
from balancedstream.report.windows import MIN_BEFORE_BATCHES
from balancedstream.version import say_install

STARTUP = Path(__file__).parents[1] / "startup"
"""Has the module that such a Python imports first."""

STANDARD_INPUT = "-"

HIDING = frozenset("EIPSs")
"""Flags of Python that a script under `balancedstream run` does not inherit: how the command was
installed says whether it ignores the environment, and the script's Python has to look at it."""


def run_app(options: RunOptions) -> NoReturn:
    """Replaces this process by the script's, which ends as the script ends.

    What can be refused is refused before.

    Raises:
        BalancedStreamError: the run could not begin.
    """
    _check_app(options)
    _check_baseline(options)
    _check_packages(options)
    check_java()
    for option, directory in (("--report", options.report_dir), ("--record", options.record_dir)):
        if directory:
            prepare_directory(directory, option)
    if options.metrics_port is not None:
        _check_port(options.metrics_port, options.metrics_address)
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None where the shell closed it
        stream.flush()
    environment = os.environ | options.to_environment()
    path = os.environ.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(STARTUP), path)))
    module = ["-m"] if options.is_module else []
    command = [sys.executable, *inherit_flags(sys.orig_argv), *module, options.app, *options.args]
    try:
        os.execve(sys.executable, command, environment)  # noqa: S606 - the script's own Python
    except OSError as error:
        message = f"{sys.executable} cannot be started: {error}. Nothing was started."
        raise InvalidInputError(message) from error


def inherit_flags(command: Sequence[str]) -> list[str]:
    """The flags in this Python's command (`sys.orig_argv`) that the script's Python gets, too.

    >>> inherit_flags(["python3", "-sBW", "error", "-Xdev", "-m", "balancedstream.cli", "-O"])
    ['-B', '-Werror', '-Xdev']
    """
    found: list[str] = []
    arguments = iter(command[1:])
    for argument in arguments:
        if not argument.startswith("-") or argument == STANDARD_INPUT:
            break
        if argument.startswith("--"):
            found += [argument, next(arguments, "")]
            continue
        for position, letter in enumerate(argument[1:], 2):
            if letter in "mc":
                return found
            if letter in "WX":
                found.append(f"-{letter}{argument[position:] or next(arguments, '')}")
                break
            if letter not in HIDING:
                found.append(f"-{letter}")
    return found


def _check_app(options: RunOptions) -> None:
    if options.is_module or options.app == STANDARD_INPUT:
        return
    app = Path(options.app)
    try:
        if app.is_dir() and not (app / "__main__.py").is_file():
            message = f"{app} is a folder without a __main__.py. Nothing was started."
            raise InvalidInputError(message)
        is_there = app.exists()
    except (OSError, ValueError) as error:
        message = f"the script cannot be read: {error}. Nothing was started."
        raise InvalidInputError(message) from error
    if not is_there:
        message = f"no such script: {app}. Nothing was started."
        raise InvalidInputError(message)


def _check_baseline(options: RunOptions) -> None:
    batches = options.baseline_batches
    if batches and options.stream:
        message = (
            f"--baseline: not with --stream {options.stream}, for which the operator makes the "
            "plans. Nothing was started. To measure first there, set spec.balancing.mode and "
            'spec.scaling.mode to "Off", and to Auto later.'
        )
        raise InvalidInputError(message)
    if batches and batches < MIN_BEFORE_BATCHES:
        message = (
            f"--baseline: must be 0, or at least {MIN_BEFORE_BATCHES} batches, not {batches}: the "
            "report compares with no fewer. Nothing was started."
        )
        raise InvalidInputError(message)


def _check_packages(options: RunOptions) -> None:
    if _is_missing("pyspark"):
        message = (
            "`run` needs the package pyspark, which is not installed. Nothing was started. "
            f"Install it, {say_install('spark')}"
        )
        raise MissingPackageError(message)
    # Only a driver pod has the Kubernetes client installed.
    if options.stream is not None:
        if _is_missing("kubernetes"):
            message = (
                "--stream: the package kubernetes is missing. Nothing was started. Build the image "
                f"on balancedstream-spark, which has it, or install it, {say_install('kubernetes')}"
            )
            raise MissingPackageError(message)
        from balancedstream.launch.kubernetes import StreamName  # noqa: PLC0415

        StreamName.parse(options.stream)


def _is_missing(package: str) -> bool:
    try:
        return find_spec(package) is None
    except ValueError:
        return True


def _check_port(port: int, address: str) -> None:
    """Tries what the script's process will do, while it can still be refused."""
    from balancedstream.metrics.exporter import Exporter  # noqa: PLC0415

    exporter = Exporter()
    exporter.start(port, address)
    exporter.close()
