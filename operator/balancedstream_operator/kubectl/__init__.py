"""`kubectl bst`: what is wrong with a stream, what is being done, and what to do."""

from __future__ import annotations

import sys

from balancedstream.version import say_install

PACKAGES = say_install("plugin")

EXIT_ERROR = 2


def run() -> None:
    """The command `kubectl bst`; packages that are missing are one sentence."""
    try:
        from balancedstream_operator.kubectl.main import main  # noqa: PLC0415 - it needs the packages
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package.startswith("balancedstream"):
            raise
        message = (
            f"error: kubectl bst needs {package}, which is not installed. Install it, {PACKAGES}"
        )
        print(message, file=sys.stderr)
        sys.exit(EXIT_ERROR)
    sys.exit(main())
