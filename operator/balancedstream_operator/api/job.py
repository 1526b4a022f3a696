"""What a job that the operator runs consists of: parts of the spec of a BalancedStream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from balancedstream.core.sizing import parse_mib
from balancedstream_operator.api.resource import NAME
from balancedstream_operator.api.schema import (
    Foreign,
    Number,
    Part,
    Schema,
    Switch,
    Text,
    Texts,
    rule,
)

GROUP_ID = 10001
"""Group of the images' user."""

_NUMBER = r"[1-9][0-9]{0,8}"
"""Kubernetes cuts a quantity at 2^63 - 1 without a word; no sum of two of these gets there."""

_MEMORY = rf"{_NUMBER}[mg]"
_CPU = rf"({_NUMBER}m|{_NUMBER})"


@dataclass(frozen=True)
class ConfigMapFile:
    """A script in a ConfigMap of the stream's namespace."""

    name: Annotated[str, Text("Name of the ConfigMap.", pattern=NAME)]
    key: Annotated[str, Text("Key of the script in the ConfigMap.", pattern=r"[-._a-zA-Z0-9]+")]


@dataclass(frozen=True)
class Application:
    """The unmodified PySpark script."""

    RULES: ClassVar[tuple[Schema, ...]] = (
        rule(
            "has(self.file) != has(self.configMap)",
            "set exactly one of file (a path in the image) and configMap",
        ),
    )

    file: Annotated[str | None, Text("Absolute path of the script in the image.", 1024, "/.+")] = (
        None
    )
    config_map: Annotated[
        ConfigMapFile | None, Part("The script in a ConfigMap, instead of file.")
    ] = None
    arguments: Annotated[
        tuple[str, ...], Texts("Arguments of the script.", max_items=64, max_length=4096)
    ] = ()


@dataclass(frozen=True)
class Account:
    """The driver's ServiceAccount."""

    name: Annotated[
        str | None,
        Text(
            "A ServiceAccount that exists, instead of the operator's; it gets the driver's Role.",
            pattern=NAME,
        ),
    ] = None
    annotations: Annotated[
        Mapping[str, str],
        Texts(
            "Annotations of the operator's own, such as those of a cloud's identity.",
            max_items=32,
            max_length=4096,
        ),
    ] = field(default_factory=dict)


@dataclass(frozen=True)
class Driver:
    """The pod that runs the script."""

    cpu: Annotated[str, Text("CPU request, such as 500m or 2.", 16, _CPU)] = "500m"
    memory: Annotated[str, Text("JVM heap, such as 1g.", 16, _MEMORY)] = "1g"
    memory_overhead: Annotated[
        str, Text("Memory beside the heap: Python, RocksDB, threads.", 16, _MEMORY)
    ] = "512m"
    service_account: Annotated[Account, Part("Who the driver is to Kubernetes and the cloud.")] = (
        field(default_factory=Account)
    )
    evictable: Annotated[
        bool,
        Switch(
            "Whether drains and autoscalers may evict the driver; its batch then runs again "
            "elsewhere. With false, drains of its node wait until you delete the pod.",
            restarts=False,
        ),
    ] = True
    pod_template: Annotated[
        Mapping[str, Any],
        Foreign("Merged over the driver's pod template; its container is named driver."),
    ] = field(default_factory=dict)


@dataclass(frozen=True)
class ExecutorAccount:
    """The executors' ServiceAccount; they get no token of it."""

    name: Annotated[
        str | None,
        Text(
            "A ServiceAccount that exists, for the executors' identity in the cloud; defaults to "
            "the driver's.",
            pattern=NAME,
        ),
    ] = None


