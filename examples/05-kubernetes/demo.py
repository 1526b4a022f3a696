"""What `make demo-kubernetes` does: a stream on a cluster gets Ready, balanced, larger, smaller.

The cluster and what is put on it are those of the end-to-end tests: images of this working tree, a
broker, a Prometheus, the chart. Two executors count the clicks of users. Then users whose state one
of the two holds get hot; then all users get busy; then all get quiet. The terminal shows what
`kubectl get bst` says meanwhile, and what the operator decides.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

sys.path.append(str(Path(__file__).parents[2] / "tests" / "e2e"))

import images
from clusters import Cluster, ClusterUnavailableError, open_cluster
from hotkeys import find_keys_of_one_executor
from installing import NAMESPACE as OPERATOR_NAMESPACE
from installing import RELEASE
from kube import Kube, create_namespace
from monitoring import Prometheus
from producing import PacedProducer, ZipfKeys
from sites import INFRASTRUCTURE, Site
from streaming import FAST, count_state_holders, describe_counts
from streams import Stream
from telling import (
    News,
    Status,
    format_clock,
    has_decided,
    has_executors,
    holds,
    is_settled,
    read_row,
)
from waiting import wait_until

PARTS = 7
NAMESPACE = "balancedstream-demo"
NAME = "clicks"
"""Of the stream, and of its topic."""
DEFINITION = "balancedstreams.balancedstream.io"
REMOVAL = (
    f"helm uninstall {RELEASE} --namespace {OPERATOR_NAMESPACE} --ignore-not-found",
    f"kubectl delete --ignore-not-found crd/{DEFINITION} pv/{NAMESPACE} namespace/{NAMESPACE}"
    f" namespace/{INFRASTRUCTURE} namespace/{OPERATOR_NAMESPACE}"
    f" clusterrole/{INFRASTRUCTURE}-prometheus clusterrolebinding/{INFRASTRUCTURE}-prometheus",
)
"""What a person types to remove all that the demo puts on a cluster, or what of it is there."""

FEW, MANY = 2, 3
"""Executors. More would take both cores of a small machine from what runs."""
SPLITS, PARTITIONS = 3, 8
TRIGGER_S = 8
WAIT_MS = 8
"""For each click, as a call to another service would take."""
USERS = 100
FIRST_CLICKS = 200
"""For the first batch of the driver, which is slow whatever it reads."""
CALM, BUSY, QUIET = 50, 200, 10
"""Clicks a second: work for 0.4, 1.6 and 0.1 executors, besides what tasks take in any case: that
is much on a busy machine, and would keep the third executor if the load were not so low."""
HOT = 8
"""So many times the clicks: the skew is plain, and no state partition too much for an executor."""

READY_BY_S, BALANCED_BY_S, LARGER_BY_S, SMALLER_BY_S = 150, 240, 340, 450
"""Seconds after the images are there. What is left of eight minutes is for taking down."""
LOOK_S = 2.0


class Screen:
    """Lines on the terminal, with minutes and seconds since the command was typed."""

    def __init__(self) -> None:
        self._begun_s = time.monotonic()

    def begin(self, part: int, text: str) -> None:
        """A headline between the parts."""
        print(f"\n== {part} of {PARTS}: {text}", flush=True)

    def say(self, line: str) -> None:
        """One thing that happened."""
        print(f"{format_clock(time.monotonic() - self._begun_s):>5}  {line}", flush=True)


class Watched:
    """A stream whose news is shown while something is waited for.

    Attributes:
        stream: which.
        prometheus: has its metrics.
        status: when it was last looked at.
    """

    def __init__(
        self, stream: Stream, prometheus: Prometheus, kube: Kube, screen: Screen, images_s: float
    ) -> None:
        self.stream = stream
        self.prometheus = prometheus
        self.status: Status = {}
        self._kube = kube
        self._screen = screen
        self._images_s = images_s
        self._news = News()

    @property
    def epoch(self) -> int:
        """Of the newest plan."""
        return int(self.status.get("planEpoch") or 0)

    def wait_for(self, what: str, shows: Callable[[Status], bool], by_s: float) -> None:
        """Until a status shows what is waited for.

        Args:
            what: completes "waited in vain for ...".
            shows: asked of each status that is seen.
            by_s: seconds after the images were there.

        Raises:
            AssertionError: none has shown it by then.
        """
        wait_until(
            what,
            lambda: shows(self._look()),
            timeout_s=max(0.0, self._images_s + by_s - time.monotonic()),
            interval_s=LOOK_S,
            last_seen=lambda: self.status.get("reason"),
        )

    def _look(self) -> Status:
        table = self._kube.kubectl("get", "bst", NAME, namespace=NAMESPACE)
        self.status = self.stream.status()
        for line in self._news.find(read_row(table), self.status):
            self._screen.say(line)
        return self.status


def main() -> int:
    """Runs the demo; returns 0 when all of it was seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="leave everything as it is at the end")
    keep = parser.parse_args().keep
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    screen = Screen()
    try:
        screen.begin(1, "a cluster and the images; the first time this takes a quarter of an hour")
        with open_cluster(keep=keep) as cluster:
            show(Site(cluster, keep=True), screen, keep=keep)
    except (AssertionError, ClusterUnavailableError) as error:
        problem = str(error)
    except subprocess.CalledProcessError as error:
        problem = f"`{' '.join(error.cmd)}` ended with status {error.returncode}"
    except KeyboardInterrupt:
        problem = "interrupted"
    else:
        print("\n== what to type next")
        print("\n".join(list_next_steps(cluster if keep else None)))
        return 0
    print(f"\ndemo: {problem}", file=sys.stderr)
    return 1


