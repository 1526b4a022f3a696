"""The Kubernetes operator: runs BalancedStreams, and keeps them balanced and right-sized.

`process.operator` has a task for each BalancedStream, which makes one pass after the other
(`process.passes`). A pass reconciles the stream, reports the outcome and writes the status. To
reconcile it means to create the objects that the stream consists of, to ask Prometheus what its
driver measured, to let `balancedstream.core` decide, and to write the decision as a plan for the
driver (`reconcile.reconciler`).

Parameters have the same meaning everywhere: `stream` and `cluster` name a BalancedStream and
where it is; `resource` is the BalancedStream as the API server has it; `spec`, `policy` and
`metadata` are its own, and `before` is its last status; `driver`, `measurement`, `decided` and
`outcome` are those of the pass; `now_s` counts seconds since the Unix epoch. Whatever uses a
`cluster` raises ClusterError as `kube.cluster` says.
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
