"""A status is written where it says something new, and what is gone from it goes."""

from __future__ import annotations

from dataclasses import replace

from supervised import STREAM, KeepingCluster

from balancedstream_operator.api.status import Proposal, Status, write_status
from balancedstream_operator.report.writer import COMPLETE_S, StatusWriter

PROPOSED = Status(phase="Running", plan_epoch=1, proposal=Proposal(id="2-1", reason="would move"))


def test_only_changes_are_written_and_what_is_gone_is_null() -> None:
    cluster = KeepingCluster()
    writer = StatusWriter(STREAM, cluster)
    writer.write(PROPOSED, 0.0)
    assert cluster.written.pop() == write_status(PROPOSED), "all of it, first"
    writer.write(replace(PROPOSED, plan_epoch=5, executors=2, proposal=None), 1.0)
    assert cluster.written.pop() == {"planEpoch": 5, "executors": 2, "proposal": None}
    writer.write(replace(PROPOSED, plan_epoch=5, executors=2, proposal=None), 100.0)
    assert cluster.written == []


def test_words_alone_are_written_once_a_minute() -> None:
    cluster = KeepingCluster()
    writer = StatusWriter(STREAM, cluster)
    for second in range(100):
        writer.write(replace(PROPOSED, reason=f"batch {second}"), 1000.0 + second)
    reasons = [written["reason"] for written in cluster.written]
    assert reasons == ["batch 0", "batch 60"]


def test_a_proposal_that_is_over_goes_also_with_the_pass_that_writes_all() -> None:
    cluster = KeepingCluster()
    writer = StatusWriter(STREAM, cluster)
    writer.write(PROPOSED, 1000.0)
    writer.write(replace(PROPOSED, proposal=None), 1000.0 + COMPLETE_S)
    status = {**cluster.written[0], **cluster.written[1]}
    assert status["proposal"] is None
