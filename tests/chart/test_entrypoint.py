"""What the spark image's entrypoint makes of its arguments and of Spark's variables."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]

ENTRYPOINT = Path(__file__).parents[2] / "docker" / "entrypoint.sh"
TINI = "/usr/bin/tini -s --"
ARCHIVE = "/opt/spark.jsa"

EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "clicks-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


def start(
    tmp_path: Path, arguments: list[str], variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs the script with a tini that prints its arguments, each ended by a null character."""
    script = tmp_path / "entrypoint.sh"
    text = ENTRYPOINT.read_text("utf-8")
    assert text.count(TINI) == 3
    text = text.replace(TINI, r"printf '%s\0'").replace(ARCHIVE, str(tmp_path / "spark.jsa"))
    script.write_text(text, "utf-8")
    environment = {"PATH": os.environ["PATH"], "SPARK_HOME": "/spark", "JAVA_HOME": "/java"}
    command = ["bash", str(script), *arguments]
    return subprocess.run(
        command, env={**environment, **variables}, capture_output=True, text=True, check=False
    )


def started(tmp_path: Path, arguments: list[str], variables: Mapping[str, str]) -> list[str]:
    result = start(tmp_path, arguments, variables)
    assert result.returncode == 0, result.stderr
    return result.stdout.split("\0")[:-1]


def test_a_command_is_run_as_it_is(tmp_path: Path) -> None:
    assert started(tmp_path, ["balancedstream", "run", "a b"], {}) == [
        "balancedstream",
        "run",
        "a b",
    ]


def test_a_driver_of_the_cluster_mode_is_submitted_again_within_its_pod(tmp_path: Path) -> None:
    variables = {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7"}
    assert started(tmp_path, ["driver", "--class", "Main", "local:///a b.jar"], variables) == [
        "/spark/bin/spark-submit",
        "--conf",
        "spark.driver.bindAddress=10.0.0.7",
        "--conf",
        "spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.7",
        "--deploy-mode",
        "client",
        "--class",
        "Main",
        "local:///a b.jar",
    ]


def test_an_executor_is_started_from_sparks_variables(tmp_path: Path) -> None:
    backend = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    command = started(tmp_path, ["executor"], EXECUTOR)
    assert command[:5] == ["/java/bin/java", "-Xms1g", "-Xmx1g", "-cp", "/spark/conf:/spark/jars/*"]
    assert command[5] == backend
    assert dict(zip(command[6::2], command[7::2], strict=True)) == {
        "--driver-url": "spark://driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "clicks-exec-3",
    }


def test_java_options_keep_their_order_and_their_blanks(tmp_path: Path) -> None:
    options = [f"-Doption{i}=a 'b'\n${i} *" for i in range(12)]
    variables = {f"SPARK_JAVA_OPT_{i}": option for i, option in enumerate(options)}
    command = started(tmp_path, ["executor"], {**EXECUTOR, **variables})
    assert command[1:13] == options


def test_classpath(tmp_path: Path) -> None:
    variables = {
        "SPARK_CONF_DIR": "/conf",
        "HADOOP_CONF_DIR": "/hadoop",
        "SPARK_CLASSPATH": "/user/*",
        "SPARK_EXTRA_CLASSPATH": "",
        "SPARK_DIST_CLASSPATH": "/dist",
    }
    command = started(tmp_path, ["executor"], {**EXECUTOR, **variables})
    assert command[command.index("-cp") + 1] == "/conf:/hadoop:/user/*:/spark/jars/*:/dist"


def archive_classes(tmp_path: Path) -> dict[str, str]:
    """An archive of two jars, and a folder of Spark's with one more: the variables for it."""
    jars = tmp_path / "jars"
    jars.mkdir()
    for name in ("a", "b", "kafka"):
        (jars / f"{name}.jar").touch()
    (tmp_path / "spark.jsa").touch()
    (tmp_path / "spark.jsa.classpath").write_text(f"{jars}/b.jar:{jars}/a.jar")
    return {**EXECUTOR, "SPARK_HOME": str(tmp_path), "SPARK_CONF_DIR": "/conf"}


def test_archived_classes_are_used_and_their_jars_come_first_in_their_order(tmp_path: Path) -> None:
    variables = archive_classes(tmp_path) | {"SPARK_JAVA_OPT_0": "-Xlog:cds=info"}
    command = started(tmp_path, ["executor"], variables)
    assert command[1:6] == [
        f"-XX:SharedArchiveFile={tmp_path}/spark.jsa",
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:ArchiveRelocationMode=0",
        "-Xlog:cds=off",
        "-Xlog:cds=info",
    ]
    jars = tmp_path / "jars"
    classpath = command[command.index("-cp") + 1]
    assert classpath == f"{jars}/b.jar:{jars}/a.jar:/conf:{jars}/kafka.jar"


def test_no_archive_is_used_where_the_users_classes_come_before_sparks(tmp_path: Path) -> None:
    variables = archive_classes(tmp_path) | {"SPARK_CLASSPATH": "/user/*"}
    command = started(tmp_path, ["executor"], variables)
    assert command[command.index("-cp") + 1] == f"/conf:/user/*:{tmp_path}/jars/*"
    assert not any("Archive" in word for word in command)


@pytest.mark.parametrize("missing", EXECUTOR)
def test_a_missing_variable_is_named(tmp_path: Path, missing: str) -> None:
    variables = {name: value for name, value in EXECUTOR.items() if name != missing}
    result = start(tmp_path, ["executor"], variables)
    assert result.returncode != 0
    assert f"{missing}: unbound variable" in result.stderr
