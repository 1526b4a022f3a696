"""An HA pair writes for a tenant of Mimir, which takes one replica and shows others nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from harness.applications import find_free_port
from loopback import Answer, Request, Response, serve
from patience import PATIENCE_S
from real_prometheus import ask, run_mimir, run_prometheus, scrape
from scraped_driver import Driver, Observe, has_batches, measure_until, observe_by

from balancedstream_operator.errors import MissingMeasurementsError

HERE = "127.0.0.1"
TENANT = "X-Scope-OrgID"


def describe_mimir(folder: Path, port: int) -> dict[str, Any]:
    """The configuration of a Mimir in one process, which keeps everything in a folder."""
    alone = {"instance_addr": HERE, "kvstore": {"store": "inmemory"}}
    return {
        "multitenancy_enabled": True,
        "server": {
            "http_listen_address": HERE,
            "http_listen_port": port,
            "grpc_listen_address": HERE,
            "grpc_listen_port": find_free_port(),
        },
        "common": {"storage": {"backend": "filesystem", "filesystem": {"dir": f"{folder}/all"}}},
        "blocks_storage": {
            "filesystem": {"dir": f"{folder}/blocks"},
            "tsdb": {"dir": f"{folder}/tsdb"},
            "bucket_store": {"sync_dir": f"{folder}/sync"},
        },
        "ruler_storage": {"backend": "filesystem", "filesystem": {"dir": f"{folder}/rules"}},
        "ruler": {"rule_path": f"{folder}/ruler", "ring": alone},
        "compactor": {"data_dir": f"{folder}/compactor", "sharding_ring": alone},
        "memberlist": {"bind_addr": [HERE], "bind_port": find_free_port()},
        "ingester": {"ring": {"replication_factor": 1, **alone}},
        "distributor": {
            "ring": alone,
            "ha_tracker": {"enable_ha_tracker": True, "kvstore": {"store": "inmemory"}},
        },
        "store_gateway": {"sharding_ring": {"replication_factor": 1, **alone}},
        "frontend": {"address": HERE},
        "limits": {"accept_ha_samples": True},
        "usage_stats": {"enabled": False},
        "activity_tracker": {"filepath": f"{folder}/activity"},
    }


@pytest.fixture
def mimir(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    program: Path | None = request.config.getoption("--mimir", default=None)
    if program is None:
        pytest.skip("no program of Mimir: see --mimir")
    port = find_free_port()
    with run_mimir(program.resolve(), tmp_path, describe_mimir(tmp_path, port)):
        yield f"http://{HERE}:{port}"


def describe_replica(name: str, page: str, url: str) -> dict[str, Any]:
    """The configuration of one of a pair, as Mimir's HA tracker wants it."""
    return {
        "global": {"external_labels": {"cluster": "pair", "__replica__": name}},
        "scrape_configs": [scrape(page)],
        "remote_write": [{"url": f"{url}/api/v1/push"}],
    }


def write_as(tenant: str, url: str) -> Answer:
    """Passes on what a Prometheus writes: Debian's does not send the headers it is given."""
    kept = ("content-type", "content-encoding", "x-prometheus-remote-write-version")

    def forward(request: Request) -> Response:
        headers = {TENANT: tenant, **{name: request.headers[name] for name in kept}}
        body = request.body.encode(errors="surrogateescape")
        answer = requests.post(f"{url}{request.path}", body, headers=headers, timeout=PATIENCE_S)
        return Response(answer.text, answer.status_code)

    return forward


def test_a_tenant_of_mimir_is_measured_whole_and_by_its_own_name_only(
    mimir: str, tmp_path: Path
) -> None:
    url = f"{mimir}/prometheus"

    def observe_as(tenant: str) -> Observe:
        return observe_by(url, headers=f"{TENANT}: {tenant}" if tenant else "")

    with (
        serve(Driver().answer) as page,
        serve(write_as("shop", mimir)) as gateway,
        run_prometheus(tmp_path / "a", describe_replica("a", page, gateway)),
        run_prometheus(tmp_path / "b", describe_replica("b", page, gateway)),
    ):
        found = measure_until(has_batches(12), observe_as("shop"))
        (series,) = ask(url, "balancedstream_plan_epoch", **{TENANT: "shop"})
        assert "__replica__" not in series, "Mimir took one of the pair"
        for tenant, said in (("bakery", "has no metrics"), ("", "status 401")):
            with pytest.raises(MissingMeasurementsError, match=said):
                observe_as(tenant)(found.scraped_s)
