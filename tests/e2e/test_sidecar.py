"""An application in an image without Python is balanced by an agent in a sidecar of its driver."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from clusters import Cluster
from java_application import SIDECAR, JavaApplication, build_java_image
from kube import Kube
from monitoring import Prometheus
from plugin_apps import KEYS, ROWS_PER_BATCH, WAIT, check_result
from streaming import describe_target, wait_for_state_on
from streams import Stream
from waiting import wait_until

pytestmark = [pytest.mark.e2e]

CHECKPOINT = "checkpoint"
"""Where the application keeps the one of its query."""


@pytest.fixture(scope="module")
def java_image(project_images: None, cluster: Cluster) -> None:
    build_java_image(cluster.node)


@pytest.mark.usefixtures("operator", "java_image")
def test_an_application_without_python_is_scaled_by_a_sidecar_that_may_end(
    kube: Kube, prometheus: Prometheus, open_stream: Callable[[str], Stream]
) -> None:
    stream = open_stream("clicks")
    application = JavaApplication(kube, stream, "shop-clicks")
    application.create_account()
    folder = stream.checkpoint
    folder.mkdir()
    # The pods' user writes there, and so does this one.
    folder.chmod(0o777)
    stream.apply(describe_target(stream, application.target))
    running = application.submit(
        "counts.jar", f"/checkpoints/{stream.name}", str(ROWS_PER_BATCH), str(KEYS), WAIT
    )
    stream.wait_for_condition("Running", timeout_s=240)
    stream.scale(2)
    wait_for_state_on(2, prometheus, stream)
    stream.wait_for_condition("Ready", timeout_s=180)

    application.end_sidecar()
    wait_until(
        "the sidecar's restart, and nothing of the driver's",
        lambda: application.count_restarts() == (0, 1),
        timeout_s=60,
        last_seen=application.count_restarts,
    )
    stream.wait_for_batches(2, query=CHECKPOINT)
    stream.scale(1)
    wait_until(
        "one executor, by the agent that came after",
        lambda: len(application.executors(running)) == 1,
        timeout_s=240,
        last_seen=application.read_logs,
    )
    logs = application.read_logs()
    assert "the agent ended with status 137 and starts again" in logs["spark-kubernetes-driver"]
    assert "agent in process" not in logs["spark-kubernetes-driver"]
    assert "agent in process" in logs[SIDECAR]

    (folder / "stop").touch()
    wait_until(
        "the end of the driver's pod",
        lambda: application.phase() == "Succeeded",
        timeout_s=120,
        last_seen=application.read_logs,
    )
    assert check_result((folder / "result").read_text()) > 0
