"""What is found possible with a Spark, and the sentence for each thing that is not."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from py4j.protocol import Py4JError

from balancedstream.engine import capabilities
from balancedstream.engine.capabilities import check_capabilities
from balancedstream.engine.jvm.listener import Listener
from balancedstream.engine.traits import find_traits

CLUSTER = "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend"
LOCAL = "org.apache.spark.scheduler.local.LocalSchedulerBackend"


def make_session(version: str = "4.3.0", backend: str = CLUSTER) -> Any:
    session = mock.MagicMock(version=version)
    session.sparkContext.master = "local[2]" if backend == LOCAL else "spark://here"
    scheduler = session.sparkContext._jsc.sc.return_value.schedulerBackend.return_value
    scheduler.getClass.return_value.getName.return_value = backend
    return session


@pytest.fixture(autouse=True)
def coordinator(monkeypatch: pytest.MonkeyPatch) -> mock.MagicMock:
    """Spark's, which has the store that the self-test reports where it was reported."""
    coordinator = mock.MagicMock()
    found = coordinator.getLocation.return_value
    found.toString.return_value = "Some(executor_host_executor)"
    started = Listener("the listener", None, None, None, "")
    monkeypatch.setattr(capabilities, "start_listener", lambda spark, loads_ahead: started)
    monkeypatch.setattr(capabilities, "find_coordinator", lambda spark: coordinator)
    return coordinator


@pytest.mark.parametrize("version", ["4.1.4", "4.2.0", "4.3.0", "4.3.1"])
def test_with_a_tested_spark_on_a_cluster_all_is_possible(
    version: str, coordinator: mock.MagicMock
) -> None:
    found = check_capabilities(make_session(version))
    assert (found.placement, found.preparing, found.problems) == (True, True, ())
    assert found.listener == "the listener"
    # The store that was only reported for the test is gone.
    coordinator.deactivateInstances.assert_called_once()


def test_a_spark_that_was_never_tested_is_named_and_tried() -> None:
    found = check_capabilities(make_session("4.9.1"))
    (problem,) = found.problems
    assert "4.9.1" in problem
    assert "4.2 and 4.3" in problem
    assert found.placement


@pytest.mark.parametrize("version", ["3.4.4", "3.3.4", "2.4.8"])
def test_a_spark_that_is_too_old_is_left_alone_and_one_line_says_what_to_do(
    version: str, loads: list[bool], coordinator: mock.MagicMock
) -> None:
    found = check_capabilities(make_session(version))
    assert (found.placement, found.preparing, found.listener) == (False, False, None)
    assert (loads, coordinator.method_calls) == ([], [])
    (problem,) = found.problems
    assert f"Spark {version} is too old" in problem
    assert "The job runs on without balancing; no data is at risk" in problem
    assert "Use Spark 3.5 or newer" in problem


def test_a_spark_without_the_private_api_is_refused_with_its_first_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(spark: Any, loads_ahead: bool) -> Any:
        message = "no method place\nat io.py4j"
        raise Py4JError(message)

    monkeypatch.setattr(capabilities, "start_listener", fail)
    found = check_capabilities(make_session())
    assert not found.placement
    assert found.listener is None
    (problem,) = found.problems
    assert "(no method place)" in problem
    assert "4.2 and 4.3 are tested" in problem


def test_without_the_classes_that_load_state_ahead_partitions_move_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = Listener("the listener", None, None, None, "no method release")
    monkeypatch.setattr(capabilities, "start_listener", lambda spark, loads_ahead: started)
    found = check_capabilities(make_session())
    assert (found.placement, found.preparing) == (True, False)
    (problem,) = found.problems
    assert "(no method release)" in problem
    assert "Results are right" in problem


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each listener that is started is to have executors load state ahead."""
    asked: list[bool] = []

    def start(spark: Any, loads_ahead: bool) -> Listener:
        asked.append(loads_ahead)
        return Listener("the listener", None, None, None, "")

    monkeypatch.setattr(capabilities, "start_listener", start)
    return asked


@pytest.mark.parametrize("version", ["3.5.6", "4.0.2"])
def test_an_older_spark_is_balanced_and_what_is_weaker_is_said_once(
    version: str, loads: list[bool]
) -> None:
    found = check_capabilities(make_session(version))
    assert (found.placement, found.preparing, loads) == (True, False, [False])
    assert found.problems == find_traits(version).list_weaknesses()


def test_who_only_watches_gives_executors_nothing_to_load(loads: list[bool]) -> None:
    found = check_capabilities(make_session(), acts=False)
    assert (found.placement, found.preparing, found.problems, loads) == (True, False, (), [False])


def test_a_store_that_is_not_found_where_it_was_reported_cannot_be_placed(
    coordinator: mock.MagicMock,
) -> None:
    coordinator.getLocation.return_value.toString.return_value = "None"
    found = check_capabilities(make_session())
    assert not found.placement
    assert found.listener is None


def test_a_single_executor_in_the_driver_leaves_nothing_to_balance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(capabilities, "start_listener", started.append)
    found = check_capabilities(make_session(backend=LOCAL))
    assert not found.placement
    (problem,) = found.problems
    assert "local[2]" in problem
    assert not started, "a listener that nobody reads would collect events without end"
    assert "--local MIN:MAX" in problem
