"""Executors that are gone are forgotten where that may be and can be, and nothing else suffers."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from py4j.protocol import Py4JJavaError

from balancedstream.engine.gone import GoneExecutors


def make_session() -> mock.Mock:
    """A driver with one executor, of a Spark that has no field of the name that is asked for."""
    spark = mock.Mock()
    context = spark.sparkContext._jsc.sc.return_value
    context.getExecutorIds.return_value.size.return_value = 1
    error = Py4JJavaError("no such field", mock.MagicMock())
    found = spark._jvm.java.lang.Class.forName.return_value
    found.getDeclaredField.side_effect = error
    return spark


def test_a_spark_that_keeps_them_elsewhere_is_said_once_and_asked_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spark: Any = make_session()
    gone = GoneExecutors(spark)
    for _ in range(3):
        gone.watch()
        assert gone.forget() == []
    (said,) = caplog.records
    assert said.getMessage().startswith("executors that are gone are not forgotten")


def test_an_engine_that_only_measures_changes_nothing_in_the_driver() -> None:
    spark: Any = make_session()
    gone = GoneExecutors(spark, acts=False)
    gone.watch()
    assert gone.forget() == []
    spark._jvm.java.lang.Class.forName.assert_not_called()
