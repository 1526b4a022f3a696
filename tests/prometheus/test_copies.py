"""However often a driver is in Prometheus, it is measured as one driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loopback import serve
from patience import PATIENCE_S
from real_prometheus import ask, run_prometheus, scrape
from scraped_driver import STREAM, Driver, has_batches, measure_until, observe_by
from waiting import wait_until

from balancedstream_operator.observe.endpoints import Subject

RECEIVES = "--web.enable-remote-write-receiver"
EPOCH = "balancedstream_plan_epoch"


def replicate(name: str, page: str, receiver: str, **queue: Any) -> dict[str, Any]:
    """The configuration of a replica that scrapes a page and sends all on."""
    return {
        "global": {"external_labels": {"replica": name}},
        "scrape_configs": [scrape(page)],
        "remote_write": [{"url": f"{receiver}/api/v1/write", "queue_config": queue}],
    }


def test_an_ha_pair_is_measured_as_one_driver_also_when_one_of_it_is_lost(tmp_path: Path) -> None:
    driver, soon = Driver(), {"batch_send_deadline": "100ms"}
    with (
        serve(driver.answer) as page,
        run_prometheus(tmp_path / "both", {}, RECEIVES) as both,
        run_prometheus(tmp_path / "b", replicate("b", page, both, **soon)) as b,
    ):
        with run_prometheus(tmp_path / "a", replicate("a", page, both, **soon)):

            def are_both_there() -> bool:
                return {one["replica"] for one in ask(both, EPOCH)} == {"a", "b"}

            wait_until("both replicas", are_both_there, timeout_s=PATIENCE_S, interval_s=0.1)
            measure_until(has_batches(6), observe_by(both))
            of_a = Subject(STREAM, labels=(("replica", "a"),))
            measure_until(has_batches(6), observe_by(both, of_a))
            measure_until(has_batches(6), observe_by(b))
        lost = driver.batch
        measure_until(lambda found: found.last_batches["q"] > lost + 2, observe_by(both))


def test_a_pod_that_two_jobs_scrape_is_measured_as_one_driver(tmp_path: Path) -> None:
    driver = Driver()
    with serve(driver.answer) as page:
        jobs = [scrape(page, "annotations"), scrape(page, "monitor", endpoint="metrics")]
        with run_prometheus(tmp_path, {"scrape_configs": jobs}) as url:
            measure_until(has_batches(6), observe_by(url))
            assert {one["job"] for one in ask(url, EPOCH)} == {"annotations", "monitor"}


def test_of_a_scrape_that_arrives_in_parts_nothing_is_measured_before_it_is_there(
    tmp_path: Path,
) -> None:
    # Remote write has queues, of each of which it sends what is full, and the rest later.
    in_parts = {"max_samples_per_send": 20, "batch_send_deadline": "1h"}
    in_parts |= {"min_shards": 4, "max_shards": 4}
    cut = f"max(timestamp({EPOCH})) > max(timestamp(balancedstream_partition_records_total))"
    with (
        serve(Driver().answer) as page,
        run_prometheus(tmp_path / "received", {}, RECEIVES) as url,
        run_prometheus(tmp_path / "sends", replicate("a", page, url, **in_parts)),
    ):
        seen_in_parts = []

        def has_enough(found: object) -> bool:
            seen_in_parts.extend(ask(url, cut))
            return len(seen_in_parts) >= 6

        measure_until(has_enough, observe_by(url))
