"""What ended a query, in one line."""

from __future__ import annotations

import errno
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancedstream.engine.causes import name_cause

FOREACH = """org.apache.spark.SparkException: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred
\tat org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink.addBatch(X.scala:1)
Caused by: py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: {}

\tat py4j.Protocol.getReturnValue(Protocol.java:476)
"""


def fail(error: Exception) -> str:
    try:
        raise error
    except Exception:
        return traceback.format_exc()


def test_slots_that_a_query_in_real_time_mode_did_not_find_are_named_with_both_numbers() -> None:
    said = name_cause(
        "org.apache.spark.SparkException: [CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT] Cannot run the "
        "pipelined stage group: it needs 6 concurrent task slots to run all its stages together, "
        "but only 5 are currently free. The stages of a pipelined group must run\n\tat a.B.c(B:1)"
    )
    assert "it needs 6 slots, and 5 were free" in said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("sink is away"), "RuntimeError: sink is away"),
        (KeyError(5), "KeyError: 5"),
        (ValueError("two\nlines"), "ValueError: two"),
        (StopIteration(), "StopIteration"),
    ],
)
def test_the_error_of_a_function_comes_first(error: Exception, said: str) -> None:
    assert name_cause(FOREACH.format(fail(error))) == said


def test_of_errors_that_follow_each_other_the_last_is_said() -> None:
    try:
        try:
            raise KeyError(1)
        except KeyError as error:
            raise OSError(errno.ENOENT, "no such bucket") from error
    except OSError:
        said = name_cause(FOREACH.format(traceback.format_exc()))
        assert said == "FileNotFoundError: [Errno 2] no such bucket"


def test_without_python_it_is_what_spark_says_first() -> None:
    text = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 4 times\n"
        "\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)"
    )
    assert name_cause(text) == (
        "SparkException: Job aborted due to stage failure: Task 0 failed 4 times"
    )


@given(st.text())
def test_any_text_has_a_cause_of_one_line(text: str) -> None:
    said = name_cause(text)
    assert said
    assert len(said.splitlines()) == 1
