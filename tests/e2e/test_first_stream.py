"""What a new user does: install, apply the README's manifest, watch it run, upgrade, uninstall."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import images
import pytest
import yaml
from clusters import Cluster
from installing import Operator
from kube import Kube
from monitoring import Prometheus
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]

EXAMPLE = images.REPOSITORY / "examples" / "04-clicks"


@pytest.fixture(scope="module")
def clicks_image(cluster: Cluster, project_images: None) -> str:
    """Built as the example's Dockerfile says, on this working tree's Spark image."""
    cluster.node.build("clicks:1", EXAMPLE, ["--build-arg", f"SPARK={images.SPARK}"])
    return "localhost/clicks:1"


def test_the_readmes_stream_runs_and_does_not_notice_what_becomes_of_the_operator(
    kube: Kube,
    operator: Operator,
    prometheus: Prometheus,
    clicks_image: str,
    open_stream: Callable[[str], Stream],
) -> None:
    stream = open_stream("clicks")
    manifest = yaml.safe_load((EXAMPLE / "clicks.yaml").read_text("utf-8"))
    manifest["metadata"]["namespace"] = stream.namespace
    # Two cores carry two small executors; the image is on the node only.
    manifest["spec"] |= {
        "image": clicks_image,
        "driver": {"cpu": "200m"},
        "executors": {"min": 2, "max": 2, "cpu": "200m", "memory": "512m"},
        "partitions": 12,
        "metrics": {"intervalSeconds": 2},
    }
    stream.apply(manifest)
    stream.wait_for_condition("Accepted", timeout_s=30)
    stream.wait_for_condition("Ready", timeout_s=240)
    stream.wait_for_condition("Running")
    stream.wait_for_batches(3, query="clicks")
    rows_come_out(stream.checkpoint / "output")
    scrape_agrees(prometheus, stream)

    pods = stream.identities()
    operator.install("--set=resources.requests.cpu=20m")
    stream.wait_for_batches(1, query="clicks")
    operator.uninstall()
    assert kube.find(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", "balancedstreams.balancedstream.io"
    ), "the definition stays, and with it all streams"
    stream.wait_for_batches(2, query="clicks")
    operator.install()
    stream.wait_for_batches(1, query="clicks")
    stream.wait_for_condition("Running")
    assert stream.identities() == pods, "no pod was replaced or restarted"


def rows_come_out(output: Path) -> None:
    wait_until("rows in the sink", lambda: any(output.glob("batch=*/*.parquet")), timeout_s=60)


def scrape_agrees(prometheus: Prometheus, stream: Stream) -> None:
    """Prometheus and Spark's own progress tell of the same batch, within one scrape."""

    def agrees() -> bool:
        committed = stream.last_batch("clicks")
        label = f'{{stream="{stream.namespace}/{stream.name}",query="clicks"}}'
        scraped = prometheus.value(f"balancedstream_last_batch_id{label}")
        return scraped is not None and abs(committed - scraped) <= 1

    wait_until("a scrape of the last batch", agrees, timeout_s=30)
