"""A Kafka broker in a pod, its topics, and what they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from images import KAFKA
from kube import Kube, Manifest
from recomputation import Record
from servers import describe_server
from waiting import wait_until

NODE_PORT = 30094
NAME = "kafka"
_LABELS = {"app.kubernetes.io/name": NAME}


@dataclass(frozen=True)
class Broker:
    """A running broker.

    Attributes:
        in_pods: its address for pods.
        here: its address for this machine.
    """

    in_pods: str
    here: str

    def create_topic(self, name: str, partitions: int = 6) -> None:
        """Returns when the topic can be written to."""
        admin = AdminClient({"bootstrap.servers": self.here, "log_level": 3})
        (created,) = admin.create_topics([NewTopic(name, partitions, 1)]).values()
        created.result(timeout=30)

    def delete_topic(self, name: str) -> None:
        """Returns when the broker has taken the request."""
        admin = AdminClient({"bootstrap.servers": self.here, "log_level": 3})
        (deleted,) = admin.delete_topics([name]).values()
        deleted.result(timeout=30)

    def read_topic(self, topic: str, ends: Mapping[int, int]) -> dict[int, list[Record]]:
        """The records of each partition from offset 0 up to its end, in the order of offsets.

        Args:
            topic: its name.
            ends: for each partition the first offset that is not read.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.here,
                "group.id": "recomputation",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        records: dict[int, list[Record]] = {partition: [] for partition in ends}
        wanted = {partition for partition, end in ends.items() if end > 0}
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in wanted])
            while wanted:
                messages = consumer.consume(num_messages=10_000, timeout=10)
                if not messages:
                    problem = f"{topic}: nothing came within 10 s; partitions {wanted} are short"
                    raise AssertionError(problem)
                for message in messages:
                    partition, offset, record = _parse(message)
                    if offset >= ends[partition]:
                        continue
                    read = records[partition]
                    if offset != len(read):
                        problem = f"{topic}[{partition}]: offset {offset} came after {len(read)}"
                        raise AssertionError(problem)
                    read.append(record)
                    if len(read) == ends[partition]:
                        wanted.discard(partition)
        finally:
            consumer.close()
        return records


def _parse(message: Message[bytes, bytes]) -> tuple[int, int, Record]:
    """A message's partition, offset and content."""
    partition, offset, key, value = (
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
    )
    if message.error() or partition is None or offset is None or key is None or value is None:
        problem = f"not a record: {message.error()}"
        raise AssertionError(problem)
    content = json.loads(value)
    return partition, offset, Record(key.decode(), content["value"], content["event_time_ms"])


def deploy_broker(kube: Kube, namespace: str) -> Broker:
    """Starts the broker; returns when it answers this machine."""
    broker = Broker(f"{NAME}.{namespace}.svc:9092", f"{kube.node_address}:{NODE_PORT}")
    kube.apply(*_manifests(namespace, broker))
    try:
        kube.wait_for_rollout(namespace, NAME, timeout_s=120)
    except AssertionError as error:
        # A container that starts again keeps its volumes; a new pod begins with empty ones.
        print(f"the broker's pod is replaced: {error}")
        for pod in kube.pods(namespace, _LABELS):
            kube.delete("v1", "Pod", pod["metadata"]["name"], namespace=namespace)
        kube.wait_for_rollout(namespace, NAME, timeout_s=120)
    admin = AdminClient({"bootstrap.servers": broker.here, "log_level": 0})
    wait_until("the broker's answer", lambda: _answers(admin), timeout_s=60)
    return broker


def _answers(admin: AdminClient) -> bool:
    try:
        return bool(admin.list_topics(timeout=5).brokers)
    except KafkaException:
        return False


def _manifests(namespace: str, broker: Broker) -> list[Manifest]:
    # Two listeners, because a broker tells each client the address to come back to, and pods and
    # this machine reach it by different ones.
    properties = f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
controller.listener.names=CONTROLLER
listeners=PODS://:9092,CONTROLLER://127.0.0.1:9093,HERE://:9094
advertised.listeners=PODS://{broker.in_pods},HERE://{broker.here}
listener.security.protocol.map=PODS:PLAINTEXT,CONTROLLER:PLAINTEXT,HERE:PLAINTEXT
inter.broker.listener.name=PODS
log.dirs=/var/lib/kafka/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
num.network.threads=2
num.io.threads=2
# The default of 9 s fences a broker that two busy cores let wait.
broker.session.timeout.ms=90000
# One that was killed has to wait for the end of its own session.
initial.broker.registration.timeout.ms=180000
"""
    metadata = {"name": NAME, "namespace": namespace, "labels": _LABELS}
    ports = {"pods": 9092, "here": 9094}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"server.properties": properties},
        },
        *describe_server(
            metadata,
            ports=[
                {"name": "pods", "port": ports["pods"]},
                {"name": "here", "port": ports["here"], "nodePort": NODE_PORT},
            ],
            pod={
                "containers": [
                    {
                        "name": NAME,
                        "image": KAFKA,
                        "ports": [{"containerPort": port} for port in ports.values()],
                        "readinessProbe": {
                            "tcpSocket": {"port": ports["pods"]},
                            "periodSeconds": 2,
                        },
                        "volumeMounts": [
                            {"name": "configuration", "mountPath": "/etc/kafka"},
                            {"name": "data", "mountPath": "/var/lib/kafka"},
                            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
                        ],
                    }
                ],
                "volumes": [
                    {"name": "configuration", "configMap": {"name": NAME}},
                    {"name": "data", "emptyDir": {}},
                    {"name": "tmp", "emptyDir": {}},
                ],
            },
        ),
    ]
