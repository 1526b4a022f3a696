from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from balancedstream.engine.session.filemanagers import FILE_MANAGER
from balancedstream.engine.session.java import parse_java_version
from balancedstream.engine.session.local import LocalExecutors
from balancedstream.engine.session.session import describe_cluster
from balancedstream.engine.session.settings import (
    CHANGELOG,
    CHECKPOINT_FORMAT,
    DYNAMIC_ALLOCATION,
    HEARTBEAT,
    HEARTBEAT_CHECKS,
    HEARTBEAT_TIMEOUT,
    HEARTBEATS,
    INSTANCES,
    LOCALITY_WAIT,
    LOCALITY_WAIT_IS_OURS,
    LOCALITY_WAIT_PROCESS,
    NETWORK_TIMEOUT,
    PIPELINED_UDFS,
    PROVIDER,
    SCHEDULER_MODE,
    SETTINGS,
    SHUFFLE_PARTITIONS,
    UNIX_SOCKETS,
    UNLOAD_ON_COMMIT,
    DynamicAllocationError,
    find_own_wait,
    tune,
)
from balancedstream.engine.traits import find_traits
from balancedstream.errors import InvalidInputError
from balancedstream.version import TESTED_SPARK

PLUGIN = Path(__file__).parents[4] / "spark-plugin/src/io/balancedstream/Plugin.java"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def test_dynamic_allocation_is_refused_with_what_to_do() -> None:
    with pytest.raises(DynamicAllocationError, match=r"Remove the setting.*scaling.max_executors"):
        tune({DYNAMIC_ALLOCATION: "true"}, executors=4)


def test_the_plugin_sets_of_them_what_an_executor_needs_to_leave_when_it_is_told_to() -> None:
    set_there = dict(re.findall(r'\{"(spark\.[\w.]+)", "(\w+)"\}', PLUGIN.read_text("utf-8")))
    leaving = {s.key: s.value for s in SETTINGS if "decommission" in s.key}
    assert set_there == leaving != {}


def test_dynamic_allocation_set_to_false_is_fine() -> None:
    assert tune({DYNAMIC_ALLOCATION: "false"}, executors=4)[1] == []


def test_partitions_are_eight_for_each_executor_unless_the_user_says_otherwise() -> None:
    assert tune({}, executors=4)[0][SHUFFLE_PARTITIONS] == "32"
    assert SHUFFLE_PARTITIONS not in tune({SHUFFLE_PARTITIONS: "64"}, executors=4)[0]
    assert SHUFFLE_PARTITIONS not in tune({}, executors=None)[0]


def test_a_setting_of_the_user_is_never_replaced() -> None:
    user = {CHANGELOG: "false", CHECKPOINT_FORMAT: "1"}
    added, warnings = tune(user, executors=None)
    assert not added.keys() & user.keys()
    assert len(warnings) == 2


def test_a_format_that_a_version_cannot_leave_gives_no_warning() -> None:
    assert tune({CHECKPOINT_FORMAT: "1"}, executors=None, spark=find_traits("4.0.5"))[1] == []


def test_the_hdfs_provider_is_kept_and_a_warning_says_what_follows() -> None:
    added, warnings = tune({PROVIDER: HDFS}, executors=None)
    assert PROVIDER not in added
    assert "HDFSBackedStateStoreProvider" in warnings[0]


@pytest.mark.parametrize(
    ("user", "executors", "interval_s"),
    [
        ({}, None, 2),
        ({}, 4, 2),
        ({}, 200, 2),
        ({}, 450, 5),
        ({}, 1000, 10),
        ({}, 5000, 10),
        # On Kubernetes only the partitions tell how many executors there may be.
        ({INSTANCES: "3", SHUFFLE_PARTITIONS: "8000"}, None, 10),
        ({INSTANCES: "600"}, None, 6),
    ],
)
def test_more_executors_send_heartbeats_less_often_and_may_be_silent_for_longer(
    user: dict[str, str], executors: int | None, interval_s: int
) -> None:
    added, _ = tune(user, executors)
    assert added[HEARTBEAT] == added[HEARTBEAT_CHECKS] == f"{interval_s}s"
    assert added[HEARTBEAT_TIMEOUT] == str(10_000 * interval_s)


@pytest.mark.parametrize("version", TESTED_SPARK)
def test_settings_that_came_later_are_left_out_and_classes_named_as_the_driver_has_them(
    version: str,
) -> None:
    spark = find_traits(version)
    added, warnings = tune({}, executors=4, spark=spark)
    assert (CHECKPOINT_FORMAT in added) is spark.has_commit_ids
    assert (UNIX_SOCKETS in added) is spark.has_unix_sockets
    assert (SCHEDULER_MODE in added) is spark.loads_ahead
    assert added[FILE_MANAGER] == spark.renaming_file_manager
    assert not warnings


@pytest.mark.parametrize("version", TESTED_SPARK)
def test_any_version_gets_along_with_pipelined_functions(version: str) -> None:
    added, _ = tune({PIPELINED_UDFS: "true"}, executors=4, spark=find_traits(version))
    assert UNIX_SOCKETS not in added


