"""An HA pair behind Thanos, whose querier takes each series from the replica that it likes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from harness.applications import find_free_port
from loopback import serve
from real_prometheus import ask, run_prometheus, scrape
from scraped_driver import Driver, check, has_batches, measure_until, observe_by

EPOCH = "balancedstream_plan_epoch"
LOOKS = 12


@pytest.fixture
def thanos(request: pytest.FixtureRequest) -> Path:
    program: Path | None = request.config.getoption("--thanos", default=None)
    if program is None:
        pytest.skip("no program of Thanos: see --thanos")
    return program.resolve()


@contextmanager
def running(log: Path, *command: str) -> Iterator[None]:
    """A process, until the block ends."""
    with (
        log.open("w", encoding="utf-8") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        try:
            yield
        finally:
            process.kill()


def test_a_pair_that_is_deduplicated_is_measured_whole_each_time(
    thanos: Path, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        page = stack.enter_context(serve(Driver().answer))
        stores = []
        for name in ("a", "b"):
            configuration = {
                "global": {"external_labels": {"replica": name}},
                "scrape_configs": [scrape(page)],
            }
            replica = stack.enter_context(run_prometheus(tmp_path / name, configuration))
            stores.append(f"127.0.0.1:{find_free_port()}")
            sidecar = running(
                tmp_path / f"sidecar-{name}.log", str(thanos), "sidecar",
                f"--tsdb.path={tmp_path / name / 'data'}", f"--prometheus.url={replica}",
                f"--grpc-address={stores[-1]}", f"--http-address=127.0.0.1:{find_free_port()}",
            )  # fmt: skip
            stack.enter_context(sidecar)
        address = f"127.0.0.1:{find_free_port()}"
        querier = running(
            tmp_path / "querier.log", str(thanos), "query", "--query.replica-label=replica",
            f"--http-address={address}", f"--grpc-address=127.0.0.1:{find_free_port()}",
            *(f"--endpoint={store}" for store in stores),
        )  # fmt: skip
        stack.enter_context(querier)

        observe = observe_by(f"http://{address}")
        measure_until(has_batches(20), observe)
        assert len(ask(f"http://{address}", EPOCH)) == 1, "it deduplicates who does not ask for all"
        for _ in range(LOOKS):
            found = observe(time.time())
            check(found)
            assert found.tasks, "a scrape of which a part came from the other replica"
            time.sleep(0.3)
