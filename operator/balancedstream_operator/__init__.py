"""The Kubernetes operator: runs BalancedStreams, and keeps them balanced and right-sized.

`main` gets the resources from `following`. For each of them a `Supervisor` (`supervising`) makes
one pass after the other: it creates the objects that a stream consists of, asks Prometheus what the
stream's driver measured, lets `balancedstream.core` decide, and writes the decision as a plan for
the driver and as conditions, events and figures for the user (`reporting`).
"""

from __future__ import annotations

import sys

from balancedstream.version import say_install

PACKAGES = say_install("operator")


def run() -> None:
    """The command `balancedstream-operator`; packages that are missing are one sentence."""
    try:
        from balancedstream_operator.main import main  # noqa: PLC0415 - it needs the packages
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package.startswith("balancedstream"):
            raise
        message = (
            f"balancedstream-operator: the package {package} is not installed, so nothing was "
            f"started. Install what the operator needs, {PACKAGES}"
        )
        sys.exit(message)
    main()
