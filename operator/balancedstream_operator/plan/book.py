"""Keeps a stream's plan and its record in a ConfigMap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from balancedstream.core.wire.objects import APPLICATION_KEY, PLAN_KEY, STOP_KEY, plan_name
from balancedstream.core.wire.plan import Plan, parse_plan
from balancedstream.errors import BalancedStreamError, StalePlanError
from balancedstream_operator.api.resource import Stream, belongs_to
from balancedstream_operator.children.manifests import build_plan
from balancedstream_operator.errors import UnreachableError
from balancedstream_operator.kube.cluster import Cluster
from balancedstream_operator.plan.answers import MAX_AHEAD, check_epoch
from balancedstream_operator.plan.record import (
    RECORD_KEY,
    PlanFound,
    Record,
    heed_clock,
    read_record,
)


class PlanBook:
    """Reads and writes one stream's plan, and knows the newest.

    Each write names the version that the operator read before, so the API server refuses the write
    if somebody else has written meanwhile. The next pass then reads their version.

    Attributes:
        plan: the newest plan; None without a readable plan.
        record: written with the plan; None without a record.
    """

    def __init__(self, stream: Stream, cluster: Cluster) -> None:
        self._stream = stream
        self._cluster = cluster
        self._found: Mapping[str, Any] = {}
        # The last known content of the ConfigMap, and the content that it should have.
        self._seen: Mapping[str, str] | None = None
        self._data: Mapping[str, str] = {}
        self.plan: Plan | None = None
        self.record: Record | None = None

    @property
    def epoch(self) -> int:
        """The newest epoch of plan and record; 0 without both."""
        return max(self.plan.epoch if self.plan else 0, self.record.epoch if self.record else 0)

    def read(self, bound: int, now_s: float) -> PlanFound:
        """Reads the ConfigMap; a plan counts only if it is newer than the last one.

        Args:
            bound: an epoch that no plan of the stream has passed.
            now_s: seconds since the Unix epoch.
        """
        found = self._read(bound, now_s)
        if self.record is not None:
            self.record = heed_clock(self.record, now_s)
        return found

    def _read(self, bound: int, now_s: float) -> PlanFound:
        name = plan_name(self._stream.name)
        found = self._cluster.get("v1", "ConfigMap", self._stream.namespace, name) or {}
        metadata = found.get("metadata") or {}
        if found and not belongs_to(metadata, self._stream):
            return PlanFound(foreign=True)
        self._found = metadata
        data = _data_of(found)
        if data == self._seen:
            return PlanFound()
        record = read_record(data.get(RECORD_KEY, ""))
        plan, unreadable = None, ""
        newest = max(bound, self.epoch)
        if record is not None and record.epoch > newest + MAX_AHEAD:
            # It is forged.
            record = None
        try:
            if data.get(PLAN_KEY):
                plan = parse_plan(data[PLAN_KEY])
                check_epoch("plan", plan.epoch, newest)
                _check_record(plan, record)
        except BalancedStreamError as error:
            plan, unreadable = None, str(error)
            data[PLAN_KEY] = ""
        overwritten = self._seen is not None
        # An operator that found all plans lost writes a newer record without a plan.
        epoch = max(plan.epoch if plan else 0, record.epoch if record else 0)
        if overwritten and epoch <= self.epoch:
            return PlanFound(overwritten=True, unreadable=unreadable)
        record = record or self.record
        if record is not None and plan is not None and record.epoch != plan.epoch:
            # Whoever wrote the plan left no record of it.
            record = Record(
                record.partitions,
                epoch=plan.epoch,
                planned_s=now_s,
                repartition=record.repartition,
            )
        self._seen, self._data, self.plan, self.record = data, data, plan, record
        return PlanFound(overwritten=overwritten, adopted=overwritten, unreadable=unreadable)

    def write(self, plan: Plan | None, record: Record) -> None:
        """Replaces the content of the ConfigMap.

        Raises:
            ClusterError: the API server refuses it, or somebody else has written meanwhile.
        """
        stop = record.repartition.stop if record.repartition else None
        data = {RECORD_KEY: record.write(), APPLICATION_KEY: record.application}
        if plan is not None:
            data[PLAN_KEY] = plan.to_json()
        if stop is not None:
            data[STOP_KEY] = stop.to_json()
        self._put(data)
        self.plan, self.record = plan, record

    def restore(self) -> None:
        """Writes the known content again, without unreadable parts."""
        self._put(self._data)

    def _put(self, data: Mapping[str, str]) -> None:
        if not self._found:
            self._create()
        # An entry that somebody else wrote stays if this does not name it, and drivers heed it.
        named = dict.fromkeys(_KEYS, "") | dict(data)
        applied = self._cluster.apply_plan(build_plan(self._stream, named, self._found))
        self._found, self._seen, self._data = applied["metadata"], _data_of(applied), data

    def _create(self) -> None:
        """Makes an empty ConfigMap, because only an existing one has a version to name."""
        empty = build_plan(self._stream, {}, {})
        del empty["data"]
        self._cluster.apply(empty)
        name = plan_name(self._stream.name)
        found = self._cluster.get("v1", "ConfigMap", self._stream.namespace, name) or {}
        if _data_of(found):
            message = f"another operator has written ConfigMap {name} meanwhile"
            raise UnreachableError(message)
        self._found = found.get("metadata") or {}


_KEYS = (PLAN_KEY, RECORD_KEY, APPLICATION_KEY, STOP_KEY)


def _data_of(config_map: Mapping[str, Any]) -> dict[str, str]:
    data = config_map.get("data") or {}
    return {key: data[key] for key in _KEYS if key in data}


def _check_record(plan: Plan, record: Record | None) -> None:
    """Refuses a plan that is older than its record: somebody put it there."""
    if record is not None and plan.epoch < record.epoch:
        message = (
            f"plan.epoch: {plan.epoch} is older than {record.epoch}, which was written last; it is "
            "ignored"
        )
        raise StalePlanError(message)