@dataclass(frozen=True)
class Executors:
    """How many executors there are, and the resources of each."""

    RULES: ClassVar[tuple[Schema, ...]] = (
        rule("self.min <= self.max", "executors.min must not exceed executors.max"),
        rule(
            "!has(self.maxCores) || self.min * self.cores <= self.maxCores",
            "executors.maxCores must have room for executors.min",
        ),
    )

    max: Annotated[int, Number("Upper limit of the number of executors.", 1, 1000)]
    min: Annotated[int, Number("Lower limit of the number of executors.", 1, 1000)] = 1
    min_query: Annotated[
        str,
        Text(
            "PromQL of one number that raises min, at most to max. The chart's "
            "prometheus.streamQueries lets the operator ask it.",
            2048,
        ),
    ] = ""
    reserve: Annotated[
        int,
        Number(
            "Executors beyond those that the load needs, at most to max: a jump of the load does "
            "not wait for their start.",
            0,
            100,
        ),
    ] = 0
    fixed: Annotated[
        int,
        Number(
            "Fixed number of executors; 0 follows the load. `kubectl scale` sets it.",
            0,
            1000,
        ),
    ] = 0
    max_cores: Annotated[
        int | None,
        Number(
            "Upper limit of the cores of all executors, beside max.",
            1,
            64_000,
            of_the_job=True,
            restarts=False,
        ),
    ] = None
    max_memory: Annotated[
        str | None,
        Text(
            "Upper limit of the memory of all executors, heap and overhead, such as 64g, beside "
            "max.",
            16,
            _MEMORY,
            of_the_job=True,
            restarts=False,
        ),
    ] = None
    cores: Annotated[
        int, Number("Tasks that an executor runs at the same time.", 1, 64, of_the_job=True)
    ] = 1
    cpu: Annotated[
        str | None, Text("CPU request; defaults to cores.", 16, _CPU, of_the_job=True)
    ] = None
    memory: Annotated[str, Text("JVM heap, such as 1g.", 16, _MEMORY, of_the_job=True)] = "1g"
    memory_overhead: Annotated[
        str, Text("Memory beside the heap: Python, RocksDB, threads.", 16, _MEMORY, of_the_job=True)
    ] = "512m"
    service_account: Annotated[
        ExecutorAccount,
        Part("Who the executors are to the cloud and to registries.", of_the_job=True),
    ] = field(default_factory=ExecutorAccount)
    pod_template: Annotated[
        Mapping[str, Any],
        Foreign(
            "Merged over the executors' pod template; the container is named executor.",
            of_the_job=True,
        ),
    ] = field(default_factory=dict)


def measure_mib(executors: Executors) -> int:
    """The memory of one executor, heap and overhead, in MiB.

    >>> measure_mib(Executors(max=4))
    1536
    """
    return parse_mib(executors.memory) + parse_mib(executors.memory_overhead)


def find_caps(executors: Executors) -> dict[str, int]:
    """How many executors each limit allows, by the name of its field, the lowest one first.

    >>> find_caps(Executors(max=8, cores=4, max_cores=18, max_memory="10g"))
    {'maxCores': 4, 'maxMemory': 6, 'max': 8}
    """
    caps = {"max": executors.max}
    if executors.max_cores is not None:
        caps["maxCores"] = executors.max_cores // executors.cores
    if executors.max_memory is not None:
        caps["maxMemory"] = parse_mib(executors.max_memory) // measure_mib(executors)
    return dict(sorted(caps.items(), key=lambda cap: cap[1]))


@dataclass(frozen=True)
class Checkpoints:
    """Storage that the driver and all executors share."""

    RULES: ClassVar[tuple[Schema, ...]] = (
        rule(
            "has(self.claim) != has(self.uri)",
            "set exactly one of claim (a PersistentVolumeClaim) and uri",
        ),
        rule("!has(self.path) || !self.path.contains('..')", "path must not contain .."),
    )

    claim: Annotated[
        str | None, Text("A PersistentVolumeClaim with mode ReadWriteMany.", pattern=NAME)
    ] = None
    path: Annotated[
        str | None,
        Text("Folder in the claim; defaults to the stream's name.", 512, "[-._a-zA-Z0-9/]+"),
    ] = None
    uri: Annotated[
        str | None,
        Text("A folder in an object store, such as s3a://bucket/clicks.", 1024, r"\S+"),
    ] = None
