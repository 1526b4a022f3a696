"""The spec of a BalancedStream as classes, from which CRD, rules and reference are generated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, get_args

from balancedstream.core import periods
from balancedstream.core.keys.text import KeyNaming
from balancedstream.core.policy import Policy, parse, parse_periods
from balancedstream.core.removed import REMOVED, RemovedKnob
from balancedstream.core.sizing import PARTITIONS_PER_EXECUTOR
from balancedstream.core.wire import series as wire
from balancedstream.errors import InvalidInputError
from balancedstream_operator.api.job import (
    GROUP_ID,
    Application,
    Checkpoints,
    Driver,
    Executors,
    find_caps,
)
from balancedstream_operator.api.labels import check_metadata, check_pull_secrets
from balancedstream_operator.api.resource import NAME, refuse
from balancedstream_operator.api.schedule import Schedule
from balancedstream_operator.api.schema import (
    Knobs,
    Number,
    Part,
    Schema,
    Switch,
    Text,
    Texts,
    Words,
    camel,
    describe,
    list_of_the_job,
    read,
    rule,
    say_as_in_manifests,
)
from balancedstream_operator.api.spark_settings import (
    DYNAMIC,
    OWNED_CONF,
    PROVIDER,
    ROCKSDB,
    check_conf,
)
from balancedstream_operator.api.target import (
    TargetRef,
    check_target,
    find_beside_target,
    refuse_beside_target,
)

_LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*"

_OWNED = ", ".join(f"'{key}'" for key in OWNED_CONF)

_REQUIRED = ("image", "application", "checkpoints")
"""Fields that a spec needs unless it has a target."""

_PLACES = {
    "balance": "spec.balancing",
    "migration": "spec.migration",
    "scaling": "spec.scaling",
    "window": "spec.metrics.window",
}
"""Sections of a policy with removed knobs, and their paths in a manifest."""

MAX_PARTITIONS = 10_000
"""Maximum number of state partitions of a stream."""

PARTITION_CHOICES = (24, 48, 96, 120, 240, 480, 960)
"""Numbers with many divisors, so that many numbers of executors share the partitions evenly."""


@dataclass(frozen=True)
class Metrics:
    """Where the operator reads the load from, and how often."""

    prometheus_url: Annotated[
        str | None,
        Text("URL of Prometheus; defaults to the operator's own setting.", 1024, "https?://.+"),
    ] = None
    secret: Annotated[
        str | None,
        Text(
            "Secret in the stream's namespace for requests to Prometheus: token, or username and "
            "password; headers, one a line; ca.crt; tls.crt and tls.key. The chart's "
            "prometheus.streamSecrets lets the operator read it.",
            pattern=NAME,
        ),
    ] = None
    labels: Annotated[
        Mapping[str, str],
        Texts(
            "Labels that the series must have, such as the cluster's name if several clusters "
            "share one Prometheus.",
            max_items=16,
            max_length=256,
        ),
    ] = field(default_factory=dict)
    stale_after_s: Annotated[
        float | None,
        Number(
            "Age in seconds from which the newest scrape is too old; defaults to three scrape "
            "intervals. Raise it where samples arrive late.",
            1,
            3600,
        ),
    ] = None
    interval_s: Annotated[float, Number("Seconds between two decisions.", 1, 3600)] = 15.0
    hot_keys: Annotated[
        str,
        Words(
            "How metrics and status show hot keys; with off, none is shown or moved.",
            get_args(KeyNaming),
            of_the_job=True,
        ),
    ] = "plain"
    window: Annotated[
        Mapping[str, Any],
        Knobs("Which batches the load of a partition is averaged over.", "window"),
    ] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamSpec:
    """A PySpark streaming job to keep balanced and right-sized."""

    RULES: ClassVar[tuple[Schema, ...]] = (
        rule(
            f"has(self.targetRef) || ({' && '.join(f'has(self.{name})' for name in _REQUIRED)})",
            f"{' and '.join(_REQUIRED)} are required, except with targetRef",
        ),
        rule(
            "has(self.targetRef) == has(oldSelf.targetRef)",
            "targetRef cannot come or go: create a new BalancedStream",
        ),
        rule(
            "has(self.checkpoints) == has(oldSelf.checkpoints) && "
            "(!has(self.checkpoints) || self.checkpoints == oldSelf.checkpoints)",
            "checkpoints cannot change: the new ones would not have the state; "
            "create a new BalancedStream for a new checkpoint",
        ),
        rule(
            f"!('{DYNAMIC}' in self.sparkConf) || "
            f"self.sparkConf['{DYNAMIC}'].trim().lowerAscii() != 'true'",
            f"sparkConf must not enable {DYNAMIC}: Spark and the operator would both set the "
            "number of executors; set executors.min and executors.max instead",
        ),
        rule(
            f"!('{PROVIDER}' in self.sparkConf) || "
            f"self.sparkConf['{PROVIDER}'].endsWith('{ROCKSDB}')",
            f"{PROVIDER} in sparkConf must be RocksDB: the in-memory store "
            "(HDFS-backed) reloads a partition's whole state with each move",
        ),
        rule(
            f"![{_OWNED}].exists(key, key in self.sparkConf)",
            "sparkConf must not contain settings that the operator sets: " + ", ".join(OWNED_CONF),
        ),
    )

    executors: Annotated[Executors, Part("How many executors, and their resources.")]
    target_ref: Annotated[
        TargetRef | None,
        Part("Application of another operator to balance; this operator runs nothing for it."),
    ] = None
    image: Annotated[
        str,
        Text(
            "Image with the script and its packages, built on balancedstream-spark. Required "
            "without targetRef.",
            512,
            r"\S+",
            of_the_job=True,
        ),
    ] = ""
    application: Annotated[
        Application,
        Part("The script. Required without targetRef.", filled_in=False, of_the_job=True),
    ] = field(default_factory=Application)
    checkpoints: Annotated[
        Checkpoints,
        Part(
            "Storage for checkpoints that all pods share. Required without targetRef.",
            filled_in=False,
            of_the_job=True,
        ),
    ] = field(default_factory=Checkpoints)
    image_pull_policy: Annotated[
        str,
        Words("When nodes pull the image.", ("IfNotPresent", "Always", "Never"), of_the_job=True),
    ] = "IfNotPresent"
    image_pull_secrets: Annotated[
        tuple[str, ...],
        Texts(
            "Names of Secrets with which driver and executors pull their images.",
            max_items=16,
            max_length=253,
            of_the_job=True,
        ),
    ] = ()
    fs_group: Annotated[
        int,
        Number(
            "Group that owns the files of mounted claims; 0 lets the platform choose it, as "
            "OpenShift requires.",
            0,
            2**31 - 1,
            of_the_job=True,
        ),
    ] = GROUP_ID
    labels: Annotated[
        Mapping[str, str],
        Texts(
            "Labels of all objects and pods of the stream, beside the operator's own.",
            max_items=32,
            max_length=63,
            restarts=True,
        ),
    ] = field(default_factory=dict)
    annotations: Annotated[
        Mapping[str, str],
        Texts("Annotations of all objects and pods of the stream.", max_items=32, restarts=True),
    ] = field(default_factory=dict)
    spark_conf: Annotated[
        Mapping[str, str],
        Texts(
            "Spark settings of the job. Each value is text: quote true, false and numbers.",
            max_items=256,
            max_length=4096,
            of_the_job=True,
        ),
    ] = field(default_factory=dict)
    driver: Annotated[Driver, Part("The pod that runs the script.", of_the_job=True)] = field(
        default_factory=Driver
    )
    partitions: Annotated[
        int | None,
        Number(
            "Number of state partitions; defaults to at least eight for each core of "
            "executors.max. A change stops the stream while its state is written anew.",
            1,
            MAX_PARTITIONS,
            of_the_job=True,
            restarts=False,
        ),
    ] = None
    balancing: Annotated[Mapping[str, Any], Knobs("When state partitions move.", "balance")] = (
        field(default_factory=dict)
    )
    migration: Annotated[
        Mapping[str, Any], Knobs("How moves are spread over batches.", "migration")
    ] = field(default_factory=dict)
    scaling: Annotated[
        Mapping[str, Any],
        Knobs(
            "When executors are added or removed.",
            "scaling",
            omit=("min_executors", "max_executors", "reserve_executors"),
        ),
    ] = field(default_factory=dict)
    admission: Annotated[
        Mapping[str, Any], Knobs("How many rows a batch may read.", "admission")
    ] = field(default_factory=dict)
    schedule: Annotated[Schedule, Part("What holds at certain times only.")] = field(
        default_factory=Schedule
    )
    metrics: Annotated[Metrics, Part("Where the operator reads the load from.")] = field(
        default_factory=Metrics
    )
    suspend: Annotated[
        bool, Switch("Stop the pods and keep everything else.", of_the_job=True, restarts=False)
    ] = False

    @cached_property
    def policy(self) -> Policy:
        """The policy; `executors.fixed`, clamped to the limits, becomes both limits.

        Raises:
            InvalidInputError: knobs contradict each other.
        """
        limits = self.executors
        policy = parse(
            {
                "balance": self.balancing,
                "migration": self.migration,
                "scaling": {
                    **self.scaling,
                    "min_executors": limits.min,
                    "max_executors": next(iter(find_caps(limits).values())),
                    "reserve_executors": limits.reserve,
                },
                "admission": self.admission,
                "window": self.metrics.window,
                "schedule": {
                    "excluded": [asdict(period) for period in self.schedule.excluded],
                    "floors": [asdict(floor) for floor in self.schedule.floors],
                },
            }
        )
        if not limits.fixed:
            return policy
        count = clamp_fixed(limits)
        # A person set this number, so it holds in every mode.
        scaling = replace(policy.scaling, mode="auto", min_executors=count, max_executors=count)
        return replace(policy, scaling=scaling)

    @cached_property
    def repartition_periods(self) -> tuple[periods.Period, ...]:
        """When a proposed number of state partitions is carried out without an approval.

        Raises:
            InvalidInputError: a value of a period is out of range; the message names the field.
        """
        given = [asdict(period) for period in self.schedule.repartitions]
        return parse_periods("schedule.repartitions", periods.Period, given)


OF_THE_JOB = list_of_the_job(StreamSpec)
"""Path and schema of the fields that are refused beside `targetRef`."""


def describe_spec() -> Schema:
    """The OpenAPI schema of a spec, with all its rules."""
    schema = describe(StreamSpec)
    schema["x-kubernetes-validations"] += refuse_beside_target(OF_THE_JOB)
    return schema


def read_spec(manifest: object) -> StreamSpec:
    """Read the spec from a manifest's `spec`.

    The API server checks a manifest by the rules of the CRD. This function checks the rest, and
    these rules again, because an older CRD may be installed. It ignores unknown fields of a newer
    CRD: see `find_unknown`.

    Raises:
        InvalidInputError: a field is missing or invalid; the message names it.

    >>> spec = read_spec({"image": "clicks:1", "application": {"file": "/app/clicks.py"},
    ...                   "executors": {"max": 4}, "checkpoints": {"claim": "checkpoints"}})
    >>> spec.executors.min, spec.policy.scaling.max_executors
    (1, 4)
    """
    spec = read(StreamSpec, manifest, unknown=[])
    limits = spec.executors
    if limits.min > limits.max:
        refuse("spec.executors.min", f"must not exceed max ({limits.max}), not {limits.min}")
    field, most = next(iter(find_caps(limits).items()))
    if limits.min > most:
        problem = f"must have room for executors.min, which is {limits.min}; it has room for {most}"
        refuse(f"spec.executors.{field}", problem)
    if spec.target_ref is not None:
        check_target(spec.target_ref)
        for path in find_beside_target(manifest, OF_THE_JOB):
            refuse(
                f"spec.{path}", "with targetRef it is the application's own: it cannot be set here"
            )
    else:
        _check_workload(spec, manifest)
    for label in spec.metrics.labels:
        if not re.fullmatch(_LABEL, label) or label in {wire.STREAM, "__name__"}:
            refuse("spec.metrics.labels", f"{label!r} is no name of a label to match")
    check_metadata(spec.labels, spec.annotations)
    check_pull_secrets(spec.image_pull_secrets)
    _check_policy(spec)
    return spec


def _check_workload(spec: StreamSpec, manifest: object) -> None:
    given = manifest if isinstance(manifest, Mapping) else {}
    for name in _REQUIRED:
        if given.get(name) is None:
            refuse(f"spec.{name}", "missing")
    if (spec.application.file is None) == (spec.application.config_map is None):
        refuse("spec.application", "set exactly one of file and configMap")
    if (spec.checkpoints.claim is None) == (spec.checkpoints.uri is None):
        refuse("spec.checkpoints", "set exactly one of claim and uri")
    if ".." in (spec.checkpoints.path or ""):
        refuse("spec.checkpoints.path", "must not contain ..")
    check_conf(spec.spark_conf)


def _check_policy(spec: StreamSpec) -> None:
    """Refuses knobs that contradict each other, and wrong periods, by their names in a spec."""
    try:
        _ = spec.policy, spec.repartition_periods
    except InvalidInputError as error:
        message = re.sub(
            r"\b((?:scaling|schedule\.\w+\[\d+\])\.)(\w+)",
            lambda found: f"spec.{found[1]}{camel(found[2])}",
            str(error),
        )
        raise InvalidInputError(message) from error


def find_unknown(manifest: object) -> list[str]:
    """Paths of the fields of a manifest's valid `spec` that this release does not know.

    >>> find_unknown({"executors": {"max": 4}, "mood": "good", "scaling": {"lowUtilization": 0.4}})
    ['spec.mood']
    """
    unknown: list[str] = []
    read(StreamSpec, manifest, unknown=unknown)
    removed = {_find_place(knob) for knob in REMOVED}
    return [path for path in unknown if path not in removed]


def find_removed(manifest: object) -> list[str]:
    """The removed knobs that a manifest's `spec` sets, and why they have no effect.

    An object that was created with an older CRD has all removed knobs with their old defaults.
    These defaults do not count, because nobody has set them.

    >>> find_removed({"scaling": {"lowUtilization": 0.4, "highUtilization": 0.85}})
    ['spec.scaling.lowUtilization (it follows latencyObjectiveSeconds)']
    """
    found = []
    for knob in REMOVED:
        path = _find_place(knob)
        value: Any = {"spec": manifest}
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None and value not in knob.defaults:
            found.append(f"{path} ({say_as_in_manifests(knob.why)})")
    return found


def _find_place(knob: RemovedKnob) -> str:
    section, _, name = knob.path.partition(".")
    return f"{_PLACES[section]}.{camel(name)}"


def clamp_fixed(limits: Executors) -> int:
    """The fixed number of executors, clamped to the limits.

    >>> clamp_fixed(Executors(max=4, fixed=9))
    4
    """
    return min(max(limits.fixed, limits.min), *find_caps(limits).values())


def choose_partitions(spec: StreamSpec) -> int:
    """The number of state partitions for a new stream; 0 if the target application chooses it.

    >>> choose_partitions(StreamSpec(Executors(max=4)))
    48
    """
    if spec.target_ref:
        return 0
    if spec.partitions is not None:
        return spec.partitions
    least = PARTITIONS_PER_EXECUTOR * spec.executors.max * spec.executors.cores
    return next((n for n in PARTITION_CHOICES if n >= least), min(least, MAX_PARTITIONS))