@pytest.mark.parametrize("key", [*HEARTBEATS, NETWORK_TIMEOUT])
def test_one_setting_of_the_users_on_heartbeats_keeps_all_of_ours_away_but_how_often_spark_looks(
    key: str,
) -> None:
    added, _ = tune({key: "30s"}, executors=1000)
    ours = added.keys() & {*HEARTBEATS, NETWORK_TIMEOUT}
    assert ours == {HEARTBEAT_CHECKS} - {key}


def test_with_a_short_network_timeout_of_the_users_spark_looks_more_often_than_that() -> None:
    added, _ = tune({NETWORK_TIMEOUT: "40s"}, executors=1000)
    assert added[HEARTBEAT_CHECKS] == "2s", "Spark refuses its own 60 s"


def test_workers_are_reached_over_unix_sockets_unless_the_user_pipelines_python_functions() -> None:
    assert tune({PIPELINED_UDFS: "false"}, executors=None)[0][UNIX_SOCKETS] == "true"
    assert UNIX_SOCKETS not in tune({PIPELINED_UDFS: "true"}, executors=None)[0]


@pytest.mark.parametrize("key", [LOCALITY_WAIT, LOCALITY_WAIT_PROCESS])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0s", "no task waits"),
        ("0", "no task waits"),
        ("0ms", "no task waits"),
        ("1s", "a task that has waited this long"),
        ("100", "a task that has waited this long"),
        ("30", "a task that has waited this long"),
    ],
)
def test_a_locality_wait_of_the_user_stays_and_what_follows_is_said(
    key: str, value: str, said: str
) -> None:
    assert find_own_wait({key: value}).startswith(f"{key}={value} is yours and stays: {said}")


def test_the_wait_for_an_executor_counts_and_not_those_after_it() -> None:
    assert find_own_wait({LOCALITY_WAIT: "0s", LOCALITY_WAIT_PROCESS: "5s"}).startswith(
        f"{LOCALITY_WAIT_PROCESS}=5s"
    )
    assert find_own_wait({f"{LOCALITY_WAIT}.node": "0s", f"{LOCALITY_WAIT}.rack": "0s"}) == ""


def test_a_wait_that_balancedstream_set_is_not_taken_for_the_users() -> None:
    assert find_own_wait({LOCALITY_WAIT_IS_OURS: "true", LOCALITY_WAIT_PROCESS: "10s"}) == ""


def test_unloading_on_commit_is_warned_of() -> None:
    assert "no placement lasts" in tune({UNLOAD_ON_COMMIT: "true"}, executors=None)[1][0]


def test_applications_that_begin_in_the_same_second_differ_by_their_process() -> None:
    added = describe_cluster({"spark.executor.cores": "2"}, LocalExecutors(1, 3))
    assert added["spark.deploy.appIdPattern"].endswith(f"-{os.getpid()}")
    assert added["spark.master"] == "local-cluster[3,2,1024]"
    own = {"spark.deploy.appIdPattern": "mine-%s-%04d"}
    assert "spark.deploy.appIdPattern" not in describe_cluster(own, LocalExecutors(1, 3))


def test_one_number_of_executors_is_both_least_and_most() -> None:
    assert LocalExecutors.parse("3") == LocalExecutors(3, 3)


@pytest.mark.parametrize("text", ["", "0:4", "4:2", "a:b", "1:2:3", "-1", "2:", ":2"])
def test_a_senseless_number_of_executors_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^--local: must be MIN:MAX"):
        LocalExecutors.parse(text)


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("Unrecognized VM option", None),
    ],
)
def test_java_says_its_version_in_several_ways(printed: str, version: int | None) -> None:
    assert parse_java_version(printed) == version


@pytest.mark.parametrize(
    ("memory", "mib"),
    [
        *((text, 2048) for text in ("2g", "2G", "2gb", " 2g ", "2048m", "2048", "2097152k")),
        ("2147483648b", 2048),
        ("1t", 1024**2),
        (None, 1024),
    ],
)
def test_the_memory_of_local_executors_is_read_as_spark_reads_it(
    memory: str | None, mib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_EXECUTOR_MEMORY", raising=False)
    user = {} if memory is None else {"spark.executor.memory": memory}
    added = describe_cluster(user, LocalExecutors(2, 2))
    assert added["spark.master"] == f"local-cluster[2,1,{mib}]"
    assert added["spark.executor.memory"] == f"{mib}m"


def test_the_memory_of_local_executors_may_come_from_sparks_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_EXECUTOR_MEMORY", "3g")
    assert describe_cluster({}, LocalExecutors(1, 1))["spark.executor.memory"] == "3072m"


@pytest.mark.parametrize("memory", ["lots", "1.5g", "2 g", "", "-1g"])
def test_a_memory_that_is_none_is_left_for_spark_to_refuse(memory: str) -> None:
    added = describe_cluster({"spark.executor.memory": memory or "?"}, LocalExecutors(1, 1))
    assert "spark.executor.memory" not in added


def test_workers_of_local_executors_begin_in_the_scripts_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"libs{os.pathsep}/elsewhere{os.pathsep}")
    added = describe_cluster({"spark.executorEnv.PYTHONPATH": "own"}, LocalExecutors(1, 1))
    first, *path = added["spark.executorEnv.PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / "sitecustomize.py").is_file()
    assert path == [str(tmp_path / "own"), str(tmp_path / "libs"), "/elsewhere"]
    assert added["spark.executorEnv.BALANCEDSTREAM_FOLDER"] == str(tmp_path)
