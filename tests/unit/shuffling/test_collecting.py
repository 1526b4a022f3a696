"""What the driver makes of the tasks' reports."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest

from balancedstream.core.samples import ShuffleRecord
from balancedstream.core.shuffle.costs import LearntCosts, MeasuredCosts
from balancedstream.core.shuffle.sketches import CostSketch
from balancedstream.shuffling.collecting import (
    MAX_COLLECTORS,
    MAX_UNLEARNED_BATCHES,
    UNFINISHED_RUNS,
    Collector,
    CostReport,
    CostReportParam,
    watch,
)
from balancedstream.shuffling.folders import KEPT_BATCHES, Batch, CostFolder


def report(
    folder: Path,
    batch: int,
    task: int,
    *,
    attempt: int | None = None,
    partitions: int = 2,
    error_s: float = 0.0,
    real_s: float = 2.0,
    stage: int | None = None,
) -> CostReport:
    """What a task tells; another than the first attempt is named."""
    sketch = CostSketch(0.05, 0.1, seed=7)
    sketch.update(b"text", 1.0, records=64)
    measured = MeasuredCosts(sketch, 1.0, real_s, 0.0, 1.0, error_s, 0.5)
    place = task, 100 + task if attempt is None else attempt, partitions
    of_batch = batch if stage is None else stage
    return CostReport.of(Batch(str(folder), batch), "classify", of_batch, place, measured)


def collect(
    collector: Collector,
    folder: Path,
    batch: int,
    *,
    error_s: float = 0.0,
) -> None:
    for task in range(2):
        collector.add(report(folder, batch, task, error_s=error_s))


def test_a_version_is_there_once_all_partitions_have_reported(tmp_path: Path) -> None:
    told: list[ShuffleRecord] = []
    collector = Collector("classify", tmp_path, told.append)
    collector.add(report(tmp_path, 0, 1))
    collector.add(report(tmp_path, 0, 1, attempt=200, real_s=9.0))
    assert CostFolder(tmp_path).newest() is None
    collector.add(report(tmp_path, 0, 0))
    newest = CostFolder(tmp_path).newest()
    assert newest
    assert newest.newer.records == 128
    assert [(b.batch, b.estimated_s, b.real_s) for b in told] == [(0, (1.0, 1.0), (2.0, 2.0))]


def test_partitions_that_one_task_has_run_are_all_learnt_from_as_after_a_coalesce(
    tmp_path: Path,
) -> None:
    told: list[ShuffleRecord] = []
    collector = Collector("classify", tmp_path, told.append)
    for real_s in range(1, 9):
        assert CostFolder(tmp_path).newest() is None
        collector.add(report(tmp_path, 0, 0, partitions=8, real_s=real_s))
    newest = CostFolder(tmp_path).newest()
    assert newest
    assert newest.newer.records == 8 * 64
    assert [b.real_s for b in told] == [(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)]
    assert [len(b.estimated_s) for b in told] == [8]


def test_an_action_that_needs_a_part_only_is_no_part_of_one_behind_a_coalesce(
    tmp_path: Path,
) -> None:
    told: list[ShuffleRecord] = []
    collector = Collector("classify", tmp_path, told.append)
    for batch in range(3):
        collector.add(report(tmp_path, batch, 0, stage=10 * batch, attempt=2 * batch, real_s=9.0))
        for real_s in (1.0, 2.0):
            attempt, stage = 2 * batch + 1, 10 * batch + 3
            collector.add(report(tmp_path, batch, 0, stage=stage, attempt=attempt, real_s=real_s))
    assert [(b.batch, b.real_s) for b in told] == [(batch, (1.0, 2.0)) for batch in range(3)]


def test_of_a_task_of_several_partitions_that_has_run_twice_the_first_attempt_counts(
    tmp_path: Path,
) -> None:
    told: list[ShuffleRecord] = []
    collector = Collector("classify", tmp_path, told.append)
    for task, attempt, real_s in [(1, 7, 3.0), (1, 7, 4.0), (1, 9, 8.0), (1, 9, 9.0), (0, 8, 1.0)]:
        collector.add(report(tmp_path, 0, task, attempt=attempt, partitions=4, real_s=real_s))
    assert not told
    collector.add(report(tmp_path, 0, 0, attempt=8, partitions=4, real_s=2.0))
    assert [b.real_s for b in told] == [(1.0, 2.0, 3.0, 4.0)]
    assert [b.records for b in told] == [4 * 64]


def test_batches_of_which_spark_runs_a_part_only_are_said_once_not_to_be_learnt_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Collector("classify", tmp_path, lambda batch: None)
    for batch in range(3 * MAX_UNLEARNED_BATCHES):
        assert len(caplog.records) == (batch > MAX_UNLEARNED_BATCHES)
        collector.add(report(tmp_path, batch, 0))
    assert "classify: nothing was learned from 10 batches in a row" in caplog.text


def test_a_batch_that_is_learnt_from_now_and_then_is_no_cause_to_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Collector("classify", tmp_path, lambda batch: None)
    for batch in range(3 * MAX_UNLEARNED_BATCHES):
        collector.add(report(tmp_path, batch, 0))
        if batch % MAX_UNLEARNED_BATCHES == 0:
            collector.add(report(tmp_path, batch, 1))
    assert "nothing was learned" not in caplog.text


def test_reports_of_a_run_that_failed_and_of_the_next_one_do_not_mix(tmp_path: Path) -> None:
    collector = Collector("classify", tmp_path, lambda batch: None)
    collector.add(report(tmp_path, 0, 0, stage=5))
    collector.add(report(tmp_path, 0, 1, stage=7))
    assert CostFolder(tmp_path).newest() is None
    collector.add(report(tmp_path, 0, 0, stage=7))
    assert CostFolder(tmp_path).newest() is not None


def test_a_run_that_is_whole_leaves_the_reports_of_another_one(tmp_path: Path) -> None:
    told: list[ShuffleRecord] = []
    collector = Collector("classify", tmp_path, told.append)
    collector.add(report(tmp_path, 1, 0, stage=9))
    collect(collector, tmp_path, 0)
    collector.add(report(tmp_path, 1, 1, stage=9))
    assert [record.batch for record in told] == [0, 1]


def test_of_runs_that_are_never_finished_only_the_last_ones_are_kept(tmp_path: Path) -> None:
    collector = Collector("classify", tmp_path, lambda batch: None)
    for stage in range(UNFINISHED_RUNS + 1):
        collector.add(report(tmp_path, 0, 0, stage=stage))
    collector.add(report(tmp_path, 0, 1, stage=0))
    assert CostFolder(tmp_path).newest() is None
    collector.add(report(tmp_path, 0, 1, stage=UNFINISHED_RUNS))
    assert CostFolder(tmp_path).newest() is not None


def test_a_batch_that_is_run_twice_is_learnt_once(tmp_path: Path) -> None:
    told: list[ShuffleRecord] = []
    collect(Collector("classify", tmp_path, told.append), tmp_path, 0)
    # The driver was restarted.
    collect(Collector("classify", tmp_path, told.append), tmp_path, 0)
    assert len(told) == 1


def test_a_dataframe_that_is_run_again_after_many_others_is_neither_learnt_nor_told(
    tmp_path: Path,
) -> None:
    told: list[ShuffleRecord] = []
    collector = Collector("classify", tmp_path, told.append)
    for batch in (*range(KEPT_BATCHES + 3), 0, 2):
        collect(collector, tmp_path, batch)
    assert [record.batch for record in told] == [*range(KEPT_BATCHES + 3)]


def test_a_stream_whose_checkpoint_was_put_back_learns_from_the_batches_that_follow(
    tmp_path: Path,
) -> None:
    told: list[ShuffleRecord] = []
    collector = Collector("classify", tmp_path, told.append)
    batches = [*range(KEPT_BATCHES + 3), *range(2 * KEPT_BATCHES + 5)]
    for batch in batches:
        CostFolder(tmp_path).pin(batch)
        collect(collector, tmp_path, batch)
    assert [record.batch for record in told] == batches


def test_a_batch_is_told_to_be_routed_by_what_its_pin_says_after_a_checkpoint_was_put_back(
    tmp_path: Path,
) -> None:
    told: list[ShuffleRecord] = []
    collector = Collector("classify", tmp_path, told.append)

    def run(batches: range, error_s: float) -> list[bool]:
        told.clear()
        for batch in batches:
            CostFolder(tmp_path).pin(batch)
            collect(collector, tmp_path, batch, error_s=error_s)
        return [record.by_estimates for record in told]

    assert run(range(6), 0.1) == [False, False, True, True, True, True]
    # No estimate is trusted any more, but of batches 3 to 6 there are pins that say so.
    assert run(range(8), 0.6) == [False, False, False, True, True, True, True, False]


def test_batches_that_are_pinned_to_what_is_forgotten_do_not_judge_what_is_known(
    tmp_path: Path,
) -> None:
    collector = Collector("classify", tmp_path, lambda batch: None)

    def run(batch: int, error_s: float) -> LearntCosts:
        CostFolder(tmp_path).pin(batch)
        collect(collector, tmp_path, batch, error_s=error_s)
        newest = CostFolder(tmp_path).newest()
        assert newest
        return newest

    for batch in range(6):
        run(batch, 0.2)
    # The stream is put back to its beginning; of batches 3 to 6 there are pins already.
    for batch, error_s in enumerate([0.1, 0.1, 0.1, 0.9, 0.9, 0.9, 0.9, 0.1]):
        newest = run(batch, error_s)
        assert newest.newer.records == (batch + 1) * 128
        assert newest.trusted == (batch > 0)
        assert (newest.error is None) == (batch == 0 or 3 <= batch <= 6)


def test_nothing_is_logged_of_batches_that_are_pinned_to_what_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Collector("classify", tmp_path, lambda batch: None)
    for batch in range(6):
        CostFolder(tmp_path).pin(batch)
        collect(collector, tmp_path, batch, error_s=0.2)
    with caplog.at_level(logging.INFO):
        for batch in range(8):
            CostFolder(tmp_path).pin(batch)
            collect(collector, tmp_path, batch, error_s=0.5)
    # Batches 3 to 6 are routed by estimates all the same: their pins say so.
    assert not caplog.records


def test_a_sketch_of_another_size_begins_anew_and_that_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for batch in range(3):
        collect(Collector("classify", tmp_path, lambda batch: None), tmp_path, batch)
    collector = Collector("classify", tmp_path, lambda batch: None)
    for task in range(2):
        other = MeasuredCosts(CostSketch(0.01, 0.1, seed=7), 1.0, 2.0)
        place = task, 100 + task, 2
        collector.add(CostReport.of(Batch(str(tmp_path), 3), "classify", 3, place, other))
    assert "classify: round robin from batch 4 on: no batch was predicted yet" in caplog.text


def test_of_an_empty_batch_that_no_task_has_pinned_nothing_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[ShuffleRecord] = []
    collector = Collector("classify", tmp_path, told.append)
    for batch in range(6):
        collect(collector, tmp_path, batch)
    # Of those between, only a part was run.
    after_a_while = 6 + 2 * KEPT_BATCHES
    with caplog.at_level(logging.INFO):
        collect(collector, tmp_path, after_a_while)
    assert told[-1].batch == after_a_while
    assert told[-1].by_estimates
    assert not caplog.records


def test_a_restarted_driver_goes_on_with_what_was_learnt(tmp_path: Path) -> None:
    collect(Collector("classify", tmp_path, lambda batch: None), tmp_path, 0)
    collect(Collector("classify", tmp_path, lambda batch: None), tmp_path, 1)
    newest = CostFolder(tmp_path).newest()
    assert newest
    assert newest.trusted
    assert newest.newer.records == 256


def test_falling_back_to_round_robin_is_a_warning_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Collector("classify", tmp_path, lambda batch: None)
    with caplog.at_level(logging.INFO):
        for batch, error_s in enumerate((0.0, 0.1, 0.1, 0.6)):
            collect(collector, tmp_path, batch, error_s=error_s)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "INFO",
            "classify: estimated costs from batch 2 on: "
            "the estimates were off by 10 %, equal costs would be off by 50 %",
        ),
        (
            "WARNING",
            "classify: round robin from batch 4 on: the estimates were off by 60 %, "
            "equal costs would be off by 50 %; learning starts again",
        ),
    ]


def test_every_batch_is_told_where_the_driver_may_remove_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: Path, **options: bool) -> None:
        raise PermissionError(file, options)

    monkeypatch.setattr(Path, "unlink", refuse)
    told: list[ShuffleRecord] = []
    collector = Collector("classify", tmp_path, told.append)
    batches = [*range(2 * KEPT_BATCHES)]
    for batch in batches:
        collect(collector, tmp_path, batch)
    assert [record.batch for record in told] == batches


def test_in_a_task_reports_are_gathered_and_in_the_driver_they_are_handed_on(
    tmp_path: Path,
) -> None:
    told: list[ShuffleRecord] = []
    stop = watch(told.append)
    driver = CostReportParam()
    of_task = pickle.loads(pickle.dumps(driver))  # noqa: S301
    gathered = of_task.addInPlace((report(tmp_path, 0, 0),), (report(tmp_path, 0, 1),))
    assert len(gathered) == 2
    assert driver.addInPlace((), gathered) == ()
    stop()
    driver.addInPlace((), (report(tmp_path, 1, 0), report(tmp_path, 1, 1)))
    assert [batch.batch for batch in told] == [0]


def test_shuffles_of_one_name_in_two_folders_are_told_apart_by_a_number(tmp_path: Path) -> None:
    told: list[ShuffleRecord] = []
    stop = watch(told.append)
    driver = CostReportParam()
    for batch in range(2):
        for query in ("one", "other"):
            folder = tmp_path / query
            driver.addInPlace((), (report(folder, batch, 0), report(folder, batch, 1)))
    stop()
    assert [record.shuffle for record in told] == ["classify", "classify (2)"] * 2


def test_an_error_in_the_driver_is_logged_and_stops_no_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    below = tmp_path / "file" / "below"
    CostReportParam().addInPlace((), (report(below, 0, 0), report(below, 0, 1)))
    assert "a task report is lost" in caplog.text
    assert str(below) in caplog.text


def test_queries_that_start_again_and_again_are_not_all_kept_in_memory(tmp_path: Path) -> None:
    param = CostReportParam()
    told: list[ShuffleRecord] = []
    unwatch = watch(told.append)
    try:
        for start in range(MAX_COLLECTORS + 5):
            folder = tmp_path / f"{start:08d}-aaaa-bbbb-cccc-0123456789ab" / "classify"
            param.addInPlace((), tuple(report(folder, 0, task) for task in range(2)))
        # The first one goes on with what its folder holds.
        folder = tmp_path / "00000000-aaaa-bbbb-cccc-0123456789ab" / "classify"
        param.addInPlace((), tuple(report(folder, 1, task) for task in range(2)))
    finally:
        unwatch()
    assert len(param._collectors) == MAX_COLLECTORS
    assert told[-1].batch == 1
    newest = CostFolder(folder).newest()
    assert newest
    assert newest.batch == 1
    assert len({record.shuffle for record in told}) <= MAX_COLLECTORS
