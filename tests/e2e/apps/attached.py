"""Runs a script whose driver follows the plans of a BalancedStream, as the plugin's agent does.

attached.py NAMESPACE/NAME SCRIPT ARGUMENTS
"""

from __future__ import annotations

import runpy
import sys

from pyspark.sql import SparkSession

from balancedstream import attach
from balancedstream.incluster import ClusterPlanChannel, StreamName, connect
from balancedstream.metrics.exporter import Exporter

METRICS_PORT = 9404


def main() -> None:
    """Runs until the script ends."""
    stream, script, *arguments = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    exporter = Exporter(stream=stream)
    exporter.start(METRICS_PORT, "0.0.0.0")  # noqa: S104 - Prometheus is in another pod
    application = spark.sparkContext.applicationId
    plans = ClusterPlanChannel(connect(), StreamName.parse(stream), application=application)
    plans.start()
    attach(spark, metrics=exporter, plans=plans)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
