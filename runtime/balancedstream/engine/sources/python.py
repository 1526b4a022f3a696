"""Sources that are written in Python (`DataSourceStreamReader`), since Spark 4.2."""

from __future__ import annotations

from balancedstream.engine.sources.limits import (
    PYTHON,
    SourceLimits,
    UnboundedError,
    Unit,
    read_python_rows,
)
from balancedstream.engine.sources.progress import SourceKind

_PACKAGE = "org.apache.spark.sql.execution.datasources.v2.python."


class PythonSource(SourceKind):
    """Takes limits of one class alone; its reader may know only the one that it has by default."""

    java_classes = (
        f"{_PACKAGE}PythonMicroBatchStreamWithAdmissionControl",
        f"{_PACKAGE}PythonMicroBatchStreamWithTriggerAvailableNow",
    )

    @staticmethod
    def choose_unit(limits: SourceLimits) -> Unit:
        """Rows, where its own limit is one of rows (`getDefaultReadLimit`).

        Raises:
            UnboundedError: it has another limit, or none.
        """
        limits.check_own(PYTHON)
        if PYTHON not in limits.own or read_python_rows(limits.own[PYTHON]) is None:
            message = "it does not limit its own rows (getDefaultReadLimit)"
            raise UnboundedError(message)
        return "python"
