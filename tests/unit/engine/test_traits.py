"""What each version of Spark has, and what a script is told that asks for more."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import balancedstream
from balancedstream.engine import traits
from balancedstream.engine.traits import (
    NEWEST,
    UnsupportedSparkError,
    check_feature,
    find_traits,
    is_tested,
    name_version,
    read_version,
    to_scala_list,
)
from balancedstream.version import TESTED_SPARK

ROOT = Path(__file__).parents[3]
FEATURES_OF_SPARK = (
    "loads_ahead",
    "reports_restores",
    "has_unix_sockets",
    "has_commit_ids",
    "keeps_formats",
)


@pytest.mark.parametrize(
    ("version", "lacks"),
    [
        ("3.5.9", set(FEATURES_OF_SPARK)),
        ("4.0.2", set(FEATURES_OF_SPARK)),
        ("4.1.1", {"keeps_formats"}),
        ("4.2.0", {"keeps_formats"}),
        ("4.3.0", set()),
    ],
)
def test_a_version_has_all_but_what_came_later(version: str, lacks: set[str]) -> None:
    found = find_traits(version)
    assert {name for name in FEATURES_OF_SPARK if not getattr(found, name)} == lacks


def test_the_file_manager_is_where_the_version_has_it() -> None:
    name = "org.apache.spark.sql.execution.streaming.{}FileSystemBasedCheckpointFileManager"
    assert find_traits("4.0.2").renaming_file_manager == name.format("")
    assert find_traits("4.1.1").renaming_file_manager == name.format("checkpointing.")


def test_a_version_that_nobody_knows_yet_counts_as_the_newest() -> None:
    newer = find_traits("5.1.0")
    assert newer.renaming_file_manager == NEWEST.renaming_file_manager
    assert newer.list_weaknesses() == ()
    assert not is_tested("5.1.0")


@pytest.mark.parametrize(
    ("version", "names"), [("3.5.6", ["4.1", "4.1", "4.1"]), ("4.0.2", ["4.1", "4.1", "4.1"])]
)
def test_each_weakness_names_the_version_that_does_not_have_it(
    version: str, names: list[str]
) -> None:
    sentences = find_traits(version).list_weaknesses()
    assert len(sentences) == len(names)
    for sentence, name in zip(sentences, names, strict=True):
        assert sentence.startswith(f"Spark {version[:3]} ")
        assert f"(Spark {name} " in sentence


def test_what_is_no_version_is_no_version() -> None:
    with pytest.raises(ValueError, match="no version of Spark: 'latest'"):
        read_version("latest")


@pytest.mark.parametrize(
    ("name", "version", "first"),
    [("balanced", "4.1.4", "4.2"), ("balanced", "3.5.9", "4.2"), ("shuffle", "4.0.5", "4.1")],
)
def test_a_feature_that_this_pyspark_lacks_is_refused_with_the_version_that_has_it(
    name: str, version: str, first: str
) -> None:
    with pytest.raises(UnsupportedSparkError) as refused:
        check_feature(name, version)
    message = str(refused.value)
    assert message.startswith(f"balancedstream.{name} needs ")
    assert f"PySpark {version}" in message
    assert f"Use PySpark {first} or newer" in message
    assert "Nothing was started" in message


@pytest.mark.parametrize(("name", "version"), [("balanced", "4.2.0"), ("shuffle", "4.1.4")])
def test_a_feature_that_this_pyspark_has_is_not_refused(name: str, version: str) -> None:
    check_feature(name, version)


@pytest.mark.parametrize("name", ["balanced", "Aggregator", "read_state", "shuffle", "Shuffle"])
def test_a_script_is_told_where_it_imports_what_this_pyspark_lacks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(feature: str) -> None:
        asked.append(feature)
        message = "not with this one"
        raise UnsupportedSparkError(message)

    monkeypatch.setattr(traits, "check_feature", refuse)
    with pytest.raises(UnsupportedSparkError, match="not with this one"):
        getattr(balancedstream, name)
    assert asked == ["shuffle" if name.lower() == "shuffle" else "balanced"]


def test_attaching_needs_none_of_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traits, "check_feature", mock.Mock(side_effect=AssertionError))
    assert balancedstream.attach is not None


def test_a_scala_list_has_the_values_in_their_order() -> None:
    jvm: Any = mock.MagicMock()
    items: list[str] = []
    jvm.java.util.ArrayList.return_value.add = items.append
    made = to_scala_list(jvm, ["2", "1"])
    assert items == ["2", "1"]
    convert = jvm.scala.collection.JavaConverters.asScalaBuffer
    convert.assert_called_once_with(jvm.java.util.ArrayList.return_value)
    assert made is convert.return_value.toList.return_value


def test_the_tests_run_with_every_version_that_counts_as_tested() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    older = re.search(r"^SPARKS := (.*)$", makefile, re.M)
    newest = re.search(r"^pyspark==(.*)$", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    assert older
    assert newest
    versions = [*older[1].split(), newest[1]]
    assert tuple(name_version(read_version(each)) for each in versions) == TESTED_SPARK


def test_the_package_takes_the_versions_that_are_tested() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (wanted,) = [
        line
        for line in package["project"]["optional-dependencies"]["spark"]
        if line.startswith("pyspark")
    ]
    major, minor = read_version(TESTED_SPARK[-1])
    assert wanted == f"pyspark>={TESTED_SPARK[0]},<{major}.{minor + 1}"