def interrupt(number: int, frame: FrameType | None) -> None:
    """Ends the demo; what is there is then taken down."""
    ignore_interrupts()
    raise KeyboardInterrupt


def ignore_interrupts() -> None:
    """A second Ctrl-C would leave behind what is not taken down yet."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def show(site: Site, screen: Screen, *, keep: bool) -> None:
    """All that happens on the cluster, from the images to the taking down.

    Args:
        site: keeps what it puts up, because all of it is taken down here at once.
        screen: what is told.
        keep: do not take it down.
    """
    make_room(site, screen)
    build_images(site.cluster, screen)
    images_s = time.monotonic()
    try:
        run_stream(site, screen, images_s)
    finally:
        if not keep:
            ignore_interrupts()
            screen.begin(PARTS, "all of it is taken down, and a cluster that was started for it")
            take_down(site)
            took = format_clock(time.monotonic() - images_s)
            screen.say(f"nothing of it is left on the cluster, {took} after the images were there")


def make_room(site: Site, screen: Screen) -> None:
    """Removes what an earlier demo left.

    Raises:
        ClusterUnavailableError: BalancedStream is in use here, and the demo would remove it.
    """
    if site.kube.find("v1", "Namespace", NAMESPACE):
        screen.say("an earlier demo is still there, and is taken down first")
        take_down(site)
    elif site.kube.find("apiextensions.k8s.io/v1", "CustomResourceDefinition", DEFINITION):
        message = (
            "BalancedStream is installed on this cluster, and the demo would replace and then "
            f"remove it: take another cluster, or uninstall it with its definition ({DEFINITION})"
        )
        raise ClusterUnavailableError(message)


def take_down(site: Site) -> None:
    """Removes all that the demo puts on a cluster, or what of it is there."""
    programs = {"kubectl": site.kube.kubectl, "helm": site.kube.helm}
    for command in REMOVAL:
        program, *arguments = command.split()
        programs[program](*arguments)
    shutil.rmtree(site.cluster.shared_folder / NAMESPACE, ignore_errors=True)


def build_images(cluster: Cluster, screen: Screen) -> None:
    """All that are needed, so that what comes then takes as long as it takes everywhere."""
    for what, build in (
        ("the operator and Spark", images.build_project_images),
        ("the job that counts clicks", images.build_app_image),
        ("Kafka", images.build_kafka_image),
        ("Prometheus", images.build_prometheus_image),
    ):
        screen.say(f"image: {what}")
        build(cluster.node)


def run_stream(site: Site, screen: Screen, images_s: float) -> None:
    """Puts up all that the stream needs, and shows it."""
    screen.begin(2, "Prometheus, Kafka and the operator")
    # First of all, because a later demo knows by it that what is there is a demo's.
    create_namespace(site.kube, NAMESPACE)
    prometheus = site.prometheus
    screen.say("Prometheus answers")
    broker = site.broker
    broker.create_topic(NAME, SPLITS)
    screen.say(f"Kafka has a topic {NAME}")
    with site.operator(prometheus.in_pods), site.storage(NAMESPACE) as storage:
        screen.say("helm has installed the chart, and the operator is ready")
        stream = Stream(site.kube, storage, NAME)
        users = ZipfKeys(USERS, exponent=0.5, seed=1)
        with PacedProducer(broker, NAME, users, partitions=SPLITS) as clicks:
            clicks.send(FIRST_CLICKS)
            stream.apply(
                describe_counts(
                    stream,
                    broker,
                    NAME,
                    executors=(FEW, MANY),
                    partitions=PARTITIONS,
                    wait_ms=WAIT_MS,
                    rows=3000,
                    trigger_s=TRIGGER_S,
                    scaling={**FAST["scaling"], "mode": "Auto"},
                )
            )
            screen.begin(3, f"the stream {NAME} is applied; Spark starts, about a minute")
            watched = Watched(stream, prometheus, site.kube, screen, images_s)
            watched.wait_for("Ready", lambda status: holds(status, "Ready"), READY_BY_S)
            screen.begin(4, f"users whose state is on one executor get {HOT} times as many clicks")
            show_balancing(watched, screen, clicks, users)
            screen.begin(5, f"the load rises from {CALM} to {BUSY} clicks a second")
            show_step(watched, screen, clicks, (BUSY, MANY), LARGER_BY_S)
            screen.begin(6, f"the load falls to {QUIET} clicks a second")
            show_step(watched, screen, clicks, (QUIET, FEW), SMALLER_BY_S)


def show_balancing(
    watched: Watched, screen: Screen, clicks: PacedProducer, users: ZipfKeys
) -> None:
    """Users of one executor get hot, and state partitions move until the load is even."""
    clicks.set_rate(CALM)
    watched.wait_for(
        "three batches and an even load",
        lambda status: is_settled(status) and watched.stream.last_batch() >= 3,
        BALANCED_BY_S,
    )
    hot = find_keys_of_one_executor(watched.prometheus, watched.stream.label, watched.stream)
    epoch = watched.epoch
    users.favor(hot, HOT)
    screen.say(f"{len(hot)} of {USERS} users are hot from now on")
    watched.wait_for(
        "a decision to balance",
        lambda status: has_decided(status, "move", since=epoch),
        BALANCED_BY_S,
    )
    watched.wait_for("an even load", is_settled, BALANCED_BY_S)


def show_step(
    watched: Watched, screen: Screen, clicks: PacedProducer, step: tuple[float, int], by_s: float
) -> None:
    """The load changes, the number of executors follows, and state follows the executors.

    Args:
        watched: the stream.
        screen: is told when each of it was seen.
        clicks: whose rate changes.
        step: clicks a second from now on, and the executors that they need.
        by_s: seconds after the images were there.
    """
    epoch, begun_s = watched.epoch, time.monotonic()
    rate, executors = step
    clicks.set_rate(rate)
    watched.wait_for(
        f"a decision to scale to {executors} executors",
        lambda status: has_decided(status, "scale", since=epoch),
        by_s,
    )
    asked_s = time.monotonic() - begun_s
    watched.wait_for(
        f"{executors} executors", lambda status: has_executors(status, executors), by_s
    )
    there_s = time.monotonic() - begun_s
    watched.wait_for(
        f"state on {executors} executors",
        lambda status: (
            has_executors(status, executors)
            and count_state_holders(watched.prometheus, watched.stream) >= executors
        ),
        by_s,
    )
    screen.say(
        f"of the step: decided after {asked_s:.0f} s, {executors} executors after {there_s:.0f} s, "
        f"state on all of them after {time.monotonic() - begun_s:.0f} s"
    )


def list_next_steps(kept: Cluster | None) -> list[str]:
    """What a person may want to type after the demo, on the cluster if it was kept."""
    if kept is None:
        return [
            "KEEP=1 make demo-kubernetes          # again, and all of it stays to be looked at",
            "cat examples/04-clicks/clicks.yaml   # a stream of your own: docs/kubernetes.md",
        ]
    which = f"{NAME} --namespace {NAMESPACE}"
    return [
        f"export KUBECONFIG={kept.kubeconfig} PATH={kept.kubectl.parent}:$PATH",
        f"kubectl get bst {which} --watch",
        f"kubectl describe bst {which}",
        f".venv/bin/kubectl-bst explain {which}",
        f"kubectl scale bst {which} --replicas {MANY}",
        "# the clicks have ended with this command; to remove all that it has put up:",
        *REMOVAL,
        f"rm -r {kept.shared_folder / NAMESPACE}",
        *([kept.stop] if kept.stop else []),
    ]


if __name__ == "__main__":
    sys.exit(main())
